"""Scratch memory of the kernels: parts that start at cache lines, as a vector that straddles two costs twice."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host import addresses

LINE = addresses.LINE
_MOST_KEPT = 1 << 28  # bytes


class AlignedMemory:
    """Memory in parts of these sizes in bytes; nothing before a part or past its end, filled up to a cache line, is its own."""

    def __init__(self, *sizes: int, zeroed: bool = False) -> None:
        padded = [-(-size // LINE) * LINE for size in sizes]
        self._bytes: NDArray[np.uint8] = (np.zeros if zeroed else np.empty)(sum(padded) + LINE, np.uint8)
        address: int = self._bytes.__array_interface__["data"][0]
        self._start, self.size = -address % LINE, sum(padded)
        address += self._start
        self.addresses: list[int] = []
        for size in padded:
            self.addresses.append(address)
            address += size

    @property
    def address(self) -> int:
        """Where the first part starts."""
        return self.addresses[0]

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """The first part as an array."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        array: NDArray[Any] = self._bytes[self._start : self._start + size].view(dtype).reshape(shape)
        return array


class KeptMemory:
    """Memory of the last product, at most 256 MB, for the next one: to map it anew takes longer than to fill it."""

    def __init__(self) -> None:
        self._kept: deque[AlignedMemory] = deque(maxlen=1)

    def take(self, size: int) -> AlignedMemory:
        """Take memory of at least so many bytes; who asks while others have what is kept gets new memory."""
        try:
            kept = self._kept.pop()
        except IndexError:
            return AlignedMemory(size)
        return kept if kept.size >= size else AlignedMemory(size)

    def give_back(self, memory: AlignedMemory) -> None:
        """Keep memory that nobody uses any more."""
        if memory.size <= _MOST_KEPT:
            self._kept.append(memory)

    @contextmanager
    def lent(self, size: int) -> Iterator[int]:
        """Lend the address of so many bytes; after an exception they are not kept."""
        memory = self.take(size)
        yield memory.address
        self.give_back(memory)


def places_of(*sizes: int) -> list[int]:
    """Return where parts of these sizes begin that follow one another, each at a cache line, and where the last one ends.

    Examples
    --------
    >>> places_of(100, 64)
    [0, 128, 192]
    """
    return [0, *accumulate(-(-size // LINE) * LINE for size in sizes)]
