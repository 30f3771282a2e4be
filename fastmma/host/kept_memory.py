"""Memory of large results, kept for the next: to have as much cleared and mapped by the system takes a fifth of a call that fills it."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST, MOST = 1 << 25, 1 << 27  # bytes: what malloc gives back at once when it is freed; what is kept at most, of one result

_kept: deque[NDArray[Any]] = deque(maxlen=1)


class _Loan:
    """Memory that is kept again when the last array that lies in it is gone."""

    def __init__(self, memory: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._memory = memory
        self.__array_interface__ = {**memory.__array_interface__, "shape": shape, "typestr": dtype.str, "descr": [("", dtype.str)]}

    def __del__(self, kept: deque[NDArray[Any]] = _kept) -> None:
        kept.append(self._memory)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`numpy.empty`, in memory of an earlier array where there is some of about that size."""
    size = math.prod(shape) * dtype.itemsize
    if not LEAST <= size <= MOST:
        return np.empty(shape, dtype)
    try:
        memory = _kept.pop()
    except IndexError:
        memory = np.empty(size, np.uint8)
    if not size <= memory.nbytes <= 2 * size:
        memory = np.empty(size, np.uint8)
    return np.asarray(_Loan(memory, shape, dtype))
