"""The IEEE yardstick: an f32 matrix product that adds in ascending k, every multiplication and addition rounded to nearest."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.simd import load, load_scalar, splat, store

_ROWS = 16
_COLUMNS = 256
_DEPTH = 256  # a block of b of this depth stays in the second-level cache
_LANES = 16
_ITEM = 4  # bytes of an element


class Rows(NamedTuple):
    """Addresses of rows of a and of the result, and of b, all in C order; columns are whole vectors."""

    a: int
    b: int
    out: int
    depth: int
    columns: int


@inner
def _products(p: Rows, row: int, k: int, column: int) -> Any:
    """One k's products of an element of a row of a and a vector of b."""
    factor = splat(load_scalar(p.a + _ITEM * (row * p.depth + k), np.float32), _LANES)
    return factor * load(p.b + _ITEM * (k * p.columns + column), np.float32, _LANES)


@compiled
def add_products(p: Rows, rows: int) -> None:
    """Add a @ b to rows of the result, in blocks of b that stay in the cache, four k to a visit of a result."""
    for left in range(0, p.columns, _COLUMNS):
        right = min(left + _COLUMNS, p.columns)
        for first in range(0, p.depth, _DEPTH):
            stop = min(first + _DEPTH, p.depth)
            fours = first + (stop - first) // 4 * 4
            for row in range(rows):
                start = p.out + _ITEM * row * p.columns
                for k in range(first, fours, 4):
                    for column in range(left, right, _LANES):
                        total = load(start + _ITEM * column, np.float32, _LANES) + _products(p, row, k, column)
                        total = total + _products(p, row, k + 1, column) + _products(p, row, k + 2, column)
                        store(total + _products(p, row, k + 3, column), start + _ITEM * column)
                for k in range(fours, stop):
                    for column in range(left, right, _LANES):
                        total = load(start + _ITEM * column, np.float32, _LANES)
                        store(total + _products(p, row, k, column), start + _ITEM * column)


@cache
def _kernel() -> Callable[..., None]:
    """`add_products`, emitted."""
    return emitted(add_products, kinds.kind_of(Rows(0, 0, 0, 0, 0)), kinds.int64)


def _whole_vectors(values: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """A copy in C order, with columns of zeros up to that many."""
    found = np.zeros((len(values), columns), np.float32)
    found[:, : values.shape[1]] = values
    return found


def gemm(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32] | None, threads: int) -> NDArray[np.float32]:
    """``c + a @ b`` in f32, one product at a time."""
    (m, depth), n = a.shape, b.shape[1]
    columns = -(-n // _LANES) * _LANES
    left, right = np.ascontiguousarray(a, dtype=np.float32), _whole_vectors(b, columns)
    out = np.zeros((m, columns), np.float32) if c is None else _whole_vectors(c, columns)
    run = _kernel()

    def work(start: int, stop: int, _worker: int) -> None:
        rows = Rows(address_of(left) + start * left.strides[0], address_of(right), address_of(out) + start * out.strides[0], depth, columns)
        run(rows, stop - start)

    parallel_for(work, m, threads, _ROWS)
    return np.ascontiguousarray(out[:, :n])
