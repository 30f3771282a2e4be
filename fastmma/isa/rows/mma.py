"""Rows of dense mma.sync (PTX: Multiply-and-Accumulate Instruction: mma)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastmma.isa.formats import FP8, NARROW
from fastmma.isa.fragments import quad_fragments, warp_fragments
from fastmma.isa.layout import Layout
from fastmma.isa.rows.family import SATFINITE, Family, pairs
from fastmma.isa.targets import BLACKWELL, CONSUMER_BLACKWELL, from_base

_ROUNDING = {"rounding": ("", ".rz", ".rm", ".rp")}
_SYNTAX = "mma.sync.aligned.{shape}.row.col.{types}"
_INTEGER = "mma.sync.aligned.{shape}.row.col{satfinite}.{types}"
_F64 = "mma.sync.aligned.{shape}.row.col.{types}{rounding}"
_KIND = "mma.sync.aligned.{shape}.row.col.kind::f8f6f4.{types}"
_BIT = "mma.sync.aligned.{shape}.row.col.{types}.{bit_op}.popc"


def _row(
    syntax: str,
    shapes: tuple[str, ...],
    types: tuple[str, ...],
    targets: tuple[str, ...],
    ptx: tuple[int, int],
    heading: str,
    modifiers: Mapping[str, tuple[str, ...]] | None = None,
    defaults: tuple[str, ...] = (),
    kind: str = "",
    fragments: Callable[[Any], dict[str, Layout]] = warp_fragments,
) -> Family:
    heading = f"Matrix Fragments for {heading}"
    return Family("mma", syntax, shapes, types, targets, ptx, heading, modifiers or {}, defaults, kind, fragments=fragments)


FAMILIES: tuple[Family, ...] = (
    _row(
        "mma.sync.aligned.{shape}.{alayout}.{blayout}.{types}",
        ("m8n8k4",),
        ("f16.f16.f16.f16", "f32.f16.f16.f16", "f32.f16.f16.f32"),
        from_base("sm_70"),
        (6, 4),
        "mma.m8n8k4 with .f16 floating point type",
        {"alayout": ("row", "col"), "blayout": ("row", "col")},
        fragments=quad_fragments,
    ),
    _row(_SYNTAX, ("m16n8k8",), pairs(("f16", "f32"), ("f16",)), from_base("sm_75"), (6, 5), "mma.m16n8k8"),
    _row(_SYNTAX, ("m16n8k16",), pairs(("f16", "f32"), ("f16",)), from_base("sm_80"), (7, 0), "mma.m16n8k16 with floating point type"),
    _row(_SYNTAX, ("m16n8k8",), pairs(("f32",), ("bf16",)), from_base("sm_80"), (7, 0), "mma.m16n8k8"),
    _row(_SYNTAX, ("m16n8k16",), pairs(("f32",), ("bf16",)), from_base("sm_80"), (7, 0), "mma.m16n8k16 with floating point type"),
    _row(_SYNTAX, ("m16n8k4",), pairs(("f32",), ("tf32",)), from_base("sm_80"), (7, 0), "mma.m16n8k4"),
    _row(_SYNTAX, ("m16n8k8",), pairs(("f32",), ("tf32",)), from_base("sm_80"), (7, 0), "mma.m16n8k8"),
    _row(_SYNTAX, ("m16n8k32",), pairs(("f32",), FP8), from_base("sm_89"), (8, 4), "mma.m16n8k32"),
    _row(_SYNTAX, ("m16n8k32",), pairs(("f16",), FP8), from_base("sm_89"), (8, 7), "mma.m16n8k32"),
    _row(_SYNTAX, ("m16n8k16",), pairs(("f16", "f32"), FP8), from_base("sm_89"), (8, 7), "mma.m16n8k16 with integer type"),
    # f8f6f4 with only 8-bit types is lowered on the data-centre parts; the narrower types need the machine instruction of sm_120
    _row(
        _KIND,
        ("m16n8k16",),
        pairs(("f16", "f32"), FP8),
        BLACKWELL,
        (8, 7),
        "mma.m16n8k16 with integer type",
        kind="f8f6f4",
    ),
    _row(
        _KIND,
        ("m16n8k32",),
        pairs(("f16", "f32"), FP8),
        BLACKWELL,
        (8, 7),
        "mma.m16n8k32",
        kind="f8f6f4",
    ),
    _row(
        _KIND,
        ("m16n8k32",),
        tuple(types for types in pairs(("f16", "f32"), NARROW) if types not in pairs(("f16", "f32"), FP8)),
        CONSUMER_BLACKWELL,
        (8, 7),
        "mma.m16n8k32",
        kind="f8f6f4",
    ),
    _row(
        _F64,
        ("m8n8k4",),
        pairs(("f64",), ("f64",)),
        from_base("sm_80"),
        (7, 0),
        "mma.m8n8k4 with .f64 floating point type",
        _ROUNDING,
        ("rn",),
    ),
    _row(_F64, ("m16n8k4",), pairs(("f64",), ("f64",)), from_base("sm_90"), (7, 8), "mma.m16n8k4", _ROUNDING, ("rn",)),
    _row(_F64, ("m16n8k8",), pairs(("f64",), ("f64",)), from_base("sm_90"), (7, 8), "mma.m16n8k8", _ROUNDING, ("rn",)),
    _row(
        _F64,
        ("m16n8k16",),
        pairs(("f64",), ("f64",)),
        from_base("sm_90"),
        (7, 8),
        "mma.m16n8k16 with floating point type",
        _ROUNDING,
        ("rn",),
    ),
    _row(_INTEGER, ("m8n8k16",), pairs(("s32",), ("s8", "u8")), from_base("sm_75"), (6, 5), "mma.m8n8k16", SATFINITE),
    _row(_INTEGER, ("m16n8k16",), pairs(("s32",), ("s8", "u8")), from_base("sm_80"), (7, 0), "mma.m16n8k16 with integer type", SATFINITE),
    _row(_INTEGER, ("m16n8k32",), pairs(("s32",), ("s8", "u8")), from_base("sm_80"), (7, 0), "mma.m16n8k32", SATFINITE),
    _row(_INTEGER, ("m8n8k32",), pairs(("s32",), ("s4", "u4")), from_base("sm_75"), (6, 5), "mma.m8n8k32", SATFINITE),
    _row(_INTEGER, ("m16n8k32",), pairs(("s32",), ("s4", "u4")), from_base("sm_80"), (7, 0), "mma.m16n8k32", SATFINITE),
    _row(_INTEGER, ("m16n8k64",), pairs(("s32",), ("s4", "u4")), from_base("sm_80"), (7, 0), "mma.m16n8k64", SATFINITE),
    _row(_BIT, ("m8n8k128",), pairs(("s32",), ("b1",)), from_base("sm_75"), (7, 0), "mma.m8n8k128", {"bit_op": ("xor",)}),
    _row(_BIT, ("m8n8k128",), pairs(("s32",), ("b1",)), from_base("sm_80"), (7, 1), "mma.m8n8k128", {"bit_op": ("and",)}),
    _row(_BIT, ("m16n8k128",), pairs(("s32",), ("b1",)), from_base("sm_80"), (7, 0), "mma.m16n8k128", {"bit_op": ("xor", "and")}),
    _row(_BIT, ("m16n8k256",), pairs(("s32",), ("b1",)), from_base("sm_80"), (7, 0), "mma.m16n8k256", {"bit_op": ("xor", "and")}),
)
