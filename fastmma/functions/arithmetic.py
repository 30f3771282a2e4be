"""Arithmetic of arrays as a CUDA thread does it: fused multiply-adds, widening, and rounding with a GPU's NaN."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma.kernels.functions.sums import multiply_add

Floats = NDArray[np.float32]

F32 = np.dtype(np.float32)
_CODES = {F32: np.uint32, np.dtype(np.float16): np.uint16, np.dtype(ml_dtypes.bfloat16): np.uint16}


def fuse(a: Any, b: Any, c: Any) -> Floats:
    """Return ``a * b + c`` of f32 arrays, rounded once.

    Examples
    --------
    >>> fuse(np.float32([3]), np.float32([2**-24]), np.float32([1])).tolist()
    [1.000000238418579]
    """
    arrays = [np.asarray(each, np.float32) for each in (a, b, c)]
    out = np.empty(np.broadcast_shapes(*(each.shape for each in arrays)), np.float32)
    whole = (each if each.shape == out.shape else np.broadcast_to(each, out.shape).copy() for each in arrays)
    multiply_add(*(np.ascontiguousarray(each).reshape(-1) for each in whole), out.reshape(-1))
    return out


def widen(x: NDArray[Any]) -> Floats:
    """Return the f32 numbers of an array of f32, f16 or bf16."""
    return np.asarray(x).astype(np.float32, copy=False)


def round_to(x: Any, dtype: DTypeLike) -> NDArray[Any]:
    """Round f32 to nearest into f32, f16 or bf16; NaN has the bits that a GPU gives it.

    Examples
    --------
    >>> round_to(np.float32([np.nan, 1e6]), np.float16).view(np.uint16).tolist()
    [32767, 31744]
    """
    wanted, values = np.dtype(dtype), np.asarray(x, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(wanted)
        if values.size and np.isnan(values.min()):
            codes = result.view(_CODES[wanted])
            codes[np.isnan(values)] = np.iinfo(codes.dtype).max >> 1
    return result
