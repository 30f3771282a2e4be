"""Read where arrays lie in memory, and choose it for results, as often as products are called."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes of the cache
DATA = object.__basicsize__  # where NumPy's ABI has the address of an array's elements: asking the array takes five times as long
_BYTE = np.dtype(np.uint8)  # a dtype is taken faster than the type of its elements
_WORTH_ALIGNING = 1 << 15  # bytes of results: fewer are written faster than memory for them is aligned
_word_at = ctypes.c_size_t.from_address


def address_of(array: NDArray[Any]) -> int:
    """Return where the first element of an array lies.

    Examples
    --------
    >>> import numpy as np
    >>> array = np.zeros(8)[2:]
    >>> address_of(array) == array.ctypes.data
    True
    """
    return _word_at(id(array) + DATA).value


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array that starts at a cache line, and has its last one for itself.

    Examples
    --------
    >>> address_of(aligned_empty((3, 5), "f4")) % LINE
    0
    """
    return _aligned(math.prod(shape) * np.dtype(dtype).itemsize + 2 * LINE, shape, dtype)


def maker_of_results(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], NDArray[Any]]:
    """Return what makes arrays for results, which start at a cache line if they are large enough."""
    size = math.prod(shape) * dtype.itemsize
    return partial(np.empty, shape, dtype) if size < _WORTH_ALIGNING else partial(_aligned, size + 2 * LINE, shape, dtype)


def _aligned(size: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array in memory of so many bytes."""
    memory = np.empty(size, _BYTE)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % LINE)
