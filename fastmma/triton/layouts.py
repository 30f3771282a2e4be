"""Where Triton's layouts keep the elements of a tensor: in registers, lanes and warps, bit by bit of a coordinate."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LISTS = re.compile(r"(\w+) = \[([\d, ]*)\]")
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.+)\}>$")
_ALIAS = re.compile(r"^(#\w+) = (#ttg\.\w+<\{.*\}>)$", re.MULTILINE)


@dataclass
class _Growing:
    """Owners of coordinate bits, from the lowest, until the tensor's size is reached."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        self.owners: list[list[str]] = [[] for _ in self.shape]

    def add(self, dimension: int, owner: str, count: int) -> None:
        """The next coordinates, `count` of them, belong to an owner; beyond the tensor they repeat it."""
        room = (self.shape[dimension].bit_length() - 1) - len(self.owners[dimension])
        self.owners[dimension] += [owner] * min(room, count.bit_length() - 1)

    def fill(self) -> None:
        """What is left of the tensor lies in further registers."""
        for dimension, size in enumerate(self.shape):
            self.add(dimension, "register", size)


def aliases(ttgir: str) -> dict[str, str]:
    """The layouts that a module names."""
    return dict(_ALIAS.findall(ttgir))


def bit_owners(layout: str, shape: tuple[int, ...], named: dict[str, str]) -> list[list[str]] | None:
    """For every dimension, who holds each bit of a coordinate, lowest first: register, lane or warp; None for layouts of other kinds.

    Examples
    --------
    >>> layout = "#ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>"
    >>> bit_owners(layout, (128,), {})
    [['register', 'lane', 'lane', 'lane', 'lane', 'lane', 'register']]
    """
    layout = named.get(layout, layout)
    inner = _SLICE.match(layout)
    if inner:
        dimension = int(inner[1])
        parent = bit_owners(inner[2], (*shape[:dimension], 1, *shape[dimension:]), named)
        return None if parent is None else parent[:dimension] + parent[dimension + 1 :]
    lists = {name: [int(value) for value in values.split(",")] for name, values in _LISTS.findall(layout) if values}
    growing = _Growing(shape)
    if layout.startswith("#ttg.blocked"):
        for name, owner in (("sizePerThread", "register"), ("threadsPerWarp", "lane"), ("warpsPerCTA", "warp")):
            for dimension in lists["order"]:
                growing.add(dimension, owner, lists[name][dimension])
    elif layout.startswith("#ttg.nvidia_mma") and len(shape) == 2:
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
    else:
        return None
    growing.fill()
    return growing.owners
