"""A float32 matrix times a vector off the tensor cores: lanes of a GPU take their k in chains of `fma.rn.f32`, and are added in a tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NAN = 0x7FFFFFFF


def lane_product(a: NDArray[np.float32], x: NDArray[np.float32], lanes: int, adjacent: bool) -> NDArray[np.float32]:
    """The product of a (M, K) and x (K,).

    Parameters
    ----------
    a, x : float32 array (M, K) and (K,)
    lanes : int
        How many there are, a power of two. Each starts from +0 and takes its k in ascending order; then each of the first half adds the one
        half of them further, until one is left.
    adjacent : bool
        Whether a lane's k lie side by side, as many as are needed, or one of every `lanes`.

    Examples
    --------
    >>> x = np.full(24, 0.1, np.float32)
    >>> lane_product(x[None], x, 2, True).tolist() == lane_product(x[None], x, 32, False).tolist()
    False
    """
    rows, depth = a.shape
    each = -(-depth // lanes)
    left = np.zeros((rows, each * lanes), np.float32)
    right = np.full(each * lanes, -0.0, np.float32)  # products past the end are -0, which leave every sum as it is
    left[:, :depth], right[:depth] = a, x
    shape, taken = ((lanes, each), 1) if adjacent else ((each, lanes), 0)
    left, right = left.reshape(rows, *shape), right.reshape(shape)
    sums = np.zeros((rows, lanes), np.float32)
    for step in range(each):
        sums = fused(left.take(step, 1 + taken), right.take(step, taken), sums)
    with np.errstate(all="ignore"):
        while sums.shape[1] > 1:
            half = sums.shape[1] // 2
            sums = sums[:, :half] + sums[:, half:]
    result = np.ascontiguousarray(sums[:, 0])
    result.view(np.uint32)[np.isnan(result)] = _NAN
    return result


def fused(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """``a * b + c``, rounded once: an exact product in float64, and a sum that is rounded to odd before it is narrowed."""
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        wide = product + addend
        back = wide - product
        lost = (product - (wide - back)) + (addend - back)
        inexact = np.isfinite(wide) & (lost != 0) & (wide.view(np.uint64) & 1 == 0)
        nearer_zero = (lost < 0) == (wide > 0)
        odd = wide.view(np.int64) + np.where(nearer_zero, -1, 1)
        return np.where(inexact, odd.view(np.float64), wide).astype(np.float32)
