"""Rows of sparse mma (PTX: Multiply-and-Accumulate Instruction: mma.sp / mma.sp::ordered_metadata)."""

from __future__ import annotations

from collections.abc import Mapping

from fastmma.isa.formats import FP8, NARROW
from fastmma.isa.rows.family import SATFINITE, Family, pairs
from fastmma.isa.targets import BLACKWELL, CONSUMER_BLACKWELL, from_base

_VARIANTS = {"variant": ("sp", "sp::ordered_metadata")}
_ORDERED = {"variant": ("sp::ordered_metadata",)}
_SPARSE_SATFINITE = {**_VARIANTS, **SATFINITE}
_SYNTAX = "mma.{variant}.sync.aligned.{shape}.row.col.{types}"
_INTEGER = "mma.{variant}.sync.aligned.{shape}.row.col{satfinite}.{types}"
_F8F6F4 = "mma.{variant}.sync.aligned.{shape}.row.col.kind::f8f6f4.{types}"


def _row(
    syntax: str,
    shapes: tuple[str, ...],
    types: tuple[str, ...],
    targets: tuple[str, ...],
    ptx: tuple[int, int],
    modifiers: Mapping[str, tuple[str, ...]],
    kind: str = "",
) -> Family:
    return Family("mma", syntax, shapes, types, targets, ptx, "Matrix fragments for sparse mma", modifiers, kind=kind)


FAMILIES: tuple[Family, ...] = (
    _row(_SYNTAX, ("m16n8k16", "m16n8k32"), pairs(("f16", "f32"), ("f16",)), from_base("sm_80"), (7, 1), _VARIANTS),
    _row(_SYNTAX, ("m16n8k16", "m16n8k32"), pairs(("f32",), ("bf16",)), from_base("sm_80"), (7, 1), _VARIANTS),
    _row(_SYNTAX, ("m16n8k8", "m16n8k16"), pairs(("f32",), ("tf32",)), from_base("sm_80"), (7, 1), _VARIANTS),
    _row(_SYNTAX, ("m16n8k64",), pairs(("f32",), FP8), from_base("sm_89"), (8, 4), _VARIANTS),
    _row(_SYNTAX, ("m16n8k64",), pairs(("f16",), FP8), CONSUMER_BLACKWELL, (8, 7), _ORDERED),
    _row(
        _F8F6F4,
        ("m16n8k64",),
        pairs(("f32",), FP8),
        BLACKWELL,
        (8, 7),
        _ORDERED,
        "f8f6f4",
    ),
    _row(_F8F6F4, ("m16n8k64",), pairs(("f16",), FP8), CONSUMER_BLACKWELL, (8, 7), _ORDERED, "f8f6f4"),
    _row(
        _F8F6F4,
        ("m16n8k64",),
        tuple(types for types in pairs(("f16", "f32"), NARROW) if types not in pairs(("f16", "f32"), FP8)),
        CONSUMER_BLACKWELL,
        (8, 7),
        _ORDERED,
        "f8f6f4",
    ),
    _row(_INTEGER, ("m16n8k32", "m16n8k64"), pairs(("s32",), ("s8", "u8")), from_base("sm_80"), (7, 1), _SPARSE_SATFINITE),
    _row(_INTEGER, ("m16n8k64", "m16n8k128"), pairs(("s32",), ("s4", "u4")), from_base("sm_80"), (7, 1), _SPARSE_SATFINITE),
)
