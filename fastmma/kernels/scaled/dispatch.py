"""Block-scaled products: whole matrices, and batches of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.params import Scaled
from fastmma.kernels.pieces import OfWorkers, Piece, Pieces, finish_empty
from fastmma.kernels.scaled import groups, products
from fastmma.kernels.scaled import portable as portable
from fastmma.kernels.scaled.group_tiles import group_tiles
from fastmma.kernels.scaled.lines import Operands
from fastmma.kernels.scaled.tiles import scaled_tiles

Codes = NDArray[Any]

_PANEL = 64  # columns
_BATCH = 256  # tiles decoded at a time
_ROWS = 64  # of a piece
_PANELS = 8  # of a thread, decoded at a time


def _state(c: Codes | None, rows: int, columns: portable.Lines) -> NDArray[np.uint32]:
    """c (T, m, n) or zeros in panels."""
    tiles, panels, _depth, width = columns.values.shape
    return np.zeros((tiles, panels, rows, width), np.uint32) if c is None else portable.paneled(c, width)


def _unpaneled(state: NDArray[np.uint32], columns: int) -> NDArray[np.uint32]:
    tiles, _panels, rows, _width = state.shape
    return state.transpose(0, 2, 1, 3).reshape(tiles, rows, -1)[:, :, :columns]


def tiles(p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> None:
    """Write ``a @ b`` with block scaling, accumulated onto `c` (None: +0), to `out`, for every tile of a batch.

    a (T, m, k), b (T, k, n) and their scales (T, m, blocks) and (T, blocks, n) are codes; c and out (T, m, n) are f32 bits.
    """
    if finish_empty(a.shape[2], c, out):
        return
    shape = (*out.shape[1:], a.shape[2])
    fast = scaled_tiles(p, *shape) or group_tiles(p, *shape)
    if fast is None:
        _portable_tiles(p, a, b, c, out, scale_a, scale_b, threads)
        return
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()
    redo = np.flatnonzero(fast.run(a, b, c, out, scale_a, scale_b, threads))
    if redo.size:
        results = np.empty((redo.size, *out.shape[1:]), out.dtype)
        before = None if c is None else c[redo]
        _portable_tiles(p, a[redo], b[redo], before, results, scale_a[redo], scale_b[redo], threads)
        out[redo] = results


def _portable_tiles(p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> None:
    """Tiles of at least one k, on any CPU."""
    _tiles, rows, columns = out.shape

    def multiply(start: int, stop: int, _worker: int) -> None:
        part = slice(start, stop)
        left = portable.rows_of(p, a[part], scale_a[part])
        right = portable.columns_of(p, b[part], scale_b[part], min(columns, _PANEL))
        state = _state(None if c is None else c[part], rows, right)
        special = portable.special(p.a, left) or portable.special(p.b, right)
        portable.multiply(p, left, right, special, state, (0, len(state)), (0, state.shape[1]), (0, rows))
        out[part] = _unpaneled(state, columns)

    parallel_for(multiply, len(out), threads, grain=_BATCH)


def _portable_gemm(p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> None:
    """A product of at least one k, on any CPU; `out` may be `c`, but not overlap it otherwise."""
    rows, columns = out.shape
    width = min(columns, _PANEL)
    left = portable.rows_of(p, a[None], scale_a[None])
    special = portable.special(p.a, left)
    at_once = _PANELS * threads * width
    for first in range(0, columns, at_once):
        part = slice(first, first + at_once)
        right = portable.columns_of(p, b[None, :, part], scale_b[None, :, part], width)
        state = _state(None if c is None else c[None, :, part], rows, right)
        either = special or portable.special(p.b, right)

        def multiply(piece: Piece, _memory: None) -> None:
            panel = piece.column // width
            portable.multiply(p, left, right, either, state, (0, 1), (panel, panel + 1), piece[:2])  # noqa: B023

        Pieces(rows, right.values.shape[1] * width, _ROWS, width).run(threads, OfWorkers(lambda: None), multiply)
        out[:, part] = _unpaneled(state, columns - first)[0]


def gemm(
    p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int, small: bool = True
) -> None:
    """Write ``a @ b`` with block scaling, accumulated onto `c` (None: +0) in steps of ascending k, to `out`.

    a (M, K), b (K, N) and their scales (M, blocks) and (blocks, N) are codes, c and out (M, N) f32 bits, of any strides; `out` may be `c`.
    Groups without c are tried in one go where the product is `small`.
    """
    if finish_empty(a.shape[1], c, out):
        return
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()
    if groups.supported(p):
        groups.gemm(p, Operands(a, b, c, out, scale_a, scale_b), threads, _portable_gemm, small)
    elif products.supported(p):
        products.gemm(p, Operands(a, b, c, out, scale_a, scale_b), threads, _portable_gemm)
    else:
        _portable_gemm(p, a, b, c, out, scale_a, scale_b, threads)
