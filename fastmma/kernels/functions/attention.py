"""Rows of scores that come block by block: their maxima so far, and sums of their exponentials in the order of a GPU's threads.

A thread of a warp holds 2 of every 8 columns: the one whose lane is q modulo 4 has columns 2 q and 2 q + 1. Arrays are (head, row, ...) of
float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma

LANES = 4  # threads that share a row
PAIR = 2  # neighbouring columns of a thread
TILE = 32  # columns of a warp of CUTLASS's kernels


@compiled
def subtract_maxima(scores: Any, visible: Any, scale: Any, apart: Any, top: Any, factors: Any) -> None:
    """Replace scores by ``score * scale - maximum * scale``, and the columns from `visible` of their row on by minus infinity.

    `top` has the maxima of the blocks before, and gets those of all; `factors` get what sums of the blocks before are to be multiplied by,
    as the logarithm to base 2: the difference of maxima times the scale, or, where these are `apart`, that of each times the scale.
    """
    infinity = np.float32(np.inf)
    for head in range(scores.shape[0]):
        for row in range(scores.shape[1]):
            line = scores[head, row]
            seen = min(max(visible[row], 0), line.size)
            old = top[head, row]
            new = old
            for column in range(seen):
                if line[column] > new:
                    new = line[column]
            top[head, row] = new
            if old == new:
                factors[head, row] = np.float32(0)
            elif apart:
                factors[head, row] = np.float32(np.float32(old * scale) - np.float32(new * scale))
            else:
                factors[head, row] = np.float32(np.float32(old - new) * scale)
            shift = np.float32(0) if new == -infinity else np.float32(new * scale)
            for column in range(seen):
                line[column] = np.float32(np.float32(line[column] * scale) - shift)
            line[seen:] = -infinity


@compiled
def add_to_lanes(exponentials: Any, factors: Any, sums: Any) -> None:
    """Multiply the sums of each thread (head, row, 4) by factors and add exponentials, columns ascending; the first is fused."""
    for head in range(exponentials.shape[0]):
        for row in range(exponentials.shape[1]):
            line = exponentials[head, row]
            for lane in range(LANES):
                first = PAIR * lane
                found = line[first] if first < line.size else np.float32(0)
                total = fma(sums[head, row, lane], factors[head, row], found)
                for start in range(first, line.size, PAIR * LANES):
                    for column in range(start + (start == first), min(start + PAIR, line.size)):
                        total = np.float32(total + line[column])
                sums[head, row, lane] = total


@compiled
def add_blocks_to_lanes(exponentials: Any, factors: Any, sums: Any) -> None:
    """Add the exponentials of each thread, columns ascending, and to that its sums so far (head, row, 4) times factors, fused."""
    for head in range(exponentials.shape[0]):
        for row in range(exponentials.shape[1]):
            line = exponentials[head, row]
            for lane in range(LANES):
                total = np.float32(0)
                for start in range(PAIR * lane, line.size, PAIR * LANES):
                    for column in range(start, min(start + PAIR, line.size)):
                        total = np.float32(total + line[column])
                sums[head, row, lane] = fma(sums[head, row, lane], factors[head, row], total)


@compiled
def add_tiles(exponentials: Any, factors: Any, sums: Any) -> None:
    """Multiply sums (head, row) by factors and add exponentials: those of 32 columns in 4 threads, these in pairs, tiles ascending."""
    for head in range(exponentials.shape[0]):
        for row in range(exponentials.shape[1]):
            line = exponentials[head, row]
            total = np.float32(sums[head, row] * factors[head, row])
            for start in range(0, line.size, TILE):
                stop = min(start + TILE, line.size)
                pairs = np.float32(0)
                for half in range(2):
                    both = np.float32(0)
                    for lane in range(2 * half, 2 * half + 2):
                        part = np.float32(0)
                        for first in range(start + PAIR * lane, stop, PAIR * LANES):
                            for column in range(first, min(first + PAIR, stop)):
                                part = np.float32(part + line[column])
                        both = np.float32(both + part)
                    pairs = np.float32(pairs + both)
                total = np.float32(total + pairs)
            sums[head, row] = total
