"""torch's recipes of scaling, by number, and the operands of a scaled product as arrays with scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np
import torch

from fastmma.scaling import ScaledArray, from_blocked
from fastmma.torch.arrays import to_numpy
from fastmma.torch.plans import UnknownError

TENSOR, ROW, B16, B32, L128, B128 = range(6)  # torch.nn.functional.ScalingType
SWIZZLED = 1  # torch.nn.functional.SwizzleType.SWIZZLE_32_4_4
_SUFFIX = {torch.float8_e4m3fn: "", torch.float8_e5m2: "_e5m2"}


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
    array = to_numpy(elements)
    rows, k = array.shape
    raw = to_numpy(scales[0])
    if recipe in (B16, B32):
        size = 16 if recipe == B16 else 32
        places = (rows, -(-k // size))
        found = from_blocked(raw.reshape(-1), *places) if swizzled else raw.reshape(places)
        overall = None
        if recipe == B16:
            scheme, overall = "nvfp4", np.float32(scales[1].item() if len(scales) > 1 else 1)
        elif array.dtype == ml_dtypes.float4_e2m1fn:
            scheme = "mxfp4"
        else:
            scheme = "mxfp8_e4m3" if elements.dtype is torch.float8_e4m3fn else "mxfp8_e5m2"
        return ScaledArray(array, found, (1, size), 1, overall, scheme)
    row = RECIPES.get(recipe)
    if row is None or elements.dtype not in _SUFFIX:
        raise UnknownError(f"recipe {recipe} for {elements.dtype} is not known")
    block = (max(rows, 1) if row.rows is None else row.rows, max(k, 1) if row.columns is None else row.columns)
    shape = (-(-rows // block[0]), -(-k // block[1]))
    if recipe == B128:  # torch pads them to whole fours of k
        raw = raw[: shape[0], : shape[1]]
    return ScaledArray(array, raw.reshape(shape), block, 1, None, row.scheme + _SUFFIX[elements.dtype])
