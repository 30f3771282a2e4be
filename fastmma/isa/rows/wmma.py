"""Rows of wmma.mma (PTX: Warp-level Matrix Multiply-and-Accumulate Instruction: wmma.mma)."""

from __future__ import annotations

from collections.abc import Mapping

from fastmma.isa.fragments import wmma_fragments
from fastmma.isa.rows.family import SATFINITE, Family
from fastmma.isa.targets import from_base

SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16")
_LAYOUTS = {"alayout": ("row", "col"), "blayout": ("row", "col")}
_SYNTAX = "wmma.mma.sync.aligned.{alayout}.{blayout}.{shape}.{types}"


def _same(fmt: str, accumulator: str) -> str:
    return f"{accumulator}.{fmt}.{fmt}.{accumulator}"


def _row(
    syntax: str,
    shapes: tuple[str, ...],
    types: tuple[str, ...],
    first: str,
    ptx: tuple[int, int],
    modifiers: Mapping[str, tuple[str, ...]],
    defaults: tuple[str, ...] = (),
) -> Family:
    heading = "Matrix Fragments for WMMA"
    return Family("wmma", syntax, shapes, types, from_base(first), ptx, heading, modifiers, defaults, fragments=wmma_fragments)


FAMILIES: tuple[Family, ...] = (
    # f16 multiplicands are not written in the opcode
    _row(
        "wmma.mma.sync.aligned.{alayout}.{blayout}.{shape}.{dtype}.{ctype}",
        SHAPES,
        tuple(f"{d}.f16.f16.{c}" for d in ("f16", "f32") for c in ("f16", "f32")),
        "sm_70",
        (6, 0),
        _LAYOUTS,
    ),
    _row(_SYNTAX, SHAPES, (_same("bf16", "f32"),), "sm_80", (7, 0), _LAYOUTS),
    _row(_SYNTAX, ("m16n16k8",), (_same("tf32", "f32"),), "sm_80", (7, 0), _LAYOUTS),
    _row(
        "wmma.mma.sync.aligned.{alayout}.{blayout}.{shape}{rounding}.{types}",
        ("m8n8k4",),
        (_same("f64", "f64"),),
        "sm_80",
        (7, 0),
        {**_LAYOUTS, "rounding": ("", ".rz", ".rm", ".rp")},
        ("rn",),
    ),
    _row(_SYNTAX + "{satfinite}", SHAPES, tuple(_same(fmt, "s32") for fmt in ("s8", "u8")), "sm_75", (6, 3), {**_LAYOUTS, **SATFINITE}),
    _row(
        "wmma.mma.sync.aligned.row.col.{shape}.{types}{satfinite}",
        ("m8n8k32",),
        tuple(_same(fmt, "s32") for fmt in ("s4", "u4")),
        "sm_75",
        (6, 3),
        SATFINITE,
    ),
    _row(
        "wmma.mma.{bit_op}.popc.sync.aligned.row.col.{shape}.{types}",
        ("m8n8k128",),
        (_same("b1", "s32"),),
        "sm_75",
        (6, 3),
        {"bit_op": ("xor",)},
    ),
    _row(
        "wmma.mma.{bit_op}.popc.sync.aligned.row.col.{shape}.{types}",
        ("m8n8k128",),
        (_same("b1", "s32"),),
        "sm_80",
        (7, 1),
        {"bit_op": ("and",)},
    ),
)
