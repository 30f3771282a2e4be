"""Chains of IEEE fused multiply-adds: f64 in four rounding modes, and the f32 chains that a lowered m8n8k4 runs as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fma.directed import directed_fma
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import (
    any_lane,
    bitcast,
    extract,
    fma,
    inner,
    load,
    load_pair,
    load_scalar,
    load_twice,
    select,
    separate,
    splat,
    store,
    zeros,
)
from fastmma.kernels.matrices.accumulators import INFINITY, MAGNITUDE, NAN, SIGN, half_rounded, load_rows, store_rows
from fastmma.kernels.matrices.addresses import (
    LANES,
    LINES,
    NOWHERE,
    Lines,
    Matrix,
    batch_matrix,
    matrix,
    matrix_part,
    pack_lines,
)
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import Element

_F16 = Element(exponent_bits=5, mantissa_bits=10, bias=15, shift=0, specials=1)
_ROUNDINGS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
_TILES_AT_ONCE = 256
_QUIET = np.uint64(1 << 51)
_INVALID = np.uint64(0xFFF8000000000000)  # of inf - inf and 0 x inf


class _Product(NamedTuple):
    """A multiplication: where its matrices lie and how large they are."""

    a: Matrix
    b: Matrix
    c: Matrix
    out: Matrix
    rows: int
    columns: int
    depth: int


@inner
def _tile(batch: _Product, index: int) -> _Product:
    """Product `index` of a contiguous batch."""
    return _Product(
        batch_matrix(batch.a, index, batch.rows * batch.depth),
        batch_matrix(batch.b, index, batch.depth * batch.columns),
        batch_matrix(batch.c, index, batch.rows * batch.columns),
        batch_matrix(batch.out, index, batch.rows * batch.columns),
        batch.rows,
        batch.columns,
        batch.depth,
    )


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
def _f64_element(rounding: int, product: _Product, row: int, column: int) -> None:
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
def _f64_row(product: _Product, total: Any, row: int, column: int) -> None:
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
def _f64_block(product: _Product, row: int, column: int) -> None:
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
def _f64_run(rounding: int, batch: _Product, first: int, last: int, first_column: int, last_column: int) -> None:
    """Some columns of products `first` to `last`."""
    for index in range(first, last):
        product = _tile(batch, index)
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


def _product(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any]) -> _Product:
    rows, columns = out.shape[-2:]
    return _Product(matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out), rows, columns, a.shape[-1])


def _each_tile(count: int, threads: int, run: Callable[[int, int], None]) -> None:
    parallel_for(lambda start, stop, _worker: run(start, stop), count, threads, grain=_TILES_AT_ONCE)


def f64_gemm(
    rounding: str, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None, out: NDArray[np.float64], threads: int
) -> None:
    """``out = a @ b + c`` (None: +0) as a chain of fma over ascending k, each rounded to "rn", "rz", "rm" or "rp".

    Any strides; `out` may be `c`. The first NaN of b, c and a comes through every fma, made quiet; an invalid one gives -NaN.
    """
    product = _product(a, b, c, out)
    mode = _ROUNDINGS[rounding]

    def run(start: int, stop: int, _worker: int) -> None:
        _f64_run(mode, product, 0, 1, LINES * start, min(LINES * stop, product.columns))

    if out.size:
        parallel_for(run, -(-product.columns // LINES), threads)


def f64_tiles(
    rounding: str, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None, out: NDArray[np.float64], threads: int
) -> None:
    """The same for a batch: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    batch = _product(a, b, c, out)
    mode = _ROUNDINGS[rounding]
    if out.size:
        _each_tile(len(out), threads, lambda start, stop: _f64_run(mode, batch, start, stop, 0, batch.columns))


@inner
def _f32_rows(product: _Product, pairs: bool, a_values: int, b_values: int, row: int, column: int) -> None:
    """Two rows by 8 columns. A sum of products starts at +0, in pairs the first product is a plain multiplication."""
    rows = product.rows
    columns = product.columns - column
    lines = matrix_part(product.c, 0, column) if product.c.address != 0 else product.c
    total = bitcast(load_rows(lines, row, rows, columns), np.float32)
    a = a_values + 4 * (row % LINES)
    start = bitcast(splat(np.int32(SIGN if pairs else 0), LANES), np.float32)
    for k in range(0, product.depth, 4):
        place = a + 4 * LINES * k
        line = b_values + 4 * LINES * k
        chain = fma(load_pair(place, np.float32, LANES), load_twice(line, np.float32, LANES), start)
        chain = fma(load_pair(place + 32, np.float32, LANES), load_twice(line + 32, np.float32, LANES), chain)
        if pairs:
            total = total + chain
            chain = start
        chain = fma(load_pair(place + 64, np.float32, LANES), load_twice(line + 64, np.float32, LANES), chain)
        chain = fma(load_pair(place + 96, np.float32, LANES), load_twice(line + 96, np.float32, LANES), chain)
        total = total + chain
        if product.out.itemsize == 2:
            bits = bitcast(total, np.int32)
            magnitude = bits & MAGNITUDE
            half = select(magnitude > INFINITY, NAN, half_rounded(magnitude) | (bits & SIGN))
            total = bitcast(half, np.float32)
    bits = bitcast(total, np.int32)
    store_rows(select((bits & MAGNITUDE) > INFINITY, NAN, bits), matrix_part(product.out, 0, column), row, rows, columns)


@compiled
def _f32_run(
    element: Element, batch: _Product, pairs: bool, first: int, last: int, first_column: int, last_column: int, scratch: int
) -> None:
    """Some columns of products `first` to `last`."""
    padded_depth = -(-batch.depth // LINES) * LINES
    a_values = scratch
    b_values = a_values + 4 * LINES * padded_depth
    exponents = b_values + 4 * LINES * padded_depth
    for index in range(first, last):
        product = _tile(batch, index)
        for column in range(first_column, last_column, LINES):
            b = matrix_part(product.b, 0, column)
            lines = Lines(b.address, b.column_stride, b.row_stride, b.itemsize)
            pack_lines(element, lines, product.columns - column, product.depth, padded_depth, b_values, exponents, np.float32)
            for block in range(0, product.rows, LINES):
                a = matrix_part(product.a, block, 0)
                lines = Lines(a.address, a.row_stride, a.column_stride, a.itemsize)
                pack_lines(element, lines, product.rows - block, product.depth, padded_depth, a_values, exponents, np.float32)
                for row in range(block, min(block + LINES, product.rows), 2):
                    _f32_rows(product, pairs, a_values, b_values, row, column)


def _f32_scratch(depth: int) -> AlignedMemory:
    """Two panels of 8 lines in float32, and exponents that nobody reads."""
    return AlignedMemory((4 + 4 + 2) * LINES * (-(-depth // LINES) * LINES))


def f32_chain_gemm(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], pairs: bool, threads: int) -> None:
    """The lowered f16 m8n8k4 over any k: for every four k a chain of f32 fma from +0, and one f32 addition of c.

    `pairs`: two chains of two products, ``(c + first) + second``. `a` (M, K) and `b` (K, N) are f16 codes, `c` (None: +0) and `out`
    f32 or f16 codes; an f16 out is rounded once more after every four k. Any strides; `out` may be `c`.
    """
    product = _product(a, b, c, out)

    def run(start: int, stop: int, _worker: int) -> None:
        memory = _f32_scratch(product.depth)
        _f32_run(_F16, product, pairs, 0, 1, LINES * start, min(LINES * stop, product.columns), memory.address)

    if out.size:
        parallel_for(run, -(-product.columns // LINES), threads)


def f32_chain_tiles(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], pairs: bool, threads: int) -> None:
    """The same for a batch: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    batch = _product(a, b, c, out)

    def run(start: int, stop: int) -> None:
        memory = _f32_scratch(batch.depth)
        _f32_run(_F16, batch, pairs, start, stop, 0, batch.columns, memory.address)

    if out.size:
        _each_tile(len(out), threads, run)
