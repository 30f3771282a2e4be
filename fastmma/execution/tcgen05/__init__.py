"""tcgen05: the tensor cores of datacenter Blackwell, by kind and types, by opcode and descriptor, or on memory as a kernel sees it."""

from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.instruction import largest as instructions
from fastmma.isa.tcgen05.instruction import tcgen05_instruction as instruction

__all__ = ["InstructionDescriptor", "instruction", "instructions"]
