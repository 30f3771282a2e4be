"""The order in which threads of a block add: each its own elements one after another, then lanes of a warp, then warps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.functions.arithmetic import Floats
from fastmma.kernels.functions import sums as loops

WARP = 32


def start_sums(rows: int, threads: int) -> Floats:
    """Return the sums that threads begin with."""
    return np.zeros((rows, threads), np.float32)


def add_strided(values: Floats, threads: int) -> Floats:
    """Add by threads, of which each takes every `threads`-th element of a row: (rows, n) to (rows, threads).

    Examples
    --------
    >>> add_strided(np.float32([[1, 2, 3, 4, 5]]), 2).tolist()
    [[9.0, 6.0]]
    """
    sums = start_sums(len(values), threads)
    loops.add_strided(values, sums, 0, values.shape[1])
    return sums


def add_vectors(values: Floats, threads: int, size: int) -> Floats:
    """Add by threads, of which each takes every `threads`-th vector of `size` elements, in order; rows have whole vectors."""
    sums = start_sums(len(values), threads)
    loops.add_vectors(values, sums, 0, values.shape[1], size)
    return sums


def _add_shifted(values: Floats, threads: int, size: int, shift: int) -> Floats:
    sums = start_sums(len(values), threads)
    begin, count = 0, values.shape[1]
    if shift:
        begin = min(threads - shift, count)
        loops.add_strided(values, sums[:, shift:], 0, begin)
        count -= begin
    whole = count - count % (size * threads)
    loops.add_vectors(values, sums, begin, begin + whole, size)
    loops.add_strided(values, sums, begin + whole, begin + count)
    return sums


def add_unaligned(values: Floats, threads: int, size: int) -> Floats:
    """Add rows that lie one after another, wherever in a vector of `size` elements each begins, as ``ilpReduce`` does.

    Of a row that begins within a vector the threads from that place on take one element each. Then all take vectors, while all have one,
    and at last single elements.
    """
    shifts = np.arange(len(values)) * values.shape[1] % size
    sums = np.empty((len(values), threads), np.float32)
    for shift in np.unique(shifts):
        rows = shifts == shift
        sums[rows] = _add_shifted(np.ascontiguousarray(values[rows]), threads, size, int(shift))
    return sums


def halve(sums: NDArray[Any]) -> Floats:
    """Add the upper half of the last axis to the lower one until one is left, as shuffles down a warp do.

    Examples
    --------
    >>> halve(np.float32([[1, 2, 3, 4]])).tolist()
    [10.0]
    """
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return np.asarray(sums[..., 0], np.float32)


def add_block(sums: Floats) -> Floats:
    """Add the threads of a block (last axis) by warps and then the warps, as ``BlockReduce`` does; a single warp is halved."""
    warps = halve(sums.reshape(*sums.shape[:-1], -1, WARP))
    missing = WARP - warps.shape[-1] if warps.shape[-1] > 1 else 0
    return halve(np.pad(warps, [(0, 0)] * (warps.ndim - 1) + [(0, missing)]))


def add_in_sequence(sums: Floats) -> Floats:
    """Add the threads of a block: those of a warp one after another from zero, then the warps likewise."""
    while sums.shape[1] > 1:
        total = start_sums(len(sums), -(-sums.shape[1] // WARP))
        for lane in range(WARP):
            lanes = sums[:, lane::WARP]
            total[:, : lanes.shape[1]] += lanes
        sums = total
    return sums[:, 0]
