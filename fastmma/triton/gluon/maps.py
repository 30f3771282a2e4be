"""Tensor maps: how the TMA sees a tensor in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TensorMap:
    """A tensor in memory, as a tensor map describes it.

    Attributes
    ----------
    address : int
    dtype : numpy.dtype
    shape, strides : tuple of int
        In elements.
    fills_nan : bool
        Whether NaN stands for what lies outside, else zeros.
    rounds : bool
        Whether numbers of f32 are rounded to tf32.
    steps, lower, upper : tuple of int
        In im2col mode, the distance of pixels in each dimension between images and channels, and the corners of the box that they keep
        within: the first position, and the distance of the last one from the tensor's end.
    """

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    fills_nan: bool = False
    rounds: bool = False
    steps: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    def array(self) -> NDArray[Any]:
        """Return the tensor itself."""
        width = self.dtype.itemsize
        count = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        memory = (ctypes.c_uint8 * (count * width)).from_address(self.address)
        flat = np.frombuffer(memoryview(memory), f"u{width}")
        return np.lib.stride_tricks.as_strided(flat, self.shape, [stride * width for stride in self.strides]).view(self.dtype)

    def _inside(self, start: tuple[int, ...], box: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the part of the tensor that a box covers, and the part of the box."""
        outer, inner = [], []
        for first, size, length in zip(start, box, self.shape, strict=True):
            low, high = max(first, 0), max(min(first + size, length), 0)
            high = max(low, high)
            outer.append(slice(low, high))
            inner.append(slice(low - first, high - first))
        return tuple(outer), tuple(inner)

    def load(self, start: tuple[int, ...], box: tuple[int, ...]) -> NDArray[Any]:
        """Load a box, filled where it leaves the tensor."""
        found = np.full(box, np.nan if self.fills_nan else 0, np.float32).astype(self.dtype)
        outer, inner = self._inside(start, box)
        found[inner] = self.array()[outer]
        return found

    def store(self, start: tuple[int, ...], values: NDArray[Any], join: Callable[[Any, Any], Any] | None = None) -> None:
        """Store what of a box lies in the tensor, or what it makes with what was there."""
        outer, inner = self._inside(start, values.shape)
        array = self.array()
        array[outer] = values[inner] if join is None else join(array[outer], values[inner])

    def load_pixels(self, start: tuple[int, ...], offsets: tuple[int, ...], box: tuple[int, ...]) -> NDArray[Any]:
        """Load a column of pixels: from a position on, within the box, image after image; the offsets move each of them.

        Parameters
        ----------
        start : tuple of int
            Image, position and channel of the first.
        offsets : tuple of int
            What is added to each position.
        box : tuple of int
            Pixels and channels.
        """
        image, *position, channel = start
        last = [size - 1 + corner for size, corner in zip(self.shape[1:-1], self.upper, strict=True)]
        found = []
        for _ in range(box[0]):
            moved = (place + offset for place, offset in zip(position, offsets, strict=True))
            found.append(self.load((image, *moved, channel), (1,) * (len(position) + 1) + (box[1],)).reshape(1, box[1]))
            for dimension in reversed(range(len(position))):
                position[dimension] += self.steps[dimension]
                if position[dimension] <= last[dimension]:
                    break
                position[dimension] = self.lower[dimension]
            else:
                image += 1
        return np.concatenate(found)
