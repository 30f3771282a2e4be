"""Loops of Welford's recurrence, as threads of a GPU run it: mean, sum of squared differences and count of what each has seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import even_lanes, fma, load, load_scalar, odd_lanes, splat, store

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


@inner
def _taken(value: Any, mean: Any, squares: Any, share: Any) -> Any:
    """Have values join moments."""
    difference = value - mean
    joined = fma(difference, share, mean)
    return joined, fma(difference, value - joined, squares)


@inner
def _take_vectors(values: int, columns: int, threads: int, mean: int, squares: int) -> None:
    """Have a vector of 4 values join the moments of the next thread; differences are multiplied by the count's reciprocal."""
    one, seen = np.float32(1), np.float32(0)  # seen by each thread that takes the next vector
    for first in range(0, columns, 4 * threads):
        taking = min(threads, (columns - first) // 4)
        shares = one / (seen + one), one / (seen + np.float32(2)), one / (seen + np.float32(3)), one / (seen + np.float32(4))
        seen += np.float32(4)
        line = values + 4 * first
        whole = taking - taking % 16
        for place in range(0, 4 * whole, 64):
            part = load(line + 4 * place, np.float32, 64)
            even, odd = even_lanes(part), odd_lanes(part)
            m, s = load(mean + place, np.float32, 16), load(squares + place, np.float32, 16)
            m, s = _taken(even_lanes(even), m, s, splat(shares[0], 16))
            m, s = _taken(even_lanes(odd), m, s, splat(shares[1], 16))
            m, s = _taken(odd_lanes(even), m, s, splat(shares[2], 16))
            m, s = _taken(odd_lanes(odd), m, s, splat(shares[3], 16))
            store(m, mean + place)
            store(s, squares + place)
        for place in range(4 * whole, 4 * taking, 4):
            at = line + 4 * place
            one_m, one_s = load_scalar(mean + place, np.float32), load_scalar(squares + place, np.float32)
            one_m, one_s = _taken(load_scalar(at, np.float32), one_m, one_s, shares[0])
            one_m, one_s = _taken(load_scalar(at + 4, np.float32), one_m, one_s, shares[1])
            one_m, one_s = _taken(load_scalar(at + 8, np.float32), one_m, one_s, shares[2])
            one_m, one_s = _taken(load_scalar(at + 12, np.float32), one_m, one_s, shares[3])
            store(one_m, mean + place)
            store(one_s, squares + place)


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
def find_moments(values: int, rows: int, columns: int, shares: int, scratch: int, mean: int, squares: int) -> None:
    """Find means, and sums of squared differences, of rows of whole vectors of 4 values, by 128 threads a row.

    Threads are joined within warps of 32, the upper half to the lower one until one is left, and then 4 warps. Means are weighted by shares
    of counts.

    Parameters
    ----------
    values : int
        The address of rows, one after another.
    rows, columns : int
    shares : int
        The address of three lines for each of seven levels, as `_join` reads them.
    scratch : int
        That of zeros for two lines of 128 threads.
    mean, squares : int
        Those of a result for each row.
    """
    of_threads, used = scratch + _LEVEL, 128 * min((columns + 127) // 128, 4)  # bytes of warps that take something: others stay zero
    for _ in range(rows):
        for place in range(scratch, scratch + used, 64):
            store(splat(np.float32(0), 16), place)
            store(splat(np.float32(0), 16), place + _LEVEL)
        _take_vectors(values, columns, _LEVEL // 4, scratch, of_threads)
        for warp in range(0, used, 128):
            m, s, at = scratch + warp, of_threads + warp, shares + warp
            _join(m, s, at, 64, 16)
            _join(m, s, at + 3 * _LEVEL, 32, 8)
            _join(m, s, at + 6 * _LEVEL, 16, 4)
            _join(m, s, at + 9 * _LEVEL, 8, 2)
            _join(m, s, at + 12 * _LEVEL, 4, 1)
        _join(scratch, of_threads, shares + 15 * _LEVEL, 256, 1)
        _join(scratch + 128, of_threads + 128, shares + 15 * _LEVEL + 128, 256, 1)
        _join(scratch, of_threads, shares + 18 * _LEVEL, 128, 1)
        store(load_scalar(scratch, np.float32), mean)
        store(load_scalar(of_threads, np.float32), squares)
        values, mean, squares = values + 4 * columns, mean + 4, squares + 4
