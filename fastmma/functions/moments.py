"""Means and sums of squared differences by Welford's recurrence, in the two forms that torch's kernels have."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmma import kernels
from fastmma.functions.arithmetic import Floats, fuse
from fastmma.functions.block import WARP, start_sums

_THREADS, _VECTOR = 128, 4


class Moments(NamedTuple):
    """Hold what threads have seen: the mean, the sum of squared differences from it, and how many elements."""

    mean: Floats
    squares: Floats
    counts: Floats

    def take(self, key: Any) -> Moments:
        """Return those of some threads."""
        return Moments(*(part[key] for part in self))


def start_moments(rows: int, threads: int) -> Moments:
    """Return what threads begin with."""
    return Moments(*(start_sums(rows, threads) for _ in range(3)))


def take_elements(values: Floats, threads: int) -> Moments:
    """Take moments of rows by threads, of which each takes every `threads`-th element; differences are divided by the count."""
    found = start_moments(len(values), threads)
    kernels.functions.moments.join_values(values, *found, 0, values.shape[1])
    return found


@lru_cache(64)
def shares_of(columns: int) -> Floats:
    """Return the shares of both threads of each pair that is joined, and what the upper one has seen; for each level, by the lower one.

    The 128 threads of a row take every 128th vector of 4 columns, and are joined as ``cuWelfordCombine`` does.
    Counts are multiplied by the reciprocal of their sum. Threads that have seen nothing leave each other as they are.
    """
    vectors = columns // _VECTOR
    seen = np.float32(_VECTOR) * (vectors // _THREADS + (np.arange(_THREADS) < vectors % _THREADS)).astype(np.float32)
    levels = [(size // 2, 1, WARP) for size in (32, 16, 8, 4, 2)] + [(len(seen) // 2, WARP, len(seen)), (WARP, WARP, len(seen))]
    shares = np.zeros((len(levels), 3, len(seen)), np.float32)
    for level, (offset, distance, size) in zip(shares, levels, strict=True):
        lanes = np.concatenate([np.arange(first, first + offset, distance) for first in range(0, len(seen), size)])
        near, far = seen[lanes], seen[lanes + offset]
        total = near + far
        reciprocal = np.divide(np.float32(1), total, out=np.zeros_like(total), where=total > 0)
        level[:, lanes] = near * reciprocal, far * reciprocal, far
        seen[lanes] = total
    return shares


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


def _halve(found: Moments) -> Moments:
    """Join the upper half of the threads (last axis) to the lower one until one is left."""
    while found.mean.shape[-1] > 1:
        half = found.mean.shape[-1] // 2
        found = join_by_quotient(found.take((..., slice(None, half))), found.take((..., slice(half, None))))
    return found.take((..., 0))


def join_block(found: Moments) -> Moments:
    """Join the threads of a block by warps and then the warps, as `join_by_quotient` does; of warps there are a power of two."""
    return _halve(_halve(Moments(*(part.reshape(len(part), -1, WARP) for part in found))))
