"""Arithmetic of arrays as a CUDA thread does it: fused multiply-adds, widening, and rounding with a GPU's NaN."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma import kernels

Floats = NDArray[np.float32]

F32 = np.dtype(np.float32)
_SMALLEST = np.finfo(np.float32).smallest_normal
BITS = {F32: 24.0, np.dtype(np.float16): 11.0, np.dtype(ml_dtypes.bfloat16): 8.0}  # of a significand


def apply(name: str, *operands: Any, **choices: Any) -> NDArray[Any]:
    """Apply a formula to each element, as `fastmma.kernels.functions.apply` does."""
    found: NDArray[Any] = kernels.functions.apply.apply(name, *operands, **choices)
    return found


def fuse(a: Any, b: Any, c: Any) -> Floats:
    """Return ``a * b + c`` of f32 arrays, rounded once.

    Examples
    --------
    >>> fuse(np.float32([3]), np.float32([2**-24]), np.float32([1])).tolist()
    [1.000000238418579]
    """
    arrays = [np.asarray(each, np.float32) for each in (a, b, c)]
    return apply("fused", *arrays)


def widen(x: NDArray[Any]) -> Floats:
    """Return the f32 numbers of an array of f32, f16 or bf16."""
    array = np.asarray(x)
    return array if array.dtype == F32 else apply("rounded", array, out_dtype=F32)


def round_to(x: Any, dtype: DTypeLike) -> NDArray[Any]:
    """Round f32 to nearest into f32, f16 or bf16; NaN has the bits that a GPU gives it.

    Examples
    --------
    >>> round_to(np.float32([np.nan, 1e6]), np.float16).view(np.uint16).tolist()
    [32767, 31744]
    """
    return apply("rounded", np.asarray(x, np.float32), out_dtype=dtype)


def flush(x: Floats) -> Floats:
    """Replace f32 numbers below the normal ones by zeros of their sign.

    Examples
    --------
    >>> flush(np.float32([1e-39, -1e-39, 2])).tolist()
    [0.0, -0.0, 2.0]
    """
    small = np.abs(x) < _SMALLEST
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x
