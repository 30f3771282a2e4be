"""The way of every product: cut into macro tiles for threads, computed one by one, and marked where another kernel has to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for

Memory = TypeVar("Memory")
Index = slice | NDArray[np.intp]

FEWEST_BLOCKS = 8  # of rows in a macro tile, for which it packs its panel of B
_LAST_ROUNDS, _CUTS = 2, 4  # the last macro tiles of several threads, so many of each, are cut again: no thread waits for a whole one
_TALL = 1024  # rows of a macro tile that is worth it


class OfWorkers(dict[int, Memory]):
    """Memory of each worker, made when it first asks."""

    def __init__(self, make: Callable[[], Memory]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, worker: int) -> Memory:
        return self.setdefault(worker, self._make())


class MacroTile(NamedTuple):
    """Rows and columns of a product, each from the first to before the last."""

    row: int
    last_row: int
    column: int
    last_column: int


class MacroTiles(NamedTuple):
    """The cuts of a product: chunks of rows by panels of columns, of which the last ones are `cut_again`, in whole blocks of rows."""

    rows: int
    columns: int
    height: int
    width: int
    block: int = 1
    cut_again: int = 0

    @property
    def panels(self) -> int:
        """How many panels there are."""
        return -(-self.columns // self.width)

    def run(self, threads: int, memory: OfWorkers[Memory], compute: Callable[[MacroTile, Memory], None]) -> None:
        """Call ``compute(macro_tile, memory)`` for every macro tile, with the memory of the worker that does it."""
        whole = self.panels * -(-self.rows // self.height) - self.cut_again

        def work(index: int, _stop: int, worker: int) -> None:
            tile, part = (index, 0) if index < whole else divmod(index - whole, _CUTS)
            macro_tile = self._tile(tile, 1, 0) if index < whole else self._tile(whole + tile, _CUTS, part)
            if macro_tile.row < macro_tile.last_row:
                compute(macro_tile, memory[worker])

        parallel_for(work, whole + self.cut_again * _CUTS, threads)

    def _tile(self, index: int, parts: int, part: int) -> MacroTile:
        """One of the parts of a macro tile."""
        chunk, panel = divmod(index, self.panels)
        row, column = chunk * self.height, panel * self.width
        last, high = min(row + self.height, self.rows), -(-self.height // self.block // parts) * self.block
        return MacroTile(row + part * high, min(row + part * high + high, last), column, min(column + self.width, self.columns))


def cut(rows: int, columns: int, tile: tuple[int, int], threads: int, highest: int, per_thread: int) -> MacroTiles:
    """MacroTiles of whole blocks of rows by panels, a `tile` being a block by a panel.

    Chunks have at most about `highest` rows, and there are as many as give each of several threads so many macro tiles.
    Where they are tall, the last ones are cut again.
    """
    block, panel = tile
    blocks, panels = -(-rows // block), -(-columns // panel)
    wanted = min(-(-per_thread * threads // panels), -(-blocks // FEWEST_BLOCKS)) if threads > 1 else 1
    chunks = max(-(-rows // highest), wanted)
    high = -(-blocks // chunks)
    again = min(_LAST_ROUNDS * threads, panels * chunks) if threads > 1 and high * block >= _TALL else 0
    return MacroTiles(rows, columns, high * block, panel, block, again)


def finish_empty(depth: int, c: NDArray[Any] | None, out: NDArray[Any]) -> bool:
    """Handle empty products, and tell whether there was one: for K = 0, copy `c` into the results."""
    if depth == 0:
        out[...] = 0 if c is None else c
    return depth == 0 or out.size == 0


class FallbackMask:
    """Marks of what a fast path leaves to another kernel: rows, columns, and rows of panels."""

    def __init__(self, macro_tiles: MacroTiles) -> None:
        self.width = macro_tiles.width
        self.rows: NDArray[np.bool_] = np.zeros(macro_tiles.rows, np.bool_)
        self.columns: NDArray[np.bool_] = np.zeros(macro_tiles.columns, np.bool_)
        self.parts: NDArray[np.bool_] = np.zeros((macro_tiles.panels, macro_tiles.rows), np.bool_)

    def places(self) -> Iterator[tuple[Index, Index]]:
        """List the rows and columns that together hold all that is marked; of the two one at most is an array."""
        every = slice(None)
        if self.rows.any():
            yield _chosen(self.rows), every
        if self.columns.any():
            yield every, _chosen(self.columns)
        parts = self.parts & ~self.rows
        for panel in np.flatnonzero(parts.any(axis=1)).tolist():
            yield _chosen(parts[panel]), slice(panel * self.width, (panel + 1) * self.width)


def _chosen(marks: NDArray[np.bool_]) -> Index:
    """Return where there are marks, at least one."""
    places = np.flatnonzero(marks)
    first, last = int(places[0]), int(places[-1]) + 1
    return slice(first, last) if last - first == len(places) else places
