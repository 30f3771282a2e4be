"""Rows of wgmma.mma_async, dense and sparse (PTX: Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async).

The opcode names d, a and b; the accumulator is d itself. Scale-d, negated operands and transposes are operands, not part of the opcode.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastmma.isa.formats import FP8
from fastmma.isa.fragments import warpgroup_fragments
from fastmma.isa.rows.family import SATFINITE, Family

_FLOAT_N = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))
_BYTES = ("s8", "u8")


def _row(
    k: int,
    widths: tuple[int, ...],
    types: tuple[str, ...],
    modifiers: Mapping[str, tuple[str, ...]] | None = None,
    sparse: str = "",
    ptx: tuple[int, int] = (8, 0),
) -> Family:
    names = modifiers or {}
    return Family(
        "wgmma",
        f"wgmma.mma_async{sparse}.sync.aligned.{{shape}}"
        + ("{satfinite}" if "satfinite" in names else "")
        + ".{types}"
        + ("{bit_op}" if "bit_op" in names else ""),
        tuple(f"m64n{n}k{k}" for n in widths),
        types,
        ("sm_90a",),
        ptx,
        f"Register Fragments for wgmma.mma_async.m64nNk{k}",
        names,
        optional=("aligned",),  # PTX's syntax has it, ptxas does without
        lanes=128,
        fragments=warpgroup_fragments,
    )


_SAME_BYTES = tuple(f"s32.{a}.{a}" for a in _BYTES)
_MIXED_BYTES = ("s32.s8.u8", "s32.u8.s8")
_16BIT = ("f16.f16.f16", "f32.f16.f16", "f32.bf16.bf16")
_FP8_TYPES = tuple(f"{d}.{a}.{b}" for d in ("f16", "f32") for a in FP8 for b in FP8)

FAMILIES: tuple[Family, ...] = (
    _row(16, _FLOAT_N, _16BIT),
    _row(8, _FLOAT_N, ("f32.tf32.tf32",)),
    _row(32, _FLOAT_N, _FP8_TYPES),
    _row(32, _INTEGER_N, _SAME_BYTES, SATFINITE),
    _row(32, _INTEGER_N, _MIXED_BYTES, SATFINITE, ptx=(8, 4)),
    _row(256, _INTEGER_N, ("s32.b1.b1",), {"bit_op": (".and.popc",)}),
    _row(32, _FLOAT_N, _16BIT, sparse=".sp", ptx=(8, 2)),
    _row(16, _FLOAT_N, ("f32.tf32.tf32",), sparse=".sp", ptx=(8, 2)),
    _row(64, _FLOAT_N, _FP8_TYPES, sparse=".sp", ptx=(8, 2)),
    _row(64, _INTEGER_N, _SAME_BYTES, SATFINITE, ".sp", ptx=(8, 2)),
    _row(64, _INTEGER_N, _MIXED_BYTES, SATFINITE, ".sp", ptx=(8, 4)),
)
