"""Loops of Welford's recurrence, as threads of a GPU run it: mean, sum of squared differences and count of what each has seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma


@compiled
def join_values(values: Any, mean: Any, squares: Any, count: Any, start: int, stop: int) -> None:
    """Have each value join the moments of the next thread, the first one after the last; differences are divided by the count."""
    threads = mean.shape[1]
    for row in range(len(values)):
        m, s, n = mean[row], squares[row], count[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                difference = part[thread] - m[thread]
                n[thread] += np.float32(1)
                joined = m[thread] + difference / n[thread]
                m[thread] = joined
                s[thread] = fma(difference, part[thread] - joined, s[thread])


@compiled
def join_vectors(values: Any, mean: Any, squares: Any, count: Any) -> None:
    """Have a vector of 4 values join the moments of the next thread; differences are multiplied by the count's reciprocal."""
    size = 4  # of which a compiler takes several threads at once
    threads = mean.shape[1]
    for row in range(len(values)):
        m, s, n = mean[row], squares[row], count[row]
        taken = np.float32(0)  # by each thread that takes the next vector
        for first in range(0, values.shape[1], threads * size):
            part = values[row, first : min(first + threads * size, values.shape[1])]
            for element in range(size):
                taken += np.float32(1)
                share = np.float32(1) / taken
                for thread in range(len(part) // size):
                    value = part[thread * size + element]
                    difference = value - m[thread]
                    joined = fma(difference, share, m[thread])
                    m[thread] = joined
                    s[thread] = fma(difference, value - joined, s[thread])
            for thread in range(len(part) // size):
                n[thread] = taken


@compiled
def join_lanes(mean: Any, squares: Any, count: Any, warp: int) -> None:
    """Join the upper half of a warp's threads to the lower one until one is left, and then the warps, into the first thread.

    Means are weighted by the shares of the counts, which are multiplied by the reciprocal of their sum. A thread has seen no more than the
    threads before it: those that have seen nothing leave each other as they are.
    """
    threads = mean.shape[1]
    for row in range(len(mean)):
        m, s, n = mean[row], squares[row], count[row]
        for distance, size, step in ((1, warp, warp), (warp, threads, threads)):
            offset = size // 2
            while offset >= distance:
                for first in range(0, threads, step):
                    if n[first] == np.float32(0):
                        break
                    for lane in range(first, first + offset, distance):
                        other = lane + offset
                        total = n[other] + n[lane]
                        if total > np.float32(0):
                            difference = m[lane] - m[other]
                            share = np.float32(1) / total
                            of_other, of_lane = n[other] * share, n[lane] * share
                            s[lane] = fma(difference * difference * n[other], of_lane, s[other] + s[lane])
                            m[lane] = fma(of_other, m[other], of_lane * m[lane])
                        n[lane] = total
                offset //= 2
