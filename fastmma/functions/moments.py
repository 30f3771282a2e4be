"""Means and sums of squared differences by Welford's recurrence, in the two forms that torch's kernels have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastmma.functions.arithmetic import Floats, fuse
from fastmma.functions.block import WARP, start_sums
from fastmma.kernels.functions import moments as loops


class Moments(NamedTuple):
    """Hold what threads have seen: the mean, the sum of squared differences from it, and how many elements."""

    mean: Floats
    squares: Floats
    counts: Floats

    def take(self, key: Any) -> Moments:
        """Return those of some threads."""
        return Moments(*(part[key] for part in self))


Join = Callable[[Moments, Moments], Moments]


def start_moments(rows: int, threads: int) -> Moments:
    """Return what threads begin with."""
    return Moments(*(start_sums(rows, threads) for _ in range(3)))


def take_vectors(values: Floats, threads: int, size: int) -> Moments:
    """Take moments of rows by threads, of which each takes every `threads`-th vector; differences are multiplied by 1 / count."""
    found = start_moments(len(values), threads)
    loops.join_vectors(values, *found, size)
    return found


def take_elements(values: Floats, threads: int) -> Moments:
    """Take moments of rows by threads, of which each takes every `threads`-th element; differences are divided by the count."""
    found = start_moments(len(values), threads)
    loops.join_values(values, *found, 0, values.shape[1])
    return found


def join_by_reciprocal(first: Moments, second: Moments) -> Moments:
    """Join moments as ``cuWelfordCombine`` does, the means weighted by the shares of the counts."""
    difference = first.mean - second.mean
    count = second.counts + first.counts
    with np.errstate(all="ignore"):
        share = np.float32(1) / count
        of_second, of_first = second.counts * share, first.counts * share
        mean = fuse(of_second, second.mean, of_first * first.mean)
        squares = fuse(difference * difference * second.counts, of_first, second.squares + first.squares)
    some = count > 0
    return Moments(np.where(some, mean, np.float32(0)), np.where(some, squares, np.float32(0)), count)


def join_by_quotient(first: Moments, second: Moments) -> Moments:
    """Join moments as ``WelfordOps::combine`` does; moments of nothing leave the others as they are."""
    difference = second.mean - first.mean
    count = first.counts + second.counts
    with np.errstate(all="ignore"):
        share = second.counts / count
        mean = fuse(difference, share, first.mean)
        squares = fuse(difference * difference * first.counts, share, first.squares + second.squares)
    joined = zip(first, second, Moments(mean, squares, count), strict=True)
    return Moments(*(np.where(first.counts == 0, b, np.where(second.counts == 0, a, both)) for a, b, both in joined))


def _halve(found: Moments, join: Join) -> Moments:
    """Join the upper half of the threads (last axis) to the lower one until one is left."""
    while found.mean.shape[-1] > 1:
        half = found.mean.shape[-1] // 2
        found = join(found.take((..., slice(None, half))), found.take((..., slice(half, None))))
    return found.take((..., 0))


def join_block(found: Moments, join: Join) -> Moments:
    """Join the threads of a block by warps and then the warps; of these there are a power of two."""
    return _halve(_halve(Moments(*(part.reshape(len(part), -1, WARP) for part in found)), join), join)
