"""Shared memory and tensor memory: allocations, and descriptors of their parts as arrays of the places of elements."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.gluon.clocks import Log
from fastmma.triton.gluon.layouts import LANES, ROW, find_cells, find_ctas, find_holders, find_places
from fastmma.triton.gluon.types import Type


@dataclass
class Allocation:
    """Memory that one operation of a kernel allocates: its bytes, who accessed those of each CTA of a cluster, and how many each has."""

    name: str
    data: NDArray[np.uint8]
    logs: list[Log]
    span: int


@dataclass
class View:
    """A memory descriptor: for each element of its shape, the byte of the allocation at which it begins.

    A kernel may have one of what is not there and not use it, such as that of a barrier behind a predicate: `missing` names it. For each
    CTA of a cluster, `held` has the first one that holds the same part of it; what is the same is here once.
    """

    allocation: Allocation
    places: NDArray[np.int64]
    dtype: np.dtype[Any]
    space: str = "shared"
    children: dict[Any, View] = field(default_factory=dict)
    missing: str = ""
    held: tuple[int, ...] = (0,)
    reaches: dict[str, list[dict[int, int]]] = field(default_factory=dict)

    def _check(self) -> None:
        """Raise if nothing is there.

        Raises
        ------
        NotEmulatedError
        """
        if self.missing:
            raise NotEmulatedError(f"{self.missing} of {self.allocation.name} is read, where a GPU would find other bytes")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return self.places.shape

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """By CTA, a bit for each byte that it covers there."""
        self._check()
        ctas, offsets = np.divmod(self.places, self.allocation.span)
        parts = {first: self._mask(offsets[ctas == first]) for first in set(self.held)}
        return tuple(parts[first] for first in self.held)

    def reach(self, layout: str) -> list[dict[int, int]]:
        """Return, by CTA, the bytes of each CTA that its warps reach, if these hold the elements in registers as a layout says.

        Of what several CTAs hold, each reaches its own.
        """
        found: list[dict[int, int]] | None = self.reaches.get(layout)
        if found is None:
            ctas, shared = find_ctas(layout, self.shape)
            memory, offsets = np.divmod(self.places, self.allocation.span)
            free = len(self.held) - 1 & ~max(self.held)
            found = self.reaches[layout] = []
            for cta in range(len(self.held)):
                taken = ctas == cta & ~shared
                targets = memory[taken] | cta & free
                found.append({int(one): self._mask(offsets[taken][targets == one]) for one in np.unique(targets)})
        return found

    def _mask(self, offsets: NDArray[np.int64]) -> int:
        """Return a bit for each byte of elements that begin at some of a CTA."""
        found = np.zeros(self.allocation.span, bool)
        for byte in range(self.dtype.itemsize):
            found[offsets + byte] = True
        return int.from_bytes(np.packbits(found, bitorder="little").tobytes(), "little")

    @cached_property
    def _cells(self) -> NDArray[np.int64]:
        self._check()
        cells, rest = np.divmod(self.places, self.dtype.itemsize)
        if rest.any():
            raise NotEmulatedError(f"elements of {self.allocation.name} that lie across words")
        return cells

    @cached_property
    def start(self) -> int:
        """The byte of the first element, from which a layout counts."""
        self._check()
        return int(self.places.flat[0])

    @property
    def bytes(self) -> int:
        """How many bytes of it a CTA holds."""
        return int(self.places.size * self.dtype.itemsize) // len(set(self.held))

    def load(self) -> NDArray[Any]:
        """Load all elements."""
        return np.asarray(self.allocation.data.view(self.dtype)[self._cells])

    def store(self, values: NDArray[Any]) -> None:
        """Store all elements."""
        self.allocation.data.view(self.dtype)[self._cells] = values

    def part(self, key: Any, places: NDArray[np.int64]) -> View:
        """Return the descriptor of a part, the same each time."""
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = View(self.allocation, places, self.dtype, self.space, held=self.held)
        return found

    def index(self, number: int) -> View:
        """Return one of the tiles along the first dimension; where there is none, its use raises."""
        if number in self.children:
            return self.children[number]
        if not 0 <= number < self.shape[0]:
            return View(self.allocation, self.places[0], self.dtype, self.space, {}, f"tile {number} of {self.shape[0]}")
        return self.part(number, self.places[number])

    def slice(self, offsets: tuple[int, ...], shape: tuple[int, ...]) -> View:
        """Return the part of a shape that begins at some offsets."""
        taken = tuple(slice(offset, offset + size) for offset, size in zip(offsets, shape, strict=True))
        return self.part((offsets, shape), self.places[taken])

    def permute(self, order: tuple[int, ...]) -> View:
        """Return the descriptor with its dimensions in another order."""
        return self.part(("order", order), self.places.transpose(order))

    def reshape(self, shape: tuple[int, ...]) -> View:
        """Return the descriptor with another shape, its elements in their order."""
        return self.part(("shape", shape), self.places.reshape(shape))

    def reinterpret(self, kind: Type) -> View:
        """Return what lies at its beginning, with another type, shape and layout.

        Raises
        ------
        NotEmulatedError
            If that is more than was allocated.
        """
        found = self.children.get(kind)
        if found is None:
            if self.space == "tensor":
                places = find_cells(kind.layout, kind.shape, kind.dtype.itemsize)[0] + self.start
            else:
                places = find_places(kind.layout, kind.shape, kind.dtype.itemsize, self.allocation.span)[0] + self.start
            if places.max() + kind.dtype.itemsize > self.allocation.data.size:
                raise NotEmulatedError(f"{self.allocation.name} reinterpreted beyond its end")
            found = self.children[kind] = View(self.allocation, places, kind.dtype, self.space, held=find_holders(kind.layout))
        return found


def allocate(kind: Type, name: str) -> View:
    """Allocate memory for a descriptor's type; what is in it before is not defined, and zeros here."""
    width = kind.dtype.itemsize
    if kind.space == "tensor":
        places, columns = find_cells(kind.layout, kind.shape, width)
        span = LANES * ROW
        if columns * 4 > ROW:
            raise NotEmulatedError(f"{name} takes more than the 512 columns of tensor memory")
    else:
        span = math.ceil(find_places(kind.layout, kind.shape, width)[1] / 16) * 16
        places, _ = find_places(kind.layout, kind.shape, width, span)
    data, held = np.zeros(math.ceil((int(places.max()) + width) / span) * span, np.uint8), find_holders(kind.layout)
    logs = [Log(name)] if len(held) == 1 else [Log(f"{name} of CTA {cta}") for cta in range(len(held))]
    return View(Allocation(name, data, logs, span), places, kind.dtype, kind.space, held=held)
