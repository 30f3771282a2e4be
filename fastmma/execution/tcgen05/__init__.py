"""tcgen05: the tensor cores of datacenter Blackwell, by kind and types, by opcode and descriptor, or on memory as a kernel sees it."""

from fastmma.execution.tcgen05.copies import cp, shift
from fastmma.execution.tcgen05.loads import ld, ld_red, st
from fastmma.execution.tcgen05.multiply import mma
from fastmma.isa.tcgen05.column_mask import ZeroColumnMask
from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.instruction import largest as instructions
from fastmma.isa.tcgen05.instruction import tcgen05_instruction as instruction
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor

__all__ = [
    "InstructionDescriptor",
    "MatrixDescriptor",
    "ZeroColumnMask",
    "cp",
    "instruction",
    "instructions",
    "ld",
    "ld_red",
    "mma",
    "shift",
    "st",
]


def __dir__() -> list[str]:
    return list(__all__)
