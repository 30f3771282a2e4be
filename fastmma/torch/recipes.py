"""torch's recipes of scaling, by number, and the operands of a scaled product as arrays with scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from fastmma.scaling import ScaledArray, Scheme, from_blocked
from fastmma.scaling.schemes import SCHEMES, scheme_of
from fastmma.torch.arrays import E2M1_PAIRS, to_numpy
from fastmma.torch.plans import UnknownError

TENSOR, ROW, B16, B32, L128, B128 = range(6)  # torch.nn.functional.ScalingType
SWIZZLED = 1  # torch.nn.functional.SwizzleType.SWIZZLE_32_4_4
SWIZZLING = (B16, B32)  # whose scales may be so
_MX = {torch.float8_e4m3fn: "mxfp8_e4m3", E2M1_PAIRS: "mxfp4"}
_SUFFIX = {
    torch.float8_e4m3fn: "",
    torch.float8_e5m2: "_e5m2",
    torch.float8_e4m3fnuz: "_e4m3fnuz",
    torch.float8_e5m2fnuz: "_e5m2fnuz",
}


class Recipe(NamedTuple):
    """A row of the table of recipes."""

    scheme: str  # for elements of 8 bits; their format is appended
    rows: int | None  # of a block; None: all
    columns: int | None


RECIPES = {
    TENSOR: Recipe("fp8_tensor", None, None),
    ROW: Recipe("fp8_row", 1, None),
    L128: Recipe("fp8_1x128", 1, 128),
    B128: Recipe("fp8_128x128", 128, 128),
}


class Blocks(NamedTuple):
    """The blocks of an operand (outer, K) whose elements share a scale.

    Attributes
    ----------
    row : Scheme
    block : (int, int)
    places : (int, int)
        The shape of the scales.
    padded : bool
        Whether torch pads them to whole fours of k.
    """

    row: Scheme
    block: tuple[int, int]
    places: tuple[int, int]
    padded: bool = False


def blocks_of(dtype: torch.dtype, shape: tuple[int, int], recipe: int) -> Blocks:
    """The blocks of an operand.

    Raises
    ------
    UnknownError
        If there is no such recipe for these elements.
    """
    rows, k = shape
    if recipe in (B16, B32):
        size = 16 if recipe == B16 else 32
        scheme = "nvfp4" if recipe == B16 else _MX.get(dtype, "mxfp8_e5m2")
        return Blocks(scheme_of(scheme), (1, size), (rows, -(-k // size)))
    row = RECIPES.get(recipe)
    if row is None or row.scheme + _SUFFIX.get(dtype, " ") not in SCHEMES:
        raise UnknownError(f"recipe {recipe} for {dtype} is not known")
    block = (max(rows, 1) if row.rows is None else row.rows, max(k, 1) if row.columns is None else row.columns)
    return Blocks(scheme_of(row.scheme + _SUFFIX[dtype]), block, (-(-rows // block[0]), -(-k // block[1])), recipe == B128)


def scaled_operand(elements: torch.Tensor, scales: Sequence[torch.Tensor], recipe: int, swizzled: bool) -> ScaledArray:
    """An operand (outer, K) of a scaled product, contracted along K.

    Parameters
    ----------
    elements : Tensor (outer, K), or (outer, K / 2) of float4_e2m1fn_x2
    scales : sequence of Tensor
        Of the blocks, and of the whole tensor where there are two levels.
    recipe : int
        A member of torch.nn.functional.ScalingType.
    swizzled : bool
        Whether the scales are in the 128x4 layout of cuBLAS.

    Raises
    ------
    UnknownError
        If there is no such recipe for these elements.
    """
    array, raw = to_numpy(elements), to_numpy(scales[0])
    blocks = blocks_of(elements.dtype, array.shape, recipe)
    overall = None
    if blocks.row.two_level:
        overall = np.float32(scales[1].item() if len(scales) > 1 else 1)
    if blocks.padded:
        raw = raw[: blocks.places[0], : blocks.places[1]]
    blocked = swizzled and recipe in SWIZZLING
    found = from_blocked(raw.reshape(-1), *blocks.places) if blocked else raw.reshape(blocks.places)
    return ScaledArray(array, found, blocks.block, 1, overall, blocks.row.name)
