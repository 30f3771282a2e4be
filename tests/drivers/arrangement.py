"""The same array in any memory: orders, strides, steps, offsets, byte orders, and exactly as many bytes as it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Place = Callable[[int], Array]  # so many bytes of memory, as an array of uint8


def anywhere(size: int) -> Array:
    """Bytes that hold something."""
    return np.full(size, 0xA5, np.uint8)


@dataclass(frozen=True)
class Arrangement:
    """How an array lies in memory."""

    order: str = "C"
    step: int = 1  # between neighbours of the fastest dimension, in elements
    gap: int = 0  # elements between its lines
    reversed: tuple[int, ...] = ()  # dimensions that run backwards
    repeated: int | None = None  # a dimension of stride 0
    swapped: bool = False  # the other byte order
    offset: int = 0  # bytes before the first element, which may leave it unaligned
    writeable: bool = True

    @property
    def counted(self) -> tuple[str, ...]:
        """What it is called in counts."""
        marks = {
            "another order": self.order != "C",
            "steps": self.step > 1,
            "gaps": self.gap > 0,
            "negative strides": bool(self.reversed),
            "stride 0": self.repeated is not None,
            "other byte order": self.swapped,
            "unaligned": self.offset > 0,
            "read-only": not self.writeable,
        }
        return tuple(mark for mark, present in marks.items() if present)

    def size(self, values: Array) -> int:
        """Bytes that it takes."""
        found: list[Array] = []
        self.place(values, lambda size: found.append(anywhere(size)) or found[0])  # type: ignore[func-returns-value]
        return len(found[0])

    def place(self, values: Array, memory: Place) -> Array:
        """The values in memory of this kind; of a repeated dimension the first ones, for all."""
        dtype = values.dtype.newbyteorder() if self.swapped else values.dtype
        dimensions = range(values.ndim)
        order = list(dimensions if self.order == "F" else reversed(dimensions))  # the fastest first
        strides = [0] * values.ndim
        reach, step = 1, self.step
        for dimension in order:
            if dimension == self.repeated:
                continue
            strides[dimension] = step * (-1 if dimension in self.reversed else 1)
            reach += step * (values.shape[dimension] - 1)
            step = step * values.shape[dimension] + self.gap
        size = reach if values.size else 0
        start = sum(-stride * (extent - 1) for stride, extent in zip(strides, values.shape, strict=True) if stride < 0)
        held = memory(self.offset + size * dtype.itemsize)[self.offset :]
        if not values.size:
            return held[:0].view(dtype).reshape(values.shape)
        placed = np.ndarray(values.shape, dtype, held, start * dtype.itemsize, [stride * dtype.itemsize for stride in strides])
        source = values
        if self.repeated is not None:
            source = np.broadcast_to(values.take([0], self.repeated), values.shape)
        placed[...] = source
        placed.flags.writeable = self.writeable
        return placed


def drawn(
    rng: np.random.Generator, array: Array, *, is_result: bool = False, native: bool = False, repeats: bool = True, inner: bool = False
) -> Arrangement:
    """An arrangement for an array; one third of all are plain. Those of `inner` arrays keep all values, aligned and native."""
    if rng.random() < 0.33:
        return Arrangement()
    native, repeats = native or inner, repeats and not inner
    backwards = tuple(dimension for dimension in range(array.ndim) if rng.random() < 0.2)
    repeated = int(rng.integers(array.ndim)) if array.ndim and repeats and not is_result and rng.random() < 0.12 else None
    swaps = array.dtype.kind in "iuf" and array.itemsize > 1 and not is_result and not native
    return Arrangement(
        order="F" if rng.random() < 0.4 else "C",
        step=int(rng.choice([1, 1, 2, 3])),
        gap=int(rng.choice([0, 0, 1, 5])),
        reversed=backwards,
        repeated=repeated,
        swapped=bool(swaps and rng.random() < 0.15),
        offset=int(array.itemsize > 1 and not inner and rng.random() < 0.1),
        writeable=bool(is_result or rng.random() < 0.8),
    )
