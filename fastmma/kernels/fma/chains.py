"""Products by chains of fused multiply-adds in register tiles, cut into pieces for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fma.chain_kernel import DEPTH, FmaChain, chain_of, run
from fastmma.kernels.matrices.memory import aligned_empty
from fastmma.kernels.pieces import OfWorkers, Piece, cut
from fastmma.kernels.tiles import CHAINS, first_fit

_FEWEST = 1 << 16  # fma of a product for which panels are packed
_CHUNK_ROWS = 512  # whose sums stay in the second-level cache, with a slab of B
_SLAB = 512  # k of a slab of B
_PACKED_BLOCKS = 16
_PIECES_PER_THREAD = 2

Write = Callable[[slice, slice, NDArray[Any]], None]


def chain(bits: int, links: int = 0, half: bool = False) -> FmaChain | None:
    """A chain on this CPU, if it has vectors for it."""
    tile = first_fit(CHAINS)
    return None if tile is None else chain_of(tile, bits, links, half)


def is_large(rows: int, columns: int, depth: int) -> bool:
    """Whether a product is large enough for panels, and its k fills the kernel."""
    return rows * columns * depth >= _FEWEST and depth % DEPTH == 0 and min(rows, columns) >= DEPTH


def multiply(how: FmaChain, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, threads: int, write: Write) -> None:
    """Call ``write(rows, columns, sums)`` for all parts of the sums of products of `a` (M, K) and `b` (K, N), which start from `c` or +0.

    Elements are of `how.dtype`; strides are any. `write` may change the sums, and is called by several threads, once for each part.
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
    pieces = cut(rows, columns, (how.rows, how.columns), threads, _CHUNK_ROWS, _PIECES_PER_THREAD)

    def memory() -> tuple[NDArray[Any], NDArray[Any]]:
        high = -(-pieces.height // how.rows)
        return aligned_empty((high, how.rows, how.columns), how.dtype), aligned_empty((min(_SLAB, depth), how.columns), how.dtype)

    def compute(piece: Piece, work: tuple[NDArray[Any], NDArray[Any]]) -> None:
        first, last = piece.row // how.rows, -(-piece.last_row // how.rows)
        at_rows, at_columns = slice(piece.row, piece.last_row), slice(piece.column, piece.last_column)
        high, wide = piece.last_row - piece.row, piece.last_column - piece.column
        tiles, slab = work[0][: last - first], work[1]
        sums = tiles.reshape(-1, how.columns)
        sums[...] = 0
        if c is not None:
            sums[:high, :wide] = c[at_rows, at_columns]
        for start in range(0, depth, _SLAB):
            part = slab[: min(_SLAB, depth - start)]
            part[:, :wide] = b[start : start + len(part), at_columns]
            part[:, wide:] = 0
            run(how, panels[first:last, start : start + len(part)], part, tiles)
        write(at_rows, at_columns, sums[:high, :wide])

    pieces.run(threads, OfWorkers(memory), compute)
