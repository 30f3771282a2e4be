"""Chains of IEEE fused multiply-adds in f32, to nearest, k ascending."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fma.chain_kernel import DEPTH, FmaConfig
from fastmma.kernels.fma.chains import config_of, multiply
from fastmma.kernels.fma.product import STEPS, ChainArguments, each_block, each_tile, product_of, tile
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.simd import bitcast, fma, load, load_scalar, select, splat, store, zeros
from fastmma.kernels.macro_tiles import finish_empty
from fastmma.kernels.matrices.accumulators import NAN
from fastmma.kernels.matrices.addresses import LINES, matrix_part


@separate
def _element(product: ChainArguments, row: int, column: int) -> None:
    """One result."""
    total = np.float32(0)
    if product.c.address != 0:
        total = load_scalar(matrix_part(product.c, row, column).address, np.float32)
    a = matrix_part(product.a, row, 0)
    b = matrix_part(product.b, 0, column)
    for k in range(product.depth):
        x = load_scalar(a.address + k * a.column_stride, np.float32)
        total = fma(x, load_scalar(b.address + k * b.row_stride, np.float32), total)
    if np.isnan(total):
        total = bitcast(np.int32(NAN), np.float32)
    store(total, matrix_part(product.out, row, column).address)


@inner
def _row(product: ChainArguments, row: int, column: int) -> None:
    """8 results of a row; elements are adjacent in the rows of b, c and out."""
    total = zeros(np.float32, LINES)
    if product.c.address != 0:
        total = load(matrix_part(product.c, row, column).address, np.float32, LINES)
    a = matrix_part(product.a, row, 0)
    b = matrix_part(product.b, 0, column)
    for k in range(product.depth):
        x = load_scalar(a.address + k * a.column_stride, np.float32)
        total = fma(splat(x, LINES), load(b.address + k * b.row_stride, np.float32, LINES), total)
    bits = select(total != total, splat(np.int32(NAN), LINES), bitcast(total, np.int32))
    store(bits, matrix_part(product.out, row, column).address)


@compiled
def _run(batch: ChainArguments, first: int, last: int, first_column: int, last_column: int) -> None:
    """Some columns of products `first` to `last`."""
    for index in range(first, last):
        product = tile(batch, index)
        c_stride = product.c.column_stride if product.c.address != 0 else 4
        adjacent = product.b.column_stride == 4 and c_stride == 4 and product.out.column_stride == 4
        for column in range(first_column, last_column, LINES):
            whole = adjacent and column + LINES <= last_column
            for row in range(product.rows):
                if whole:
                    _row(product, row, column)
                else:
                    for each in range(column, min(column + LINES, last_column)):
                        _element(product, row, each)


def gemm(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], threads: int) -> None:
    """``out = a @ b + c`` (None: +0) of float32 matrices, as a chain of fma over ascending k from c; NaN is canonical.

    `a` (M, K), `b` (K, N), `c` and `out` (M, N); any strides; `out` may be `c`.
    """
    if not finish_empty(a.shape[1], c, out):
        each_block(product_of(a, b, c, out), STEPS, threads, lambda lines, start, stop: _run(lines, 0, 1, start, stop))


def tiles(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], threads: int) -> None:
    """``out = a @ b + c`` as `gemm` has it, for many: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    if not finish_empty(a.shape[2], c, out):
        batch = product_of(a, b, c, out)
        each_tile(len(out), threads, lambda start, stop: _run(batch, start, stop, 0, batch.columns))


def by_panels(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], threads: int) -> None:
    """Write one product as `gemm` does, from packed panels."""
    multiply_whole(config_of(32), a, b, c, out, threads)


def multiply_whole(how: FmaConfig, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], threads: int) -> None:
    """Write one product by any chains of f32, from packed panels.

    Products of +0 and -0 fill the last k up: they are -0, which leaves every sum as it is.
    """
    missing = -a.shape[1] % DEPTH
    if missing:
        a = np.concatenate([a, np.zeros((len(a), missing), np.float32)], 1)
        b = np.concatenate([b, np.full((missing, b.shape[1]), -0.0, np.float32)], 0)
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()

    def write(at_rows: slice, at_columns: slice, sums: NDArray[np.float32]) -> None:
        sums.view(np.uint32)[np.isnan(sums)] = NAN
        out[at_rows, at_columns] = sums

    multiply(how, a, b, c, threads, write)
