"""The largest elements of short rows as torch's CUDA kernel gives them where some are equal (``TensorTopK.cu``, PyTorch 2.11).

The kernel finds the last number that is taken, takes all larger elements and then the first of those that are equal to it, and sorts them:
of two that are equal the later one comes first. More than two are sorted by a network, in an order that was not recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.functions.arithmetic import widen
from fastmma.host.errors import NotEmulatedError

_COUNT, _ROW = 2, 64  # what was recorded: at most two elements, of few


def take_largest(x: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Compute ``aten::topk`` along the last axis, sorted.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (..., elements)
    count : int

    Returns
    -------
    The elements, and their places.

    Raises
    ------
    NotEmulatedError
        For more than two elements, for long rows, and for NaNs.

    Examples
    --------
    >>> values, places = take_largest(np.float32([[3, 1, 3, 2], [2, 1, 0, 1]]), 2)
    >>> values.tolist(), places.tolist()
    ([[3.0, 3.0], [2.0, 1.0]], [[2, 0], [0, 1]])
    """
    numbers = widen(x)
    if count > _COUNT or not count <= x.shape[-1] <= _ROW or np.isnan(numbers).any():
        raise NotEmulatedError("the order of equal elements is known of at most two of short rows")
    places = np.argsort(-numbers, -1, kind="stable")[..., :count]
    found = np.take_along_axis(numbers, places, -1)
    places = np.where((found == found[..., :1]).all(-1, keepdims=True), places[..., ::-1], places)
    return np.take_along_axis(x, places, -1), np.ascontiguousarray(places, np.int64)
