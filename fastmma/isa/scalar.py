"""The multiply-add of float32 off the tensor cores: one product an instruction, looped over k as the matrix instructions are.

It is looked up by its opcode, and stands in no list of matrix instructions.
"""

from __future__ import annotations

from fastmma.isa.fragments import Multiplication
from fastmma.isa.instruction import Instruction
from fastmma.isa.layout import Layout
from fastmma.isa.targets import PTX_TARGETS

OP = "fma"
OPCODE = "fma.rn.f32"
_F32 = "f32"


def _of_a_thread(_ins: Multiplication) -> dict[str, Layout]:
    """One element each, in registers of one thread."""
    return {name: Layout((1, 1), (), (), 32) for name in "abcd"}


FMA = Instruction(
    opcode=OPCODE,
    op=OP,
    m=1,
    n=1,
    k=1,
    dtype=_F32,
    atype=_F32,
    btype=_F32,
    ctype=_F32,
    alayout="row",
    blayout="col",
    rounding="",
    satfinite=False,
    bit_op="",
    kind="",
    targets=PTX_TARGETS,
    ptx=(2, 0),
    heading="Floating Point Instructions: fma",
    fragments=_of_a_thread,
    lanes=1,
)
