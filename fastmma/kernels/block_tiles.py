"""Macro tiles of products whose operands are packed before: rows and columns of all of them in arrays, in whole blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.llvm.amx import TILE_ROWS
from fastmma.kernels.macro_tiles import FEWEST_BLOCKS

BLOCK = 2 * TILE_ROWS  # rows, or columns, of a block: two by two tiles
_PANEL_BYTES = 1 << 20  # of B in a macro tile: a half of the L2 cache
_HIGHEST = 128  # blocks of rows in a macro tile
_TILES_PER_THREAD = 8
_LAST = 4  # a part of all panels comes last, in macro tiles that are so much lower: no thread waits long for another


class BlockTiles(NamedTuple):
    """Rows and columns of macro tiles, as `fastmma.kernels.macro_tiles.MacroTile` has those of one."""

    row: NDArray[np.int64]
    last_row: NDArray[np.int64]
    column: NDArray[np.int64]
    last_column: NDArray[np.int64]


@lru_cache(16)
def cut_blocks(rows: int, columns: int, column_bytes: int, threads: int) -> BlockTiles:
    """Cut results so that the part of B of a macro tile stays in the L2 cache, narrower where threads had too few, panel by panel."""
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    wide, high, last = max(1, _PANEL_BYTES // (column_bytes * BLOCK)), _HIGHEST, 0
    if threads > 1:
        wide = min(wide, max(2, across * -(-down // FEWEST_BLOCKS) // (2 * threads)))
        panels = -(-across // wide)
        high, last = max(FEWEST_BLOCKS, min(high, -(-down * panels // (_TILES_PER_THREAD * threads)))), -(-panels // _LAST)
    first = (-(-across // wide) - last) * wide
    parts = (0, first, high), (first, across, -(-high // _LAST))
    grids = [
        np.stack(np.meshgrid(np.arange(0, down, height), np.arange(start, stop, wide)), -1).reshape(-1, 2) * BLOCK
        for start, stop, height in parts
    ]
    heights = np.repeat([height for _, _, height in parts], [len(grid) for grid in grids])
    row, column = np.concatenate(grids).T
    return BlockTiles(row, np.minimum(row + heights * BLOCK, rows), column, np.minimum(column + wide * BLOCK, columns))
