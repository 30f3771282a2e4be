"""A float32 matrix times a vector off the tensor cores: lanes of a GPU take their k in chains of `fma.rn.f32`, and are added in a tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.products.lanes import Lanes

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
    order = Lanes(lanes, 0 if adjacent else 1)
    places = order.places(a.shape[1])
    # the place -1 is none: there are 0 and -0, whose product leaves every sum as it is
    steps = np.moveaxis(places, -1, 0)
    left = np.concatenate([a, np.zeros((len(a), 1), np.float32)], 1).take(steps, 1)
    right = np.append(x, np.float32(-0.0))[steps]
    sums = np.zeros((len(a), *places.shape[:-1]), np.float32)
    for step in range(len(steps)):
        sums = fused(left[:, step], right[step], sums)
    result = np.ascontiguousarray(order.join(sums))
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
