"""Random bits that stay the same for ever: what a recording drew, any version of NumPy draws again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma.host.threads import parallel_for, thread_count

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_PIECE = 1 << 14  # numbers at a time, so that they stay in a core's cache

_STEPS = _STEP * np.arange(1, _PIECE + 1, dtype=np.uint64)

Change = Callable[[NDArray[np.uint64]], NDArray[Any]]


def _after(state: np.uint64, count: int) -> np.uint64:
    """The state after `count` more numbers."""
    return np.uint64((int(state) + int(_STEP) * count) & 0xFFFF_FFFF_FFFF_FFFF)


def _mix(state: np.uint64, count: int) -> NDArray[np.uint64]:
    """The next numbers after a state, at most a piece of them."""
    mixed = _STEPS[:count] + state
    for shift, factor in _MIX:
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> np.uint64(31)
    return mixed


class Stream:
    """SplitMix64, with the two methods of `numpy.random.Generator` that inputs are drawn with.

    Parameters
    ----------
    *key : int or str
        Whatever names the stream: other keys give independent streams.

    Notes
    -----
    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014. A range that is no power of two is reached by a
    remainder, so that its numbers are not exactly equally likely.

    Examples
    --------
    >>> Stream("example", 1).integers(0, 10, 5).tolist() == Stream("example", 1).integers(0, 10, 5).tolist()
    True
    """

    def __init__(self, *key: int | str) -> None:
        import hashlib  # which takes time, and is needed by few

        digest = hashlib.sha256("|".join(map(str, key)).encode()).digest()
        self.state = np.uint64(int.from_bytes(digest[:8], "little"))

    def skip(self, count: int) -> None:
        """Leave out the next `count` numbers."""
        self.state = _after(self.state, count)

    def _draw(self, count: int, dtype: DTypeLike, change: Change) -> NDArray[Any]:
        """The next `count` numbers, each changed to one of another type."""
        state, drawn = self.state, np.empty(count, dtype)

        def work(start: int, stop: int, _worker: int) -> None:
            drawn[start:stop] = change(_mix(_after(state, start), stop - start))

        parallel_for(work, count, thread_count(), _PIECE)
        self.skip(count)
        return drawn

    def bits(self, count: int) -> NDArray[np.uint64]:
        """The next `count` numbers of 64 bits."""
        return self._draw(count, np.uint64, lambda mixed: mixed)

    def integers(self, low: int, high: int, size: int | tuple[int, ...], dtype: DTypeLike = np.int64) -> NDArray[Any]:
        """Integers from `low` to below `high`, at most 2**63 of them."""
        change, first = _below(high - low), np.int64(low)
        count = math.prod(size) if isinstance(size, tuple) else size
        return self._draw(count, dtype, change if low == 0 else lambda mixed: change(mixed).view(np.int64) + first).reshape(size)

    def choice(self, values: NDArray[Any], size: int | tuple[int, ...]) -> NDArray[Any]:
        """Elements of a one-dimensional array, with replacement."""
        change, found = _below(len(values)), np.asarray(values)
        count = math.prod(size) if isinstance(size, tuple) else size
        return self._draw(count, found.dtype, lambda mixed: found[change(mixed).view(np.int64)]).reshape(size)


def _below(count: int) -> Change:
    """The remainder of a division by `count`."""
    divisor = np.uint64(count)
    if count & (count - 1) == 0:
        mask = np.uint64(count - 1)
        return lambda mixed: mixed & mask
    # NumPy divides by a number faster than it takes a remainder
    return lambda mixed: mixed - mixed // divisor * divisor
