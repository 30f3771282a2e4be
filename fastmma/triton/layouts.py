"""Triton's layouts of the elements of a tensor: in registers, lanes, warps and CTAs, bit by bit of a coordinate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LISTS = re.compile(r"(\w+) = \[([\d, ]*)\]")
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.+)\}>$")
_CLUSTER = re.compile(r"CGALayout = \[(\[.*?\])\]")
_ALIAS = re.compile(r"^(#\w+) = (#ttg\.\w+<\{.*\}>)$", re.MULTILINE)


@dataclass
class _Growing:
    """Owners of coordinate bits, from the lowest, until the tensor's size is reached."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        self.owners: list[list[str]] = [[] for _ in self.shape]
        # dimension and bit of a coordinate that each bit of the number of a register, lane, warp or CTA is, lowest first
        self.bits: dict[str, list[tuple[int, int]]] = {"register": [], "lane": [], "warp": [], "block": []}

    def add(self, dimension: int, owner: str, count: int) -> None:
        """The next coordinates, `count` of them, belong to an owner; beyond the tensor they repeat it."""
        room = (self.shape[dimension].bit_length() - 1) - len(self.owners[dimension])
        for _ in range(min(room, count.bit_length() - 1)):
            self.bits[owner].append((dimension, len(self.owners[dimension])))
            self.owners[dimension].append(owner)

    def fill(self, order: list[int], shape: tuple[int, ...], cluster: list[list[int]]) -> None:
        """Place what is left of a CTA's part in further registers, and the parts of the tensor in the CTAs of a cluster."""
        for dimension in order:
            self.add(dimension, "register", self.shape[dimension])
        self.shape = shape
        for vector in cluster:
            for dimension, value in enumerate(vector):
                self.add(dimension, "block", 2 if value else 1)


def aliases(ttgir: str) -> dict[str, str]:
    """The layouts that a module names."""
    return dict(_ALIAS.findall(ttgir))


def _grown(layout: str, shape: tuple[int, ...], named: dict[str, str]) -> _Growing | None:
    layout = named.get(layout, layout)
    inner = _SLICE.match(layout)
    if inner:
        dimension = int(inner[1])
        parent = _grown(inner[2], (*shape[:dimension], 1, *shape[dimension:]), named)
        if parent is not None:
            del parent.owners[dimension]
            parent.bits = {name: [(one - (one > dimension), bit) for one, bit in bits] for name, bits in parent.bits.items()}
        return parent
    lists = {name: [int(value) for value in values.split(",")] for name, values in _LISTS.findall(layout) if values}
    found = _CLUSTER.search(layout)
    cluster = [[int(value) for value in vector.split(",")] for vector in re.findall(r"[\d, ]+\d|\d", found[1])] if found else []
    splits = [sum(1 for vector in cluster if vector[dimension]) for dimension in range(len(shape))]
    growing = _Growing(tuple(max(1, size >> split) for size, split in zip(shape, splits, strict=True)))
    if layout.startswith("#ttg.blocked"):
        for name, owner in (("sizePerThread", "register"), ("threadsPerWarp", "lane"), ("warpsPerCTA", "warp")):
            for dimension in lists["order"]:
                growing.add(dimension, owner, lists[name][dimension])
        growing.fill(lists["order"], shape, cluster)
        return growing
    if layout.startswith("#ttg.nvidia_mma") and len(shape) == 2:
        columns = lists["instrShape"][1]
        for dimension, owner, count in (
            (1, "register", 2),
            (1, "lane", 4),
            (1, "register", columns // 8),
            (0, "lane", 8),
            (0, "register", 2),
        ):
            growing.add(dimension, owner, count)
        for dimension in (0, 1):
            growing.add(dimension, "warp", lists["warpsPerCTA"][dimension])
        growing.fill([0, 1], shape, cluster)
        return growing
    return None


def bit_owners(layout: str, shape: tuple[int, ...], named: dict[str, str]) -> list[list[str]] | None:
    """For every dimension, who holds each bit of a coordinate, lowest first: register, lane, warp or block; None for other layouts.

    Examples
    --------
    >>> layout = "#ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>"
    >>> bit_owners(layout, (128,), {})
    [['register', 'lane', 'lane', 'lane', 'lane', 'lane', 'register']]
    >>> bit_owners(layout.replace("}>", ", CGALayout = [[1]]}>"), (128,), {})
    [['register', 'lane', 'lane', 'lane', 'lane', 'lane', 'block']]
    """
    found = _grown(layout, shape, named)
    return None if found is None else found.owners


def list_bits(layout: str, shape: tuple[int, ...], named: dict[str, str]) -> dict[str, list[tuple[int, int]]] | None:
    """List, for every bit of the number of a register, a lane, a warp and a CTA, lowest first, the dimension and the bit of a coordinate.

    Examples
    --------
    >>> layout = "#ttg.blocked<{sizePerThread = [1, 2], threadsPerWarp = [8, 4], warpsPerCTA = [1, 1], order = [1, 0]}>"
    >>> list_bits(layout, (16, 8), {})
    {'register': [(1, 0), (0, 3)], 'lane': [(1, 1), (1, 2), (0, 0), (0, 1), (0, 2)], 'warp': [], 'block': []}
    """
    found = _grown(layout, shape, named)
    return None if found is None else found.bits


def number_registers(bits: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the number of the register that holds each element of a tensor."""
    places = np.indices(shape)
    numbers = np.zeros(shape, np.intp)
    for number, (dimension, bit) in enumerate(bits):
        numbers |= (places[dimension] >> bit & 1) << number
    return numbers


def take_by_bits(array: NDArray[Any], bits: tuple[tuple[int, int], ...]) -> NDArray[Any]:
    """Lay out the elements of a tensor in one dimension, whose coordinate has these bits, lowest first.

    Examples
    --------
    >>> take_by_bits(np.arange(8).reshape(2, 4), ((1, 1), (0, 0), (1, 0))).tolist()
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    sizes = [size.bit_length() - 1 for size in array.shape]
    axes = [sum(sizes[: dimension + 1]) - 1 - bit for dimension, bit in reversed(bits)]
    return array.reshape((2,) * sum(sizes)).transpose(axes).ravel()
