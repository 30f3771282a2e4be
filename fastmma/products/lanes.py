"""The order in which threads off the tensor cores add up k: lanes with chains of fma, chunks of them, and trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.host.integers import flag, integer

TREES = {"halves": "in halves: each lane of the first half adds its counterpart in the second half", "ascending": "in ascending order"}
_WARP, _WARPS, _GROUPS = 32, 4, 8  # how the last kernel of several blocks adds their sums: 128 threads


@dataclass(frozen=True)
class Lanes:
    """The lanes of a GPU that share the k of one element of a product, and the joins of their sums.

    Every chain is one of ``fma.rn.f32``, starts from +0, and takes its k in ascending order.

    Attributes
    ----------
    lanes : int
        How many there are.
    vector : int
        How many adjacent k a lane takes before the next lane's; 0: all of its k are adjacent.
    shrinks : bool
        Whether a vector is no longer than an equal share of k, rounded up.
    chunk : int
        After so many k of a lane a chain ends; the chains of a lane are added in ascending order. 0: a lane has one chain.
    tree : {"halves", "ascending"}
        How the lanes are added.
    parts : int
        Parts of k of equal length, rounded up, which are added in ascending order at last.
    blocks : int
        Blocks of lanes to which vectors of all lanes are dealt in turn. The sums of several blocks are added by 128 threads: every 128th
        in ascending order, quarters in halves, then every fourth, and at last four.
    apart : bool
        Whether each place in a vector has a chain of its own; these are added in ascending order.

    Raises
    ------
    OperandError

    Examples
    --------
    >>> Lanes(2, tree="ascending").places(5).tolist()  # of k: by part, lane, chain and step; -1 is none
    [[[[0, 2, 4]], [[1, 3, -1]]]]
    >>> print(Lanes(32))
    32 lanes of 1 k in 32, added in halves: each lane of the first half adds its counterpart in the second half
    """

    lanes: int = 1
    vector: int = 1
    shrinks: bool = False
    chunk: int = 0
    tree: str = "halves"
    parts: int = 1
    blocks: int = 1
    apart: bool = False

    def __post_init__(self) -> None:
        for name, least in (("lanes", 1), ("vector", 0), ("chunk", 0), ("parts", 1), ("blocks", 1)):
            object.__setattr__(self, name, integer(getattr(self, name), f"Lanes: {name}", least))
        for name in ("shrinks", "apart"):
            object.__setattr__(self, name, flag(getattr(self, name), f"Lanes: {name}"))
        if not isinstance(self.tree, str) or self.tree not in TREES:
            raise OperandError(f"Lanes: tree must be {' or '.join(TREES)}, not {self.tree!r}")
        if (self.blocks > 1 or self.apart) and (self.parts > 1 or self.chunk or self.shrinks or not self.vector):
            raise OperandError("Lanes: several blocks, or separate chains, need vectors of one length and one part, without chunks")

    def _vector(self, length: int) -> int:
        """Find how many adjacent k a lane takes of a part."""
        share = max(-(-length // self.lanes), 1)
        return share if not self.vector else min(self.vector, share) if self.shrinks else self.vector

    def places(self, depth: int) -> NDArray[np.int64]:
        """Place the k of all chains: an array of which the last axis is a chain's steps; -1 is no k. `join` adds over the other axes."""
        length = max(-(-depth // self.parts), 1)
        vector = self._vector(length)
        turns = max(-(-length // (vector * self.lanes * self.blocks)), 1)
        if self.blocks > 1 or self.apart:
            return self._dealt(depth, vector, turns)
        steps = turns * vector
        chunk = min(self.chunk or steps, steps)
        chains = -(-steps // chunk)
        part = np.arange(self.parts)[:, None, None, None]
        lane = np.arange(self.lanes)[:, None, None]
        step = (np.arange(chains) * chunk)[:, None] + np.arange(chunk)
        inside = (step // vector * self.lanes + lane) * vector + step % vector
        k = part * length + inside
        return np.where((step < steps) & (inside < length) & (k < depth), k, -1)

    def _dealt(self, depth: int, vector: int, turns: int) -> NDArray[np.int64]:
        """Place k that are dealt to blocks: by last, group, warp and turn of the block's thread; by lane, place in a vector, and step."""
        threads = _WARP * _WARPS
        shape = -(-self.blocks // threads), _WARPS, _GROUPS, _WARP // _GROUPS
        block = np.arange(int(np.prod(shape))).reshape(shape).transpose(3, 2, 1, 0)[..., None, None, None]
        lane = np.arange(self.lanes)[:, None, None]
        place = np.arange(vector)[:, None]
        k = ((np.arange(turns) * self.blocks + block) * self.lanes + lane) * vector + place
        found = np.where((block < self.blocks) & (k < depth), k, -1)
        if self.apart:
            return found
        return found.swapaxes(-1, -2).reshape(*found.shape[:-2], 1, -1)

    def join(self, sums: NDArray[np.float32]) -> NDArray[np.float32]:
        """Join the sums of chains, whose axes `places` has but for the steps, after any others: those of elements."""
        trees = ["ascending", self.tree, "ascending"]
        if self.blocks > 1 or self.apart:
            trees += ["halves", "ascending", "ascending"]
        with np.errstate(all="ignore"):
            for tree in trees:
                sums = _halves(sums) if tree == "halves" else _ascending(sums)
        return sums

    def __str__(self) -> str:
        if self.lanes == 1:
            text = "one lane"
        elif not self.vector or self.shrinks:
            most = f", at most {self.vector} at a time" if self.vector else ""
            text = f"{self.lanes} lanes of adjacent k{most}, added {TREES[self.tree]}"
        else:
            text = f"{self.lanes} lanes of {self.vector} k in {self.vector * self.lanes}, added {TREES[self.tree]}"
        text += f"; chains of {self.chunk} k" if self.chunk else ""
        text += "; each place of a vector has a chain" if self.apart else ""
        text += f"; {self.blocks} blocks in turn, joined by 128 threads" if self.blocks > 1 else ""
        return text + (f"; {self.parts} parts of k, added in ascending order" if self.parts > 1 else "")


def _halves(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Add the first and the second half of the last axis until one is left; zeros fill it up to a power of two."""
    missing = (1 << (sums.shape[-1] - 1).bit_length()) - sums.shape[-1]
    if missing:
        sums = np.concatenate([sums, np.zeros((*sums.shape[:-1], missing), np.float32)], -1)
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums[..., 0]


def _ascending(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Add over the last axis in ascending order."""
    total = sums[..., 0]
    for index in range(1, sums.shape[-1]):
        total = total + sums[..., index]
    return total
