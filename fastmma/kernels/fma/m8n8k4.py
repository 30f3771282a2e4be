"""The f32 chains that a lowered m8n8k4 with f16 runs as."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fma.chains import config_of, multiply
from fastmma.kernels.fma.product import STEPS, ChainArguments, each_block, each_tile, product_of, tile
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import bitcast, fma, load_pair, load_twice, select, splat
from fastmma.kernels.macro_tiles import finish_empty
from fastmma.kernels.matrices.accumulators import CANONICAL_HALF_NAN, INFINITY, MAGNITUDE, NAN, SIGN, half_rounded, load_rows, store_rows
from fastmma.kernels.matrices.addresses import LANES, LINES, Lines, matrix_part, pack_lines
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import Element, Specials

_F16 = Element(exponent_bits=5, mantissa_bits=10, bias=15, shift=0, specials=Specials.IEEE.value)


@inner
def _f32_rows(product: ChainArguments, pairs: bool, a_values: int, b_values: int, row: int, column: int) -> None:
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
    element: Element, batch: ChainArguments, pairs: bool, first: int, last: int, first_column: int, last_column: int, scratch: int
) -> None:
    """Some columns of products `first` to `last`."""
    padded_depth = -(-batch.depth // LINES) * LINES
    a_values = scratch
    b_values = a_values + 4 * LINES * padded_depth
    exponents = b_values + 4 * LINES * padded_depth
    for index in range(first, last):
        product = tile(batch, index)
        for column in range(first_column, last_column, LINES):
            b = matrix_part(product.b, 0, column)
            lines = Lines(b.address, b.column_stride, b.row_stride, b.itemsize)
            pack_lines(element, lines, None, product.columns - column, product.depth, padded_depth, b_values, exponents, np.float32)
            for block in range(0, product.rows, LINES):
                a = matrix_part(product.a, block, 0)
                lines = Lines(a.address, a.row_stride, a.column_stride, a.itemsize)
                pack_lines(element, lines, None, product.rows - block, product.depth, padded_depth, a_values, exponents, np.float32)
                for row in range(block, min(block + LINES, product.rows), 2):
                    _f32_rows(product, pairs, a_values, b_values, row, column)


def _f32_scratch(depth: int) -> AlignedMemory:
    """Two panels of 8 lines in float32, and exponents that nobody reads."""
    return AlignedMemory((4 + 4 + 2) * LINES * (-(-depth // LINES) * LINES))


def _unchanged(a: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any]) -> bool:
    """Tell whether nothing is to be computed: without k, c stays as it is, unless it has another format than the results."""
    return (c is None or c.itemsize == out.itemsize) and finish_empty(a.shape[-1], c, out)


def gemm(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], pairs: bool, threads: int) -> None:
    """The lowered f16 m8n8k4 over any k: for every four k a chain of f32 fma from +0, and one f32 addition of c.

    `pairs`: two chains of two products, ``(c + first) + second``. `a` (M, K) and `b` (K, N) are f16 codes, `c` (None: +0) and `out`
    f32 or f16 codes; an f16 out is rounded once more after every four k. Any strides; `out` may be `c`.
    """
    if _unchanged(a, c, out):
        return
    product = product_of(a, b, c, out)

    def run(rows: ChainArguments, start: int, stop: int) -> None:
        memory = _f32_scratch(product.depth)
        _f32_run(_F16, rows, pairs, 0, 1, start, stop, memory.address)

    each_block(product, STEPS, threads, run)


def _floats(codes: NDArray[Any]) -> NDArray[np.float32]:
    """f16 or f32 codes as numbers."""
    with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
        return codes.view(np.float16).astype(np.float32) if codes.itemsize == 2 else codes.view(np.float32)


def by_panels(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], pairs: bool, threads: int) -> None:
    """Write what `gemm` does, from packed panels; K is a multiple of `DEPTH`."""
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()

    def write(rows: slice, columns: slice, sums: NDArray[np.float32]) -> None:
        with np.errstate(invalid="ignore"):
            codes = (sums.astype(np.float16).view(np.uint16) if out.itemsize == 2 else sums.view(np.uint32)).astype(out.dtype, copy=False)
        codes[np.isnan(sums)] = CANONICAL_HALF_NAN if out.itemsize == 2 else NAN
        out[rows, columns] = codes

    how = config_of(32, 2 if pairs else 4, half=out.itemsize == 2)
    multiply(how, _floats(a), _floats(b), None if c is None else _floats(c), threads, write)


def tiles(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], pairs: bool, threads: int) -> None:
    """Chains of four or two products as `gemm` has them, for many: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    if _unchanged(a, c, out):
        return
    batch = product_of(a, b, c, out)

    def run(start: int, stop: int) -> None:
        memory = _f32_scratch(batch.depth)
        _f32_run(_F16, batch, pairs, start, stop, 0, batch.columns, memory.address)

    if out.size:
        each_tile(len(out), threads, run)
