"""Means and sums of squares by Welford's recurrence, in the two forms that torch's kernels have."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmma.functions.arithmetic import Floats, fused
from fastmma.functions.block import WARP
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma


class Moments(NamedTuple):
    """Hold what threads have seen: the mean, the sum of squared differences from it, and how many elements."""

    mean: Floats
    squares: Floats
    count: Floats

    def take(self, key: Any) -> Moments:
        """Return some of the threads."""
        return Moments(*(part[key] for part in self))


@compiled
def _by_reciprocal(values: Any, mean: Any, squares: Any, count: Any, size: int) -> None:
    threads = mean.shape[1]
    for row in range(len(values)):
        for first in range(0, values.shape[1], threads * size):
            for thread in range(min(threads, (values.shape[1] - first) // size)):
                m, s, n = mean[row, thread], squares[row, thread], count[row, thread]
                for element in range(size):
                    value = values[row, first + thread * size + element]
                    difference = value - m
                    n += np.float32(1)
                    m = fma(difference, np.float32(1) / n, m)
                    s = fma(difference, value - m, s)
                mean[row, thread], squares[row, thread], count[row, thread] = m, s, n


@compiled
def _by_quotient(values: Any, mean: Any, squares: Any, count: Any) -> None:
    threads = mean.shape[1]
    for row in range(len(values)):
        for first in range(0, values.shape[1], threads):
            for thread in range(min(threads, values.shape[1] - first)):
                value = values[row, first + thread]
                difference = value - mean[row, thread]
                count[row, thread] += np.float32(1)
                mean[row, thread] += difference / count[row, thread]
                squares[row, thread] = fma(difference, value - mean[row, thread], squares[row, thread])


def _nothing(rows: int, threads: int) -> Moments:
    return Moments(*(np.zeros((rows, threads), np.float32) for _ in range(3)))


def by_reciprocal(values: Floats, threads: int, size: int) -> Moments:
    """Take moments of rows by threads, of which each takes every `threads`-th vector; differences are multiplied by 1 / count."""
    found = _nothing(len(values), threads)
    _by_reciprocal(values, *found, size)
    return found


def by_quotient(values: Floats, threads: int) -> Moments:
    """Take moments of rows by threads, of which each takes every `threads`-th element; differences are divided by the count."""
    found = _nothing(len(values), threads)
    _by_quotient(values, *found)
    return found


def join_by_reciprocal(first: Moments, second: Moments) -> Moments:
    """Join moments as ``cuWelfordCombine`` does, the means weighted by the shares of the counts."""
    difference = first.mean - second.mean
    count = second.count + first.count
    with np.errstate(all="ignore"):
        share = np.float32(1) / count
        of_second, of_first = second.count * share, first.count * share
        mean = fused(of_second, second.mean, of_first * first.mean)
        squares = fused(difference * difference * second.count, of_first, second.squares + first.squares)
    some = count > 0
    return Moments(np.where(some, mean, np.float32(0)), np.where(some, squares, np.float32(0)), count)


def join_by_quotient(first: Moments, second: Moments) -> Moments:
    """Join moments as ``WelfordOps::combine`` does; moments of nothing leave the others as they are."""
    difference = second.mean - first.mean
    count = first.count + second.count
    with np.errstate(all="ignore"):
        share = second.count / count
        mean = fused(difference, share, first.mean)
        squares = fused(difference * difference * first.count, share, first.squares + second.squares)
    joined = Moments(mean, squares, count)
    return Moments(
        *(
            np.where(first.count == 0, b, np.where(second.count == 0, a, c))
            for a, b, c in zip(first, second, joined, strict=True)
        )
    )


def halve(found: Moments, join: Any) -> Moments:
    """Join the upper half of the threads (last axis) to the lower one until one is left."""
    while found.mean.shape[-1] > 1:
        half = found.mean.shape[-1] // 2
        found = join(found.take((..., slice(None, half))), found.take((..., slice(half, None))))
    return found.take((..., 0))


def join_block(found: Moments, join: Any) -> Moments:
    """Join the threads of a block by warps and then the warps."""
    return halve(halve(Moments(*(part.reshape(len(part), -1, WARP) for part in found)), join), join)
