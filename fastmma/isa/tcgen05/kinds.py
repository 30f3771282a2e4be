"""The kinds of tcgen05.mma: element types, shapes and scales (PTX: Tensor Core 5th Generation, Matrix shape and Data types)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Kind:
    """One ``.kind::`` of tcgen05.mma.

    Attributes
    ----------
    k : int
        Of a dense instruction; a sparse one has twice as much.
    codes : mapping of str to int
        How the instruction descriptor names the types of A and B.
    dtypes : tuple of str
        Types of D.
    layout : str
        Which of the descriptor's three forms it has: ``"plain"``, ``"mx8"`` or ``"mx4"``.
    ptx : (int, int)
        The first version of PTX that has it.
    vectors : mapping of str to int
        With block scaling: what may stand for the size of the scale vector, and the scales of a row that it means.
    stypes : mapping of str to tuple of int
        The formats of scales, and how many of them a row may have.
    same : bool
        Whether A and B have one type.
    """

    name: str
    k: int
    codes: Mapping[str, int]
    dtypes: tuple[str, ...]
    layout: str = "plain"
    ptx: tuple[int, int] = (8, 6)
    vectors: Mapping[str, int] | None = None
    stypes: Mapping[str, tuple[int, ...]] | None = None
    same: bool = False


_NARROW = {"e4m3": 0, "e5m2": 1, "e3m2": 4, "e2m3": 3, "e2m1": 5}  # PTX leaves 2 out

KINDS = {
    kind.name: kind
    for kind in (
        Kind("f16", 16, {"f16": 0, "bf16": 1}, ("f32", "f16"), same=True),
        Kind("tf32", 8, {"tf32": 2}, ("f32",), same=True),
        Kind("f8f6f4", 32, _NARROW, ("f32", "f16")),
        Kind("i8", 32, {"u8": 0, "s8": 1}, ("s32",)),
        Kind("mxf8f6f4", 32, _NARROW, ("f32",), "mx8", vectors={"": 1, "block32": 1, "scale_vec::1X": 1}, stypes={"ue8m0": (1,)}),
        Kind("mxf4", 64, {"e2m1": 1}, ("f32",), "mx4", vectors={"": 2, "block32": 2, "scale_vec::2X": 2}, stypes={"ue8m0": (2,)}),
        Kind(
            "mxf4nvf4",
            64,
            {"e2m1": 1},
            ("f32",),
            "mx4",
            (8, 7),
            {"block16": 4, "scale_vec::4X": 4, "block32": 2, "scale_vec::2X": 2},
            {"ue4m3": (4,), "ue8m0": (2, 4)},
        ),
    )
}
K96 = 96  # of mxf4 and mxf4nvf4 without zeros, on sm_103a


def rows(kind: Kind, cta_group: int, ws: bool, sparse: bool, k: int) -> tuple[int, ...]:
    """The M that an instruction may have."""
    if kind.vectors is None:
        return (32, 64, 128) if ws else (64, 128) if cta_group == 1 else (128, 256)
    if cta_group == 1:
        return (128,)
    return (256,) if sparse or k == K96 else (128, 256)


def columns(kind: Kind, cta_group: int, ws: bool, sparse: bool, k: int) -> tuple[int, ...]:
    """The N that an instruction may have."""
    if ws:
        return (64, 128) if sparse else (64, 128, 256)
    if kind.name == "i8":
        return (8, 16, 24, *range(32, 257, 16)) if cta_group == 1 else tuple(range(32, 257, 32))
    step = 16 if cta_group == 2 or k == K96 else 8
    return tuple(range(step, 257, step))
