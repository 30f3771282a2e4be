"""Chains of IEEE fused multiply-adds in f64, in four rounding modes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fma.chains import config_of, multiply
from fastmma.kernels.fma.directed import directed_fma
from fastmma.kernels.fma.product import STEPS, ChainArguments, each_block, each_tile, product_of, tile
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.simd import any_lane, bitcast, extract, fma, load, load_scalar, splat, store, zeros
from fastmma.kernels.matrices.addresses import LINES, matrix_part

_ROUNDINGS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
_DIRECTED_STEPS = 1 << 20  # of a piece, each as long as some dozen to nearest
_QUIET = np.uint64(1 << 51)
_INVALID = np.uint64(0xFFF8000000000000)  # of inf - inf and 0 x inf


@inner
def _f64_step(rounding: int, a: float, b: float, c: float) -> Any:
    """``a * b + c``; the first NaN of b, c and a comes through, made quiet."""
    for operand in (b, c, a):
        if np.isnan(operand):
            return bitcast(bitcast(operand, np.uint64) | _QUIET, np.float64)
    nearest = fma(a, b, c)
    if np.isnan(nearest):
        return bitcast(_INVALID, np.float64)
    if rounding == 0 or np.isinf(a) or np.isinf(b) or np.isinf(c):
        return nearest
    return directed_fma(rounding, a, b, c)


@separate
def _f64_element(rounding: int, product: ChainArguments, row: int, column: int) -> None:
    """One result, step by step."""
    total = 0.0
    if product.c.address != 0:
        total = load_scalar(matrix_part(product.c, row, column).address, np.float64)
    a = matrix_part(product.a, row, 0)
    b = matrix_part(product.b, 0, column)
    for k in range(product.depth):
        x = load_scalar(a.address + k * a.column_stride, np.float64)
        total = _f64_step(rounding, x, load_scalar(b.address + k * b.row_stride, np.float64), total)
    store(total, matrix_part(product.out, row, column).address)


@inner
def _f64_row(product: ChainArguments, total: Any, row: int, column: int) -> None:
    """8 results of a row to out; the ones that are NaN are done again step by step, before their c is overwritten."""
    place = matrix_part(product.out, row, column).address
    if not any_lane(total != total):
        store(total, place)
        return
    for lane in range(LINES):
        result = extract(total, lane)
        if np.isnan(result):
            _f64_element(0, product, row, column + lane)
        else:
            store(result, place + 8 * lane)


@inner
def _f64_block(product: ChainArguments, row: int, column: int) -> None:
    """4 rows by 8 columns to nearest; elements are adjacent in the rows of b, c and out."""
    total0 = zeros(np.float64, LINES)
    total1 = total0
    total2 = total0
    total3 = total0
    if product.c.address != 0:
        c = matrix_part(product.c, row, column)
        total0 = load(c.address, np.float64, LINES)
        total1 = load(c.address + c.row_stride, np.float64, LINES)
        total2 = load(c.address + 2 * c.row_stride, np.float64, LINES)
        total3 = load(c.address + 3 * c.row_stride, np.float64, LINES)
    a = matrix_part(product.a, row, 0)
    b = matrix_part(product.b, 0, column)
    for k in range(product.depth):
        place = a.address + k * a.column_stride
        line = load(b.address + k * b.row_stride, np.float64, LINES)
        total0 = fma(splat(load_scalar(place, np.float64), LINES), line, total0)
        total1 = fma(splat(load_scalar(place + a.row_stride, np.float64), LINES), line, total1)
        total2 = fma(splat(load_scalar(place + 2 * a.row_stride, np.float64), LINES), line, total2)
        total3 = fma(splat(load_scalar(place + 3 * a.row_stride, np.float64), LINES), line, total3)
    _f64_row(product, total0, row, column)
    _f64_row(product, total1, row + 1, column)
    _f64_row(product, total2, row + 2, column)
    _f64_row(product, total3, row + 3, column)


@compiled
def _f64_run(rounding: int, batch: ChainArguments, first: int, last: int, first_column: int, last_column: int) -> None:
    """Some columns of products `first` to `last`."""
    for index in range(first, last):
        product = tile(batch, index)
        c_stride = product.c.column_stride if product.c.address != 0 else 8
        adjacent = product.b.column_stride == 8 and c_stride == 8 and product.out.column_stride == 8
        for column in range(first_column, last_column, LINES):
            whole = rounding == 0 and adjacent and column + LINES <= last_column
            done = 0
            if whole:
                done = product.rows // 4 * 4
                for row in range(0, done, 4):
                    _f64_block(product, row, column)
            for row in range(done, product.rows):
                for each in range(column, min(column + LINES, last_column)):
                    _f64_element(rounding, product, row, each)


def gemm(
    rounding: str, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None, out: NDArray[np.float64], threads: int
) -> None:
    """``out = a @ b + c`` (None: +0) as a chain of fma over ascending k, each rounded to "rn", "rz", "rm" or "rp".

    Any strides; `out` may be `c`. The first NaN of b, c and a comes through every fma, made quiet; an invalid one gives -NaN.
    """
    mode = _ROUNDINGS[rounding]
    steps = _DIRECTED_STEPS if mode else STEPS
    each_block(product_of(a, b, c, out), steps, threads, lambda rows, start, stop: _f64_run(mode, rows, 0, 1, start, stop))


def by_panels(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None, out: NDArray[np.float64], threads: int
) -> None:
    """Write what `gemm` does to nearest, from packed panels; K is a multiple of `DEPTH`."""
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()

    def write(rows: slice, columns: slice, sums: NDArray[np.float64]) -> None:
        out[rows, columns] = sums
        if not np.isnan(sums.max()):
            return
        for row in np.flatnonzero(np.isnan(sums).any(axis=1)):  # whose NaNs are to be those of their operands
            at = slice(rows.start + row, rows.start + row + 1), columns
            each = product_of(a[at[0]], b[:, columns], None if c is None else c[at], out[at])
            _f64_run(0, each, 0, 1, 0, each.columns)

    multiply(config_of(64), a, b, c, threads, write)


def tiles(
    rounding: str, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None, out: NDArray[np.float64], threads: int
) -> None:
    """``out = a @ b + c`` as `gemm` has it, for many: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    batch = product_of(a, b, c, out)
    mode = _ROUNDINGS[rounding]
    if out.size:
        each_tile(len(out), threads, lambda start, stop: _f64_run(mode, batch, start, stop, 0, batch.columns))
