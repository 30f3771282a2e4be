"""Rows of block-scaled mma, dense and sparse (PTX: Block Scaling). The fifth type is that of the scales."""

from __future__ import annotations

from fastmma.isa.formats import NARROW
from fastmma.isa.rows.family import Family, pairs
from fastmma.isa.targets import CONSUMER_BLACKWELL

_DENSE = "mma.sync.aligned.{shape}.row.col.kind::"
_SPARSE = "mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.kind::"
# sparse mxf4 and mxf4nvf4 are architecture-specific: not even the family target takes them
_EXACT_CONSUMER = ("sm_120a", "sm_121a")
_MXF8F6F4 = tuple(f"{types}.ue8m0" for types in pairs(("f32",), NARROW))
_E2M1 = "f32.e2m1.e2m1.f32."


def _row(
    syntax: str,
    kind: str,
    scale_vec: str,
    default: str,
    shape: str,
    types: tuple[str, ...],
    targets: tuple[str, ...],
    heading: str,
    ptx: tuple[int, int] = (8, 7),
) -> Family:
    return Family(
        "mma",
        f"{syntax}{kind}.block_scale{scale_vec}.{{types}}",
        (shape,),
        types,
        targets,
        ptx,
        heading,
        defaults=(default,) if default else (),
        kind=kind,
        scale_vec_size=int((scale_vec or default).removesuffix("X")[-1]),
    )


def _rows(syntax: str, shapes: tuple[str, str], targets: tuple[str, ...], headings: tuple[str, str]) -> tuple[Family, ...]:
    """The kinds of scaling; `shapes` and `headings` are those of mxf8f6f4 and of the 4-bit kinds."""
    return (
        _row(syntax, "mxf8f6f4", "", "scale_vec::1X", shapes[0], _MXF8F6F4, CONSUMER_BLACKWELL, headings[0]),
        _row(syntax, "mxf4", "", "scale_vec::2X", shapes[1], (_E2M1 + "ue8m0",), targets, headings[1]),
        _row(syntax, "mxf4nvf4", ".scale_vec::2X", "", shapes[1], (_E2M1 + "ue8m0",), targets, headings[1]),
        _row(syntax, "mxf4nvf4", ".scale_vec::4X", "", shapes[1], (_E2M1 + "ue4m3",), targets, headings[1]),
        _row(syntax, "mxf4nvf4", ".scale_vec::4X", "", shapes[1], (_E2M1 + "ue8m0",), targets, headings[1], (9, 1)),
    )


FAMILIES: tuple[Family, ...] = (
    *_rows(
        _DENSE, ("m16n8k32", "m16n8k64"), CONSUMER_BLACKWELL, ("Matrix Fragments for mma.m16n8k32", "Matrix Fragments for mma.m16n8k64")
    ),
    *_rows(_SPARSE, ("m16n8k64", "m16n8k128"), _EXACT_CONSUMER, ("Matrix fragments for sparse mma",) * 2),
)
