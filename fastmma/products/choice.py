"""Choosing the instruction of a product from the formats of its operands."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fastmma.host.errors import InstructionError, OperandTypeError
from fastmma.isa.formats import FORMATS, Format, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.isa.targets import architecture

# what a vendor library reaches for first: wgmma where there is one, and the deepest k
_OP_PREFERENCE = {"wgmma": 0, "mma": 1, "wmma": 2}
_ACCUMULATORS = tuple(FORMATS[name] for name in ("f16", "f32", "f64", "s32"))
_SCALES = tuple(FORMATS[name] for name in ("ue8m0", "ue4m3"))


@cache
def default_instruction(
    atype: str, btype: str, dtype: str | None, target: str, *, sparse: bool = False, stype: str = "", chunk: int = 0
) -> Instruction:
    """The instruction that a vendor library would use for these element formats.

    Parameters
    ----------
    atype, btype : str
        PTX names of the multiplicands' formats.
    dtype : str or None
        Format of the accumulator, or None for the widest (f32, s32 or f64).
    target : str
    sparse : bool
        Whether A is stored without its zeros.
    stype : str
        Format of the scales, or empty where there is no block scaling.
    chunk : int
        What the instruction's k must divide, or 0.

    Raises
    ------
    InstructionError
        If the target has no instruction for them.

    Examples
    --------
    >>> default_instruction("e4m3", "e4m3", None, "sm_90a").opcode
    'wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3'
    """
    architecture(target)
    fitting = [
        ins
        for ins in multiplications(target)
        if (ins.atype, ins.btype) == (atype, btype)
        and ins.ctype == ins.dtype
        and (dtype is None or ins.dtype == dtype)
        and bool(ins.sparse) == sparse
        and ins.stype == stype
        and chunk % ins.k == 0
        and not ins.satfinite
        and ins.rounding in ("", "rn")
        and (ins.alayout, ins.blayout) == ("row", "col")
    ]
    if not fitting:
        more = (
            (f" with a {dtype} accumulator" if dtype else "")
            + (" and sparse A" if sparse else "")
            + (f" and {stype} scales" if stype else "")
            + (f", whose k divides {chunk}" if chunk else "")
        )
        raise InstructionError(f"{target} has no instruction for {atype} times {btype}{more}")
    return min(
        fitting,
        key=lambda ins: (
            *(_OP_PREFERENCE[ins.op], -ins.formats.d.bits, -ins.k, -ins.n, -ins.m),
            *(ins.bit_op != "and", ins.kind, ins.sparse == "sp"),
        ),
    )


@cache
def multiplicand(dtype: np.dtype[Any], what: str) -> Format:
    """The format of a multiplicand's elements.

    Raises
    ------
    OperandTypeError
        If no instruction, or more than one format, takes the dtype.
    """
    try:
        fmt = format_of(dtype)
    except InstructionError:
        raise OperandTypeError(f"{what} has dtype {dtype}, which is no multiplicand of any instruction") from None
    if fmt.name in ("f32", "s32"):
        raise OperandTypeError(
            f"{what} has dtype {dtype}: name the instruction (a tf32 one takes float32), or convert it to the format to be multiplied"
        )
    return fmt


def accumulator(dtype: np.dtype[Any], what: str) -> Format:
    """The format of an accumulator.

    Raises
    ------
    OperandTypeError
        If nothing accumulates in the dtype.
    """
    for fmt in _ACCUMULATORS:
        if dtype.newbyteorder("=") == fmt.dtype:
            return fmt
    raise OperandTypeError(f"{what} must be float16, float32, float64 or int32, not {dtype}")


def scale(dtype: np.dtype[Any], what: str) -> Format:
    """The format of an instruction's scales.

    Raises
    ------
    OperandTypeError
        If no instruction takes the dtype as scales.
    """
    for fmt in _SCALES:
        if dtype == fmt.dtype:
            return fmt
    raise OperandTypeError(f"{what}: scales must have dtype {' or '.join(fmt.dtype.name for fmt in _SCALES)}, not {dtype}")
