"""AMD's matrix instructions by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from fastmma.host.errors import InstructionError
from fastmma.isa.amd.rows import ROWS, Row
from fastmma.isa.illegal import refusal
from fastmma.isa.instruction import Instruction
from fastmma.isa.targets import NO_PTX

_PREFIX = "v_"
_SCALED_BLOCK = 32


def is_amd(text: str) -> bool:
    """Tell whether a text names an instruction of AMD's."""
    return text.startswith(_PREFIX)


def _instruction(row: Row) -> Instruction:
    m, n, k = row.shape
    dtype, atype, btype = row.types
    return Instruction(
        opcode=row.opcode,
        op=row.op,
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        atype=atype,
        btype=btype,
        ctype=dtype,
        alayout="row",
        blayout="col",
        rounding="rn" if dtype == "f64" else "",
        satfinite=row.satfinite,
        bit_op="",
        kind=row.kind,
        targets=row.targets,
        ptx=NO_PTX,
        heading=row.heading,
        fragments=row.fragments,
        lanes=row.lanes,
        sparse="sp" if row.sparse else "",
        scale_vec_size=k // _SCALED_BLOCK if row.stype else 0,
        stype=row.stype,
        blocks=row.blocks,
    )


@lru_cache(1024)
def _member(number: int) -> Instruction:
    """The instruction of a row, made when it is needed."""
    return _instruction(ROWS[number])


def every(target: str | None = None, types: tuple[str, str] | None = None) -> tuple[Instruction, ...]:
    """List AMD's matrix instructions, all or those of a target, of all types or those of A and B."""
    return tuple(
        _member(number)
        for number, row in enumerate(ROWS)
        if (target is None or target in row.targets) and (types is None or row.types[1:] == types)
    )


@cache
def _spellings() -> Mapping[str, Instruction]:
    found: dict[str, Instruction] = {}
    for ins, row in zip(every(), ROWS, strict=True):
        for text in (row.opcode, *row.aliases):
            if text in found:
                raise ValueError(f"two rows describe {text}")
            found[text] = ins
    return found


def read(text: str) -> Instruction:
    """The instruction of a text.

    Raises
    ------
    InstructionError
        If there is none.

    Examples
    --------
    >>> read("v_mfma_f32_32x32x4f16").opcode
    'v_mfma_f32_32x32x4_2b_f16'
    """
    found = _spellings().get(" ".join(text.split()))
    if found is None:
        raise InstructionError(refusal(text, "AMD's documents have no instruction of this name", tuple(_spellings())))
    return found


def first_name(ins: Instruction) -> str:
    """The spelling of the earliest document, which compilers' builtins have.

    Examples
    --------
    >>> first_name(read("v_mfma_f32_32x32x8_bf16"))
    'v_mfma_f32_32x32x8bf16_1k'
    """
    names = next(row.aliases for row in ROWS if row.opcode == ins.opcode)
    return names[0] if names else ins.opcode


@lru_cache(1024)
def namesake(ins: Instruction, target: str) -> Instruction:
    """The instruction that a target has under the name of another one, or the same where it has none.

    Examples
    --------
    >>> namesake(read("v_wmma_f32_16x16x16_f16"), "gfx1200").opcode
    'v_wmma_f32_16x16x16_f16 gfx12'
    """
    if target in ins.targets:
        return ins
    return next((each for each in every() if each.opcode.startswith(f"{ins.opcode} gfx") and target in each.targets), ins)
