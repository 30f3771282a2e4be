"""Choosing the instruction of a product from the formats of its operands."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastmma.host.errors import InstructionError, OperandTypeError, TargetError
from fastmma.isa.formats import FORMATS, Format, format_of
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.isa.targets import TARGETS, specific, target_of
from fastmma.isa.tcgen05.instruction import largest
from fastmma.numerics.lookup import arithmetic

if TYPE_CHECKING:
    import numpy as np

# what a vendor library reaches for first: tcgen05 or wgmma where there is one, and the deepest k
_OP_PREFERENCE = {"tcgen05": 0, "wgmma": 0, "mma": 1, "wmma": 2, **dict.fromkeys(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac"), 1)}
# libraries take tcgen05 there; what they take on sm_107 is not known
_TCGEN05 = specific("sm_100", "sm_103", "sm_110")
# libraries' loops over k take 32, 64 or 128 of unaligned 16-bit operands at a time, and begin with what is left over
UNALIGNED_TILE = 32
# what the length of equal parts of k is rounded up to, where that is not the instruction's k: off the tensor cores, as in cuBLAS
SLICE_UNITS = {"fma": 4}
_ACCUMULATORS = tuple(FORMATS[name] for name in ("f16", "f32", "f64", "s32"))
_SCALES = tuple(FORMATS[name] for name in ("ue8m0", "ue4m3"))


def default_instruction(
    atype: str, btype: str, dtype: str | None, target: str, *, sparse: bool = False, stype: str = "", chunk: int = 0, aligned: bool = True
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
    aligned : bool
        Whether K and N are multiples of 8; without that, libraries take no tcgen05 for 16-bit operands.

    Raises
    ------
    InstructionError
        If the target has no instruction for them.

    Examples
    --------
    >>> default_instruction("e4m3", "e4m3", None, "sm_90a").opcode
    'wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3'
    """
    target = target_named(target)
    found = usual_instruction(atype, btype, dtype, target, sparse=sparse, stype=stype, chunk=chunk, aligned=aligned)
    if found is not None:
        return found
    more = (
        (f" with a {dtype} accumulator" if dtype else "")
        + (" and sparse A" if sparse else "")
        + (f" and {stype} scales" if stype else "")
        + (f", whose k divides {chunk}" if chunk else "")
    )
    able = [name for name in TARGETS if usual_instruction(atype, btype, dtype, name, sparse=sparse, stype=stype, chunk=chunk)]
    where = f"these have one: {', '.join(able)}" if able else "no target has one"
    raise InstructionError(f"{target} has no instruction for {atype} times {btype}{more}; {where}")


@lru_cache(4096)
def usual_instruction(
    atype: str, btype: str, dtype: str | None, target: str, *, sparse: bool = False, stype: str = "", chunk: int = 0, aligned: bool = True
) -> Instruction | None:
    """Return what `default_instruction` returns, or None where it raises."""
    return min(
        _fitting((atype, btype), dtype, target, sparse, stype, chunk, aligned),
        key=lambda ins: (
            *(_OP_PREFERENCE[ins.op], -ins.formats.d.bits, -ins.k, -ins.n, -ins.m),
            *(ins.bit_op != "and", ins.kind, ins.sparse == "sp"),
        ),
        default=None,
    )


def _fitting(
    types: tuple[str, str], dtype: str | None, target: str, sparse: bool, stype: str, chunk: int, aligned: bool
) -> list[Instruction]:
    """The instructions of a target for element formats."""
    return [
        ins
        for ins in (*multiplications(target, types), *_fifth_generation(target, sparse, aligned))
        if (ins.atype, ins.btype) == types
        and ins.ctype == ins.dtype
        and (dtype is None or ins.dtype == dtype)
        and bool(ins.sparse) == sparse
        and ins.stype == stype
        and chunk % ins.k == 0
        and ins.blocks == 1
        and not ins.satfinite
        and ins.rounding in ("", "rn")
        and (ins.alayout, ins.blayout) == ("row", "col")
    ]


def takes_tcgen05(target: str) -> bool:
    """Tell whether libraries take tcgen05 on a target."""
    return target in _TCGEN05


def _fifth_generation(target: str, sparse: bool, aligned: bool) -> list[Instruction]:
    """The tcgen05.mma that libraries take: dense, with sums in f32 or s32."""
    if sparse or not takes_tcgen05(target):
        return []
    return [ins for ins in largest(target) if not ins.sparse and ins.dtype != "f16" and (aligned or ins.formats.a.bits != 16)]


@lru_cache(1024)
def other_spelling(ins: Instruction, target: str) -> str:
    """Return what the same GPU takes under its other name; empty where its bits are the same, or the instruction is not the usual one.

    Examples
    --------
    >>> other_spelling(default_instruction("e4m3", "e4m3", None, "sm_90a"), "sm_90a")
    'sm_90 takes mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32, with other bits'
    """
    silicon = target_of(target).architecture
    formats = ins.atype, ins.btype, ins.dtype
    form: Any = {"sparse": bool(ins.sparse), "stype": ins.stype}
    try:
        usual = default_instruction(*formats, target, **form) == ins
    except InstructionError:
        usual = False
    for other in dict.fromkeys((silicon.name, silicon.usual)):
        if not usual:
            continue
        try:
            its = default_instruction(*formats, other, **form)
            same = arithmetic(its, other, strict=False).family == arithmetic(ins, target, strict=False).family
        except (InstructionError, TargetError):
            return f"{other} has no such instruction, and other bits"
        if not same:
            return f"{other} takes {its}, with other bits"
    return ""


@lru_cache(1024)
def multiplicand(dtype: np.dtype[Any], what: str, target: str = "") -> Format:
    """Return the format of a multiplicand's elements.

    Parameters
    ----------
    dtype : dtype
    what : str
        Which operand of which function it is, for errors.
    target : str, optional
        A GPU whose matrix cores may multiply float32 or int32 as they are, as AMD's do.

    Raises
    ------
    OperandTypeError
        If no instruction, or more than one format, takes the dtype.
    """
    try:
        fmt = format_of(dtype)
    except InstructionError:
        raise OperandTypeError(f"{what} has dtype {dtype}, which no instruction multiplies") from None
    if fmt.name in ("f32", "s32") and (not target or usual_instruction(fmt.name, fmt.name, None, target) is None):
        raise OperandTypeError(
            f"{what} has dtype {dtype}: name the instruction (a tf32 one takes float32, and fma.rn.f32 off the tensor cores), or "
            "convert it to the format to be multiplied"
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


def named(fmt: Any, what: str) -> str | None:
    """The name of a format that a caller gives as a name, a dtype or a Format; None for None.

    Raises
    ------
    OperandTypeError
    """
    if fmt is None or type(fmt) is str:
        return fmt
    try:
        return format_of(fmt).name
    except InstructionError as error:
        raise OperandTypeError(f"{what}: {error}") from None
