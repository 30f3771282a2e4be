"""The fused dot-product-add, exactly, on any CPU: align, truncate, sum, round once.

A vector holds 16 results, two rows by 8 columns: lane 2 * column + row. Products are exact in the panels' dtype; scaled by
2**(align_bits - emax) their integer parts are the truncated terms. In float32 panels these are summed as int32, which holds for finite
elements of moderate exponents; every other block is decoded again to float64, where infinities and NaNs follow from IEEE arithmetic.
An accumulator is kept as float32 bits, also for f16 results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fastmma.kernels.operands import LINES, NOWHERE, ZERO_EXPONENT, Matrix, load_codes, matrix, pack_lines, pointed
from fastmma.kernels.params import Fused
from fastmma.kernels.simd import (
    bitcast,
    convert,
    even_lanes,
    extract,
    integer_part,
    interleave,
    itemsize_of,
    load,
    load_pair,
    load_scalar,
    maximum,
    minimum,
    odd_lanes,
    pointer,
    power_of_two,
    select,
    splat,
    store,
    truncated,
    zeros,
)
from fastmma.threads import parallel_for

LANES = 2 * LINES
INT32_TERMS = 16  # that many products below 2**27 sum up within int32

FLOAT32_LOWEST = -100  # exponents of float32 panels' elements, and of their products, lie between these two
FLOAT32_HIGHEST = 120
FLOAT64_LOWEST = -900

INFINITY = 0x7F800000
NAN = 0x7FFFFFFF
HALF_INFINITY = 0x7C00
HALF_NAN = 0x7FFF
REBIAS_64_TO_32 = (1023 - 127) << 23
REBIAS_32_TO_16 = (127 - 15) << 10
SIGN_32 = -0x80000000
MAGNITUDE_32 = 0x7FFFFFFF
MAGNITUDE_64 = 0x7FFFFFFFFFFFFFFF


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def rounded(p: Fused, value: Any) -> Any:
    """Lanes of float64 rounded to the result's format, as float32 bits; a zero is +0, a NaN canonical."""
    bits = bitcast(value, np.int64)
    magnitude = bitcast(bits & MAGNITUDE_64, np.float64)
    if p.half != 0:
        # a subnormal has the quantum of the lowest binade: round it there
        offset = select(magnitude < 2.0**-14, 2.0**-14, zeros(np.float64, LANES))
        shifted = bitcast(magnitude + offset, np.int64)
        shifted = (shifted + 0x1FFFFFFFFFF + ((shifted >> 42) & 1)) & ~0x3FFFFFFFFFF
        nearest = bitcast(shifted, np.float64) - offset
        result = convert((bitcast(nearest, np.int64) >> 29) - REBIAS_64_TO_32, np.int32)
        result = select(nearest == 0.0, 0, select(nearest >= 65536.0, INFINITY, result))
    else:
        normal = convert(minimum((bitcast(magnitude, np.int64) >> 29) - REBIAS_64_TO_32, INFINITY), np.int32)
        subnormal = convert(magnitude * 2.0**149, np.int32)
        result = select(magnitude < 2.0**-126, subnormal, normal) & (-1 << (23 - p.keep_bits))
    sign = convert(bits >> 32, np.int32) & SIGN_32
    result = select(result == 0, 0, result | sign)
    return select(value != value, NAN, result)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def accumulator_exponent(p: Fused, accumulator: Any) -> Any:
    """Exponents of accumulators given as float32 bits."""
    magnitude = accumulator & MAGNITUDE_32
    field = maximum(magnitude >> 23, 113 if p.half != 0 else 1)
    return select(magnitude == 0, ZERO_EXPONENT, field - 127)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def step_end(p: Fused, products: Any, accumulator: Any, emax: Any) -> Any:
    """Add the truncated accumulator to the sum of truncated products and round."""
    scaled = convert(bitcast(accumulator, np.float32), np.float64) * power_of_two(p.align_bits - emax, np.float64)
    return rounded(p, (products + truncated(scaled)) * power_of_two(emax - p.align_bits, np.float64))


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def ieee_sum(p: Fused, first: Any, second: Any) -> Any:
    """The IEEE sum in the result's format of two lanes of float32 bits, to nearest even."""
    if p.half != 0:
        return rounded(p, convert(bitcast(first, np.float32), np.float64) + convert(bitcast(second, np.float32), np.float64))
    total = bitcast(first, np.float32) + bitcast(second, np.float32)
    return select(total != total, NAN, bitcast(total, np.int32))


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def half_widened(codes: Any) -> Any:
    """f16 codes as float32 bits."""
    magnitude = codes & 0x7FFF
    normal = (magnitude << 13) + (REBIAS_32_TO_16 << 13)
    subnormal = bitcast(convert(magnitude, np.float32) * 2.0**-24, np.int32)
    special = (magnitude << 13) | INFINITY
    result = select(magnitude < 0x400, subnormal, select(magnitude < HALF_INFINITY, normal, special))
    return result | ((codes & 0x8000) << 16)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def half_narrowed(bits: Any) -> Any:
    """float32 bits of values that f16 has, as f16 codes; NaN canonical."""
    magnitude = bits & MAGNITUDE_32
    normal = (magnitude >> 13) - REBIAS_32_TO_16
    subnormal = convert(bitcast(magnitude, np.float32) * 2.0**24, np.int32)
    result = select(magnitude < 113 << 23, subnormal, minimum(normal, HALF_INFINITY)) | ((bits >> 16) & 0x8000)
    return select(magnitude > INFINITY, HALF_NAN, result)



@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def load_rows(p: Fused, c: Matrix, row: int, rows: int, columns: int) -> Any:
    """Accumulators of two rows by 8 columns; +0 where c has none."""
    place = c.address + row * c.row_stride
    present = 0 if c.itemsize == 0 else min(columns, LINES)
    first = load_codes(place, c.column_stride, c.itemsize, present if row < rows else 0)
    second = load_codes(place + c.row_stride, c.column_stride, c.itemsize, present if row + 1 < rows else 0)
    lanes = interleave(first, second)
    return half_widened(lanes) if p.half != 0 else lanes


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def store_row(lanes: Any, address: Any, stride: int, itemsize: int, columns: int) -> None:
    """The low `itemsize` bytes of the first `columns` of 8 lanes."""
    narrow = convert(lanes, np.int16)
    if columns >= LINES and stride == itemsize:
        if itemsize == 4:
            store(lanes, address)
        else:
            store(narrow, address)
        return
    for lane in range(min(columns, LINES)):
        if itemsize == 4:
            store(extract(lanes, lane), address + lane * stride)
        else:
            store(extract(narrow, lane), address + lane * stride)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def store_rows(p: Fused, lanes: Any, out: Matrix, row: int, rows: int, columns: int) -> None:
    """Results of two rows by 8 columns, where out has them."""
    codes = half_narrowed(lanes) if p.half != 0 else lanes
    place = out.address + row * out.row_stride
    if row < rows:
        store_row(even_lanes(codes), place, out.column_stride, out.itemsize, columns)
    if row + 1 < rows:
        store_row(odd_lanes(codes), place + out.row_stride, out.column_stride, out.itemsize, columns)


class Panels(NamedTuple):
    """Addresses of packed operands: blocks of 8 rows of A, 8 columns of B with every element twice."""

    a_values: Any
    a_exponents: Any
    b_values: Any
    b_exponents: Any


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def multiply_block(
    p: Fused, order: Any, periods: int, panels: Panels, dtype: Any, lowest: int, c: Matrix, out: Matrix, rows: int, columns: int
) -> None:
    """All steps of 8 rows by 8 columns, of which `rows` and `columns` exist in c and out."""
    size = itemsize_of(dtype)
    period = p.terms * max(p.restart, 1)
    c0 = load_rows(p, c, 0, rows, columns)
    c1 = load_rows(p, c, 2, rows, columns)
    c2 = load_rows(p, c, 4, rows, columns)
    c3 = load_rows(p, c, 6, rows, columns)
    d0 = c0
    d1 = c1
    d2 = c2
    d3 = c3
    for start in range(0, periods * period, period):
        if p.restart != 0:
            c0 = zeros(np.int32, LANES)
            c1 = c0
            c2 = c0
            c3 = c0
        for position in range(0, period, p.terms):
            end = position + p.terms
            high0 = splat(np.int16(p.emax_floor), LANES)
            high1 = high0
            high2 = high0
            high3 = high0
            for term in range(position, end):
                k = start + load_scalar(order + 4 * term, np.int32)
                a = panels.a_exponents + 2 * LINES * k
                b = load(panels.b_exponents + 4 * LINES * k, np.int16, LANES)
                high0 = maximum(high0, b + load_pair(a, np.int16, LANES))
                high1 = maximum(high1, b + load_pair(a + 4, np.int16, LANES))
                high2 = maximum(high2, b + load_pair(a + 8, np.int16, LANES))
                high3 = maximum(high3, b + load_pair(a + 12, np.int16, LANES))
            emax0 = maximum(convert(high0, np.int32), accumulator_exponent(p, c0))
            emax1 = maximum(convert(high1, np.int32), accumulator_exponent(p, c1))
            emax2 = maximum(convert(high2, np.int32), accumulator_exponent(p, c2))
            emax3 = maximum(convert(high3, np.int32), accumulator_exponent(p, c3))
            # with a lower emax all products are zero: any finite scale will do
            scale0 = power_of_two(p.align_bits - maximum(emax0, lowest), dtype)
            scale1 = power_of_two(p.align_bits - maximum(emax1, lowest), dtype)
            scale2 = power_of_two(p.align_bits - maximum(emax2, lowest), dtype)
            scale3 = power_of_two(p.align_bits - maximum(emax3, lowest), dtype)

            total0 = zeros(np.float64, LANES)
            total1 = total0
            total2 = total0
            total3 = total0
            for first in range(position, end, INT32_TERMS):
                sum0 = integer_part(zeros(dtype, LANES))
                sum1 = sum0
                sum2 = sum0
                sum3 = sum0
                for term in range(first, min(first + INT32_TERMS, end)):
                    k = start + load_scalar(order + 4 * term, np.int32)
                    a = panels.a_values + LINES * size * k
                    b = load(panels.b_values + 2 * LINES * size * k, dtype, LANES)
                    sum0 += integer_part(load_pair(a, dtype, LANES) * b * scale0)
                    sum1 += integer_part(load_pair(a + 2 * size, dtype, LANES) * b * scale1)
                    sum2 += integer_part(load_pair(a + 4 * size, dtype, LANES) * b * scale2)
                    sum3 += integer_part(load_pair(a + 6 * size, dtype, LANES) * b * scale3)
                total0 += convert(sum0, np.float64)
                total1 += convert(sum1, np.float64)
                total2 += convert(sum2, np.float64)
                total3 += convert(sum3, np.float64)
            c0 = step_end(p, total0, c0, emax0)
            c1 = step_end(p, total1, c1, emax1)
            c2 = step_end(p, total2, c2, emax2)
            c3 = step_end(p, total3, c3, emax3)
        if p.restart != 0:
            d0 = ieee_sum(p, c0, d0)
            d1 = ieee_sum(p, c1, d1)
            d2 = ieee_sum(p, c2, d2)
            d3 = ieee_sum(p, c3, d3)
        else:
            d0 = c0
            d1 = c1
            d2 = c2
            d3 = c3
    store_rows(p, d0, out, 0, rows, columns)
    store_rows(p, d1, out, 2, rows, columns)
    store_rows(p, d2, out, 4, rows, columns)
    store_rows(p, d3, out, 6, rows, columns)


class Problem(NamedTuple):
    """A multiplication: how, of what, and how large."""

    p: Fused
    order: Any
    a: Matrix
    b: Matrix
    c: Matrix
    out: Matrix
    rows: int
    columns: int
    depth: int


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def part(whole: Matrix, row: int, column: int) -> Matrix:
    """The matrix from a row and a column on."""
    address = whole.address + row * whole.row_stride + column * whole.column_stride
    return Matrix(address, whole.row_stride, whole.column_stride, whole.itemsize)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_rows(problem: Problem, block: int, padded_depth: int, values: Any, exponents: Any, dtype: Any) -> Any:
    """A block of 8 rows of A to a panel; its exponents' range."""
    a = part(problem.a, LINES * block, 0)
    lines = problem.rows - LINES * block
    return pack_lines(
        problem.p.a, a.address, a.row_stride, a.column_stride, a.itemsize, lines, problem.depth, padded_depth, values, exponents, 0, dtype
    )


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_columns(problem: Problem, column: int, padded_depth: int, values: Any, exponents: Any, dtype: Any) -> Any:
    """8 columns of B to a panel; their exponents' range."""
    b = part(problem.b, 0, column)
    lines = problem.columns - column
    return pack_lines(
        problem.p.b, b.address, b.column_stride, b.row_stride, b.itemsize, lines, problem.depth, padded_depth, values, exponents, 1, dtype
    )


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_blocks(problem: Problem, padded_depth: int, first: int, last: int, values: Any, exponents: Any, ranges: Any) -> None:
    """Blocks `first` to `last` of A in float32, and their ranges as two int32 each."""
    for block in range(first, last):
        offset = LINES * padded_depth * block
        low, high = pack_rows(problem, block, padded_depth, values + 4 * offset, exponents + 2 * offset, np.float32)
        store(low, ranges + 8 * block)
        store(high, ranges + 8 * block + 4)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def multiply_columns(
    problem: Problem, column: int, padded_depth: int, values: Any, exponents: Any, ranges: Any, scratch: Any
) -> None:
    """8 columns of the result, A being packed."""
    p = problem.p
    periods = -(-problem.depth // (p.terms * max(p.restart, 1)))
    c = part(problem.c, 0, column)
    out = part(problem.out, 0, column)
    columns = problem.columns - column
    b_exponents = scratch
    b_values = b_exponents + 4 * LINES * padded_depth
    b_low, b_high = pack_columns(problem, column, padded_depth, b_values, b_exponents, np.float32)
    b_wide_values = b_values + 8 * LINES * padded_depth
    a_wide_values = b_wide_values + 16 * LINES * padded_depth
    a_wide_exponents = a_wide_values + 8 * LINES * padded_depth
    b_is_wide = False
    for block in range(-(-problem.rows // LINES)):
        row = LINES * block
        rows = problem.rows - row
        block_c = part(c, row, 0)
        block_out = part(out, row, 0)
        a_low = load_scalar(ranges + 8 * block, np.int32)
        a_high = load_scalar(ranges + 8 * block + 4, np.int32)
        if min(a_low, b_low, a_low + b_low) >= FLOAT32_LOWEST and a_high + b_high <= FLOAT32_HIGHEST:
            offset = LINES * padded_depth * block
            panels = Panels(values + 4 * offset, exponents + 2 * offset, b_values, b_exponents)
            multiply_block(p, problem.order, periods, panels, np.float32, FLOAT32_LOWEST, block_c, block_out, rows, columns)
        else:
            if not b_is_wide:
                pack_columns(problem, column, padded_depth, b_wide_values, b_exponents, np.float64)
                b_is_wide = True
            pack_rows(problem, block, padded_depth, a_wide_values, a_wide_exponents, np.float64)
            panels = Panels(a_wide_values, a_wide_exponents, b_wide_values, b_exponents)
            multiply_block(p, problem.order, periods, panels, np.float64, FLOAT64_LOWEST, block_c, block_out, rows, columns)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def tile(whole: Matrix, index: int, rows: int, columns: int) -> Matrix:
    """Matrix `index` of a contiguous batch."""
    return Matrix(whole.address + index * rows * columns * whole.itemsize, whole.row_stride, whole.column_stride, whole.itemsize)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pointed_problem(problem: Problem) -> Problem:
    """The same with pointers for its integer addresses."""
    return Problem(
        problem.p, pointer(problem.order), pointed(problem.a), pointed(problem.b), pointed(problem.c), pointed(problem.out),
        problem.rows, problem.columns, problem.depth,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def run_pack_blocks(problem: Problem, padded_depth: int, first: int, last: int, values: int, exponents: int, ranges: int) -> None:
    """pack_blocks for Python."""
    pack_blocks(pointed_problem(problem), padded_depth, first, last, pointer(values), pointer(exponents), pointer(ranges))


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def run_multiply_columns(
    problem: Problem, padded_depth: int, first: int, last: int, values: int, exponents: int, ranges: int, scratch: int
) -> None:
    """Column panels `first` to `last`, for Python."""
    for panel in range(first, last):
        multiply_columns(
            pointed_problem(problem), LINES * panel, padded_depth, pointer(values), pointer(exponents), pointer(ranges), pointer(scratch)
        )


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def run_tiles(first_tile: Problem, padded_depth: int, first: int, last: int, scratch_address: int) -> None:
    """Tiles `first` to `last` of a batch, for Python."""
    batch = pointed_problem(first_tile)
    scratch = pointer(scratch_address)
    rows = batch.rows
    columns = batch.columns
    depth = batch.depth
    blocks = -(-rows // LINES)
    ranges = scratch
    exponents = ranges + 8 * blocks
    values = exponents + 2 * LINES * blocks * padded_depth
    columns_scratch = values + 4 * LINES * blocks * padded_depth
    for index in range(first, last):
        a = tile(batch.a, index, rows, depth)
        b = tile(batch.b, index, depth, columns)
        c = tile(batch.c, index, rows, columns)
        out = tile(batch.out, index, rows, columns)
        problem = Problem(batch.p, batch.order, a, b, c, out, rows, columns, depth)
        pack_blocks(problem, padded_depth, 0, blocks, values, exponents, ranges)
        for column in range(0, columns, LINES):
            multiply_columns(problem, column, padded_depth, values, exponents, ranges, columns_scratch)


COLUMN_SCRATCH = 4 + 8 + 16 + 8 + 2  # bytes for every k of 8 lines, of multiply_columns
TILES_AT_ONCE = 512


class _Memory:
    """Memory that starts at a cache line: a vector that straddles two costs twice."""

    def __init__(self, size: int) -> None:
        self._bytes = np.empty(size + 64, np.uint8)
        start = self._bytes.ctypes.data
        self.address = start + -start % 64


def _prepared(
    p: Fused, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], order: NDArray[np.int32] | None
) -> tuple[Problem, int, NDArray[np.int32]]:
    """The problem, the k extent of its panels, and the array that its order points to."""
    period = p.terms * max(p.restart, 1)
    table = np.arange(period, dtype=np.int32) if order is None else np.ascontiguousarray(order, np.int32)
    rows, columns = out.shape[-2:]
    depth = a.shape[-1]
    places = (matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out))
    unit = max(period, LINES)
    return Problem(p, table.ctypes.data, *places, rows, columns, depth), -(-depth // unit) * unit, table


def gemm(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    threads: int,
    order: NDArray[np.int32] | None = None,
) -> None:
    """Write the accumulation of ``a @ b`` onto `c` (None: +0) to `out`.

    `a` (M, K) and `b` (K, N) are codes, `c` and `out` (M, N) f32 or f16 bits, all of any strides; `out` may be `c`.
    `order` permutes each period of k (``terms * max(restart, 1)`` long): position q of period j takes k = j * period + order[q].
    """
    if a.shape[1] == 0:
        out[...] = 0 if c is None else c
    if out.size == 0 or a.shape[1] == 0:
        return
    problem, padded_depth, _table = _prepared(p, a, b, c, out, order)
    blocks = -(-problem.rows // LINES)
    values = _Memory(4 * LINES * blocks * padded_depth)
    exponents = _Memory(2 * LINES * blocks * padded_depth)
    ranges = _Memory(8 * blocks)
    packed = (values.address, exponents.address, ranges.address)
    scratch: dict[int, _Memory] = {}

    def pack(start: int, stop: int, worker: int) -> None:
        run_pack_blocks(problem, padded_depth, start, stop, *packed)

    def multiply(start: int, stop: int, worker: int) -> None:
        if worker not in scratch:
            scratch[worker] = _Memory(COLUMN_SCRATCH * LINES * padded_depth)
        run_multiply_columns(problem, padded_depth, start, stop, *packed, scratch[worker].address)

    parallel_for(pack, blocks, threads, grain=-(-blocks // (4 * threads)))
    parallel_for(multiply, -(-problem.columns // LINES), threads)


def tiles(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    threads: int,
    order: NDArray[np.int32] | None = None,
) -> None:
    """The same for a batch: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    if a.shape[2] == 0:
        out[...] = 0 if c is None else c
    if out.size == 0 or a.shape[2] == 0:
        return
    batch, padded_depth, _table = _prepared(p, a, b, c, out, order)
    blocks = -(-batch.rows // LINES)
    size = 8 * blocks + 6 * LINES * blocks * padded_depth + COLUMN_SCRATCH * LINES * padded_depth
    scratch: dict[int, _Memory] = {}

    def multiply(start: int, stop: int, worker: int) -> None:
        if worker not in scratch:
            scratch[worker] = _Memory(size)
        run_tiles(batch, padded_depth, start, stop, scratch[worker].address)

    parallel_for(multiply, len(out), threads, grain=TILES_AT_ONCE)
