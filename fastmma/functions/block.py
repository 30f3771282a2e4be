"""The order in which threads of a block add: each its own elements one after another, then lanes of a warp, then warps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions.arithmetic import Floats

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
    return add_vectors(values, threads, 1)


def add_vectors(values: Floats, threads: int, size: int) -> Floats:
    """Add by threads, of which each takes every `threads`-th vector of `size` elements, in order; rows have whole vectors."""
    sums = start_sums(len(values), threads)
    kernels.functions.sums.add_vectors(values, sums, 0, values.shape[1], size)
    return sums


def _add_shifted(values: Floats, threads: int, size: int, shift: int) -> Floats:
    sums = start_sums(len(values), threads)
    begin, count = 0, values.shape[1]
    if shift:
        begin = min(threads - shift, count)
        kernels.functions.sums.add_vectors(values, sums[:, shift:], 0, begin, 1)
        count -= begin
    whole = count - count % (size * threads)
    kernels.functions.sums.add_vectors(values, sums, begin, begin + whole, size)
    kernels.functions.sums.add_vectors(values, sums, begin + whole, begin + count, 1)
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
    rows = np.ascontiguousarray(sums, np.float32).reshape(-1, sums.shape[-1])
    found = np.empty(len(rows), np.float32)
    kernels.functions.sums.halve(rows, found)
    return found.reshape(sums.shape[:-1])


def halve_rows(sums: Floats) -> Floats:
    """Add the lower half of rows to the upper one until one is left."""
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return np.asarray(sums[0])


def add_block(sums: Floats) -> Floats:
    """Add the threads of a block (last axis) by warps and then the warps, as ``BlockReduce`` does; a single warp is halved."""
    warps = halve(sums.reshape(*sums.shape[:-1], -1, WARP))
    if warps.shape[-1] == 1:
        return warps[..., 0]
    lanes = np.zeros((*warps.shape[:-1], WARP), np.float32)
    lanes[..., : warps.shape[-1]] = warps
    return halve(lanes)


def add_in_sequence(sums: Floats) -> Floats:
    """Add the threads of a block: those of a warp one after another from zero, then the warps likewise."""
    while sums.shape[1] > 1:
        total = start_sums(len(sums), -(-sums.shape[1] // WARP))
        for lane in range(WARP):
            lanes = sums[:, lane::WARP]
            total[:, : lanes.shape[1]] += lanes
        sums = total
    return sums[:, 0]
