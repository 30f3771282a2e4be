"""Scratch memory of the kernels: parts that start at cache lines, as a vector that straddles two costs twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host import addresses

LINE = addresses.LINE


class AlignedMemory:
    """Memory in parts of these sizes in bytes; nothing before a part or past its end, filled up to a cache line, is its own."""

    def __init__(self, *sizes: int, zeroed: bool = False) -> None:
        padded = [-(-size // LINE) * LINE for size in sizes]
        self._bytes: NDArray[np.uint8] = (np.zeros if zeroed else np.empty)(sum(padded) + LINE, np.uint8)
        address: int = self._bytes.__array_interface__["data"][0]
        self._start = -address % LINE
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
