"""The order in which threads of a block add: each its own elements one after another, then lanes of a warp, then warps."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.functions.arithmetic import Floats
from fastmma.kernels.llvm.compilation import compiled

WARP = 32


@compiled
def _strided(values: Any, sums: Any, start: int, stop: int) -> None:
    threads = sums.shape[1]
    for row in range(len(values)):
        for first in range(start, stop, threads):
            for thread in range(min(threads, stop - first)):
                sums[row, thread] += values[row, first + thread]


@compiled
def _vectors(values: Any, sums: Any, start: int, stop: int, size: int) -> None:
    threads = sums.shape[1]
    for row in range(len(values)):
        for first in range(start, stop, threads * size):
            for thread in range(min(threads, (stop - first) // size)):
                total = sums[row, thread]
                for element in range(size):
                    total += values[row, first + thread * size + element]
                sums[row, thread] = total


def add_strided(values: Floats, threads: int) -> Floats:
    """Add by threads, of which each takes every `threads`-th element of a row: (rows, n) to (rows, threads)."""
    sums = np.zeros((len(values), threads), np.float32)
    _strided(values, sums, 0, values.shape[1])
    return sums


def add_vectors(values: Floats, threads: int, size: int) -> Floats:
    """Add by threads, of which each takes every `threads`-th vector of `size` elements, in order; the rows have whole vectors."""
    sums = np.zeros((len(values), threads), np.float32)
    _vectors(values, sums, 0, values.shape[1], size)
    return sums


def add_shifted(values: Floats, threads: int, size: int, shift: int) -> Floats:
    """Add rows that begin `shift` elements after an aligned address, as ``ilpReduce`` does.

    The threads from `shift` on take one element each, then all take vectors of `size` while all have one, then single elements.
    """
    sums = np.zeros((len(values), threads), np.float32)
    begin, count = 0, values.shape[1]
    if shift:
        begin = min(threads - shift, count)
        _strided(values, sums[:, shift:], 0, begin)
        count -= begin
    whole = count - count % (size * threads)
    _vectors(values, sums, begin, begin + whole, size)
    _strided(values, sums, begin + whole, begin + count)
    return sums


def halved(values: Floats) -> Floats:
    """Add the upper half of the last axis to the lower one until one is left, as shuffles down a warp do.

    Examples
    --------
    >>> halved(np.float32([[1, 2, 3, 4]])).tolist()
    [10.0]
    """
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def add_block(sums: Floats) -> Floats:
    """Add the threads of a block (last axis) by warps and then the warps, as ``BlockReduce`` does."""
    warps = halved(sums.reshape(*sums.shape[:-1], -1, WARP))
    return halved(np.pad(warps, [(0, 0)] * (warps.ndim - 1) + [(0, WARP - warps.shape[-1])]))


def add_in_sequence(sums: Floats) -> Floats:
    """Add the threads of a block: those of a warp one after another from zero, then the warps likewise."""
    grouped = sums.reshape(len(sums), -1, WARP)
    by_warp = np.zeros(grouped.shape[:2], np.float32)
    for lane in range(WARP):
        by_warp = by_warp + grouped[..., lane]
    total = np.zeros(len(sums), np.float32)
    for warp in range(by_warp.shape[1]):
        total = total + by_warp[:, warp]
    return total
