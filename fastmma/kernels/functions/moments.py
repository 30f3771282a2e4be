"""Loops of Welford's recurrence, as threads of a GPU run it: mean, sum of squared differences and count of what each has seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import fma, load, store

_LEVEL = 4 * 128  # bytes of a line of the shares of threads


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


@inner
def _join(mean: int, squares: int, shares: int, distance: int, lanes: Any) -> None:
    """Join lanes at a distance in bytes to as many, by their shares: of both counts over their sum, and what the other ones have seen."""
    near, far = load(mean, np.float32, lanes), load(mean + distance, np.float32, lanes)
    of_near, of_far = load(shares, np.float32, lanes), load(shares + _LEVEL, np.float32, lanes)
    seen = load(shares + 2 * _LEVEL, np.float32, lanes)
    difference = near - far
    both = load(squares + distance, np.float32, lanes) + load(squares, np.float32, lanes)
    store(fma(difference * difference * seen, of_near, both), squares)
    store(fma(of_far, far, of_near * near), mean)


@compiled
def join_warps(mean: int, squares: int, shares: int, rows: int, row: int) -> None:
    """Join the upper half of each warp of 32 threads to the lower one until one is left, and then 4 warps, into the first thread.

    Means are weighted by shares of counts.

    Parameters
    ----------
    mean, squares : int
        Addresses of rows of 128 threads.
    shares : int
        Address of three lines for each of seven levels, as `_join` reads them.
    rows, row : int
        How many, and bytes from one to the next.
    """
    for _ in range(rows):
        for warp in range(0, _LEVEL, 128):
            m, s, at = mean + warp, squares + warp, shares + warp
            _join(m, s, at, 64, 16)
            _join(m, s, at + 3 * _LEVEL, 32, 8)
            _join(m, s, at + 6 * _LEVEL, 16, 4)
            _join(m, s, at + 9 * _LEVEL, 8, 2)
            _join(m, s, at + 12 * _LEVEL, 4, 1)
        _join(mean, squares, shares + 15 * _LEVEL, 256, 1)
        _join(mean + 128, squares + 128, shares + 15 * _LEVEL + 128, 256, 1)
        _join(mean, squares, shares + 18 * _LEVEL, 128, 1)
        mean, squares = mean + row, squares + row
