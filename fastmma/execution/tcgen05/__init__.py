"""tcgen05: the tensor cores of datacenter Blackwell, by kind and types, by opcode and descriptor, or on memory as a kernel sees it."""

from fastmma.execution.tcgen05.copies import cp, shift
from fastmma.execution.tcgen05.loads import ld, ld_red, st
from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.instruction import largest as instructions
from fastmma.isa.tcgen05.instruction import tcgen05_instruction as instruction
from fastmma.isa.tcgen05.shared_memory import SharedMemoryDescriptor

__all__ = ["InstructionDescriptor", "SharedMemoryDescriptor", "cp", "instruction", "instructions", "ld", "ld_red", "shift", "st"]
