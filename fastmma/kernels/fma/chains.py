"""Products by chains of fused multiply-adds in register tiles, cut into macro tiles for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import aligned_empty
from fastmma.host.threads import parallel_for
from fastmma.kernels.fma.chain_kernel import FmaConfig, config_on, run
from fastmma.kernels.macro_tiles import MacroTile, OfWorkers, cut
from fastmma.kernels.tiles import CHAINS, tile_of_cpu

_CHUNK_ROWS = 512
_SLAB = 128  # k of a panel of B, which stays in the first-level cache
_PANELS = 16  # of B, while the second-level cache holds a slab of A
_PACKED_BLOCKS = 16
_MACRO_TILES_PER_THREAD = 2

Write = Callable[[slice, slice, NDArray[Any]], None]


def config_of(bits: int, links: int = 0, half: bool = False, joined: int = 1) -> FmaConfig:
    """A chain on this CPU, which has vectors for it."""
    return config_on(tile_of_cpu(CHAINS), bits, links, half, joined)


def multiply(how: FmaConfig, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, threads: int, write: Write) -> None:
    """Call ``write(rows, columns, sums)`` for all parts of the sums of products of `a` (M, K) and `b` (K, N), which start from `c` or +0.

    K is a multiple of `DEPTH`. Elements are of `how.dtype`; strides are any. `write` may change the sums, and is called by several threads,
    once for each part.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    blocks = -(-rows // how.rows)
    panels = aligned_empty((blocks, depth, how.rows), how.dtype)

    def pack(start: int, stop: int, _worker: int) -> None:
        whole = min(stop, rows // how.rows)
        if whole > start:
            lines = a[start * how.rows : whole * how.rows].reshape(whole - start, how.rows, depth)
            panels[start:whole] = lines.swapaxes(1, 2)
        if whole < stop:
            rest = a[whole * how.rows :]
            panels[whole, :, : len(rest)] = rest.T
            panels[whole, :, len(rest) :] = 0

    parallel_for(pack, blocks, threads, _PACKED_BLOCKS)
    width = min(_PANELS, -(-columns // how.columns)) * how.columns
    macro_tiles = cut(rows, columns, (how.rows, width), threads, _CHUNK_ROWS, _MACRO_TILES_PER_THREAD)

    def memory() -> tuple[NDArray[Any], NDArray[Any]]:
        high, count = -(-macro_tiles.height // how.rows), width // how.columns
        shape = (count, high, how.rows, how.columns)
        return aligned_empty(shape, how.dtype), aligned_empty((count, min(_SLAB, depth), how.columns), how.dtype)

    def compute(macro_tile: MacroTile, work: tuple[NDArray[Any], NDArray[Any]]) -> None:
        first, last = macro_tile.row // how.rows, -(-macro_tile.last_row // how.rows)
        at_rows, at_columns = slice(macro_tile.row, macro_tile.last_row), slice(macro_tile.column, macro_tile.last_column)
        high, wide = macro_tile.last_row - macro_tile.row, macro_tile.last_column - macro_tile.column
        count = -(-wide // how.columns)
        tiles, slabs = work[0][:count, : last - first], work[1][:count]
        sums = tiles.transpose(1, 2, 0, 3)  # of rows and columns
        tiles[...] = 0
        if c is not None:
            given = np.zeros((last - first, how.rows, count, how.columns), how.dtype)
            given.reshape(-1, count * how.columns)[:high, :wide] = c[at_rows, at_columns]
            sums[...] = given
        for start in range(0, depth, _SLAB):
            part = slabs[:, : min(_SLAB, depth - start)]
            whole = wide // how.columns
            lines = b[start : start + part.shape[1], at_columns]
            part[:whole] = lines[:, : whole * how.columns].reshape(part.shape[1], whole, how.columns).swapaxes(0, 1)
            if whole < count:
                rest = lines[:, whole * how.columns :]
                part[whole, :, : rest.shape[1]] = rest
                part[whole, :, rest.shape[1] :] = 0
            run(how, panels[first:last, start : start + part.shape[1]], part, tiles)
        write(at_rows, at_columns, sums.reshape(-1, count * how.columns)[:high, :wide])

    macro_tiles.run(threads, OfWorkers(memory), compute)
