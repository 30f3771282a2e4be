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

from fastmma.kernels.operands import LANES, LINES, NOWHERE, ZERO_EXPONENT, Lines, Matrix, load_codes, matrix, pack_lines
from fastmma.kernels.params import Fused
from fastmma.kernels.simd import (
    bitcast,
    convert,
    even_lanes,
    extract,
    inner,
    integer_part,
    interleave,
    itemsize_of,
    load,
    load_pair,
    load_scalar,
    load_twice,
    maximum,
    minimum,
    odd_lanes,
    power_of_two,
    select,
    splat,
    store,
    truncated,
    zeros,
)
from fastmma.threads import parallel_for

PAIRS = LINES // 2  # of rows in a block
INT32_TERMS = 16  # that many products below 2**27 sum up within int32

FLOAT32_LOWEST = -100  # exponents of float32 panels' elements, and of their products, lie between these two
FLOAT32_HIGHEST = 120
FLOAT64_LOWEST = -900

# work memory of a block, in bytes: 4 vectors of every kind
VECTOR = 4 * LANES
ACCUMULATOR = 0
ADDEND = ACCUMULATOR + PAIRS * VECTOR
EMAX = ADDEND + PAIRS * VECTOR
SCALE = EMAX + PAIRS * VECTOR
TOTAL = SCALE + 2 * PAIRS * VECTOR
WORK = TOTAL + 2 * PAIRS * VECTOR

INFINITY = 0x7F800000
NAN = 0x7FFFFFFF
HALF_INFINITY = 0x7C00
HALF_NAN = 0x7FFF
REBIAS_64_TO_32 = (1023 - 127) << 23
REBIAS_32_TO_16 = (127 - 15) << 10
FRACTION_32 = 0x7FFFFF
IMPLICIT_32 = 0x800000
SIGN_32 = -0x80000000
MAGNITUDE_32 = 0x7FFFFFFF
MAGNITUDE_64 = 0x7FFFFFFFFFFFFFFF


@inner
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
    return select(value != value, NAN, result)  # noqa: PLR0124


@inner
def wide_step_end(p: Fused, products: Any, accumulator: Any, emax: Any) -> Any:
    """Add the truncated accumulator to the float64 sum of truncated products and round."""
    scaled = convert(bitcast(accumulator, np.float32), np.float64) * power_of_two(p.align_bits - emax, np.float64)
    return rounded(p, (products + truncated(scaled)) * power_of_two(emax - p.align_bits, np.float64))


@inner
def narrow_step_end(p: Fused, products: Any, accumulator: Any, emax: Any) -> Any:
    """The same for an int32 sum, in 32-bit lanes; a total has up to 32 bits and a sign."""
    magnitude = accumulator & MAGNITUDE_32
    field = magnitude >> 23
    significand = (magnitude & FRACTION_32) | select(field == 0, 0, splat(np.int32(IMPLICIT_32), LANES))
    shift = emax - (maximum(field, 1) - 127) + (25 - p.align_bits)
    term = (significand << 2) >> minimum(shift, 31)
    accumulator_sign = accumulator >> 31
    term = (term ^ accumulator_sign) - accumulator_sign
    total = products + term
    # the sign that the sum has before it wraps
    sign = ((products & term) | ((products ^ term) & total)) >> 31
    size = bitcast((total ^ sign) - sign, np.uint32)
    if p.half != 0:
        # 24 bits with the lost ones in the last hold all that rounding to 11 needs
        large = size >= 1 << 24
        sticky = (size >> 8) | select((size & 0xFF) == 0, 0, splat(np.uint32(1), LANES))
        exponent = emax - p.align_bits + select(large, 8, zeros(np.int32, LANES))
        bits = bitcast(convert(bitcast(select(large, sticky, size), np.int32), np.float32), np.int32) + (exponent << 23)
        nearest = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
        value = bitcast(bits, np.float32)
        subnormal = bitcast((value + np.float32(0.5)) - np.float32(0.5), np.int32)
        result = select(value < np.float32(2.0**-14), subnormal, select(nearest >= (16 + 127) << 23, INFINITY, nearest))
    else:
        # without the bit after the 24 that stay, the conversion rounds down
        value = bitcast(convert(size & ((size >> 24) ^ 0xFFFFFFFF), np.float32), np.int32)
        # a bias of 64 more keeps exponents that are too low or too high positive
        raised = bitcast(value + ((emax + (64 - p.align_bits)) << 23), np.uint32)
        normal = minimum(raised, (255 + 64) << 23) - (64 << 23)
        subnormal = ((raised & FRACTION_32) | IMPLICIT_32) >> minimum(65 - (raised >> 23), 31)
        result = bitcast(select(raised < 65 << 23, subnormal, normal), np.int32) & (-1 << (23 - p.keep_bits))
    result = select(total == 0, 0, result)
    result = select(result == 0, 0, result | (sign & SIGN_32))
    return select(magnitude < INFINITY, result, select(magnitude == INFINITY, accumulator, NAN))


@inner
def accumulator_exponent(p: Fused, accumulator: Any) -> Any:
    """Exponents of accumulators given as float32 bits."""
    magnitude = accumulator & MAGNITUDE_32
    field = maximum(magnitude >> 23, 113 if p.half != 0 else 1)
    return select(magnitude == 0, ZERO_EXPONENT, field - 127)


@inner
def ieee_sum(p: Fused, first: Any, second: Any) -> Any:
    """The IEEE sum in the result's format of two lanes of float32 bits, to nearest even."""
    if p.half != 0:
        return rounded(p, convert(bitcast(first, np.float32), np.float64) + convert(bitcast(second, np.float32), np.float64))
    total = bitcast(first, np.float32) + bitcast(second, np.float32)
    return select(total != total, NAN, bitcast(total, np.int32))  # noqa: PLR0124


@inner
def half_widened(codes: Any) -> Any:
    """f16 codes as float32 bits."""
    magnitude = codes & 0x7FFF
    normal = (magnitude << 13) + (REBIAS_32_TO_16 << 13)
    subnormal = bitcast(convert(magnitude, np.float32) * 2.0**-24, np.int32)
    special = (magnitude << 13) | INFINITY
    result = select(magnitude < 0x400, subnormal, select(magnitude < HALF_INFINITY, normal, special))
    return result | ((codes & 0x8000) << 16)


@inner
def half_narrowed(bits: Any) -> Any:
    """float32 bits of values that f16 has, as f16 codes; NaN canonical."""
    magnitude = bits & MAGNITUDE_32
    normal = (magnitude >> 13) - REBIAS_32_TO_16
    subnormal = convert(bitcast(magnitude, np.float32) * 2.0**24, np.int32)
    result = select(magnitude < 113 << 23, subnormal, minimum(normal, HALF_INFINITY)) | ((bits >> 16) & 0x8000)
    return select(magnitude > INFINITY, HALF_NAN, result)



@inner
def load_rows(p: Fused, c: Matrix, row: int, rows: int, columns: int) -> Any:
    """Accumulators of two rows by 8 columns, 0 where c has none."""
    place = c.address + row * c.row_stride
    count = min(columns, LINES) if c.address != 0 else 0
    first = load_codes(place, c.column_stride, c.itemsize, count if row < rows else 0)
    second = load_codes(place + c.row_stride, c.column_stride, c.itemsize, count if row + 1 < rows else 0)
    codes = interleave(first, second)
    return half_widened(codes) if p.half != 0 else codes


@inner
def store_row(lanes: Any, address: int, stride: int, itemsize: int, columns: int) -> None:
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


@inner
def store_rows(p: Fused, lanes: Any, out: Matrix, row: int, rows: int, columns: int) -> None:
    """Results of two rows by 8 columns, where out has them."""
    codes = half_narrowed(lanes) if p.half != 0 else lanes
    place = out.address + row * out.row_stride
    if row < rows:
        store_row(even_lanes(codes), place, out.column_stride, out.itemsize, columns)
    if row + 1 < rows:
        store_row(odd_lanes(codes), place + out.row_stride, out.column_stride, out.itemsize, columns)


class Block(NamedTuple):
    """Pointers to the packed 8 rows of A and 8 columns of B, and to the work memory; the lowest exponent that can scale products."""

    a_values: int
    a_exponents: int
    b_values: int
    b_exponents: int
    work: int
    lowest: int


@inner
def align(p: Fused, order: int, start: int, block: Block, dtype: Any) -> None:
    """The emax of every result of a step, and what it scales products by."""
    high0 = splat(np.int16(p.emax_floor), LANES)
    high1 = high0
    high2 = high0
    high3 = high0
    for term in range(p.terms):
        k = start + load_scalar(order + 4 * term, np.int32)
        a = block.a_exponents + 2 * LINES * k
        b = load_twice(block.b_exponents + 2 * LINES * k, np.int16, LANES)
        high0 = maximum(high0, b + load_pair(a, np.int16, LANES))
        high1 = maximum(high1, b + load_pair(a + 4, np.int16, LANES))
        high2 = maximum(high2, b + load_pair(a + 8, np.int16, LANES))
        high3 = maximum(high3, b + load_pair(a + 12, np.int16, LANES))
    store(convert(high0, np.int32), block.work + EMAX)
    store(convert(high1, np.int32), block.work + EMAX + VECTOR)
    store(convert(high2, np.int32), block.work + EMAX + 2 * VECTOR)
    store(convert(high3, np.int32), block.work + EMAX + 3 * VECTOR)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
        emax = maximum(load(block.work + EMAX + place, np.int32, LANES), accumulator_exponent(p, accumulator))
        store(emax, block.work + EMAX + place)
        # with a lower emax all products are zero: any finite scale will do
        scale = power_of_two(p.align_bits - maximum(emax, block.lowest), dtype)
        store(scale, block.work + SCALE + place * itemsize_of(dtype) // 4)
        store(zeros(np.float64, LANES), block.work + TOTAL + 2 * place)


@inner
def add_products(order: int, terms: int, start: int, block: Block, narrow: bool, dtype: Any) -> None:
    """Add the sums of `terms` truncated products to the totals; `narrow`: put them there, as int32."""
    size = itemsize_of(dtype)
    scale0 = load(block.work + SCALE, dtype, LANES)
    scale1 = load(block.work + SCALE + LANES * size, dtype, LANES)
    scale2 = load(block.work + SCALE + 2 * LANES * size, dtype, LANES)
    scale3 = load(block.work + SCALE + 3 * LANES * size, dtype, LANES)
    sum0 = integer_part(zeros(dtype, LANES))
    sum1 = sum0
    sum2 = sum0
    sum3 = sum0
    for term in range(terms):
        k = start + load_scalar(order + 4 * term, np.int32)
        a = block.a_values + LINES * size * k
        b = load_twice(block.b_values + LINES * size * k, dtype, LANES)
        sum0 += integer_part(load_pair(a, dtype, LANES) * b * scale0)
        sum1 += integer_part(load_pair(a + 2 * size, dtype, LANES) * b * scale1)
        sum2 += integer_part(load_pair(a + 4 * size, dtype, LANES) * b * scale2)
        sum3 += integer_part(load_pair(a + 6 * size, dtype, LANES) * b * scale3)
    total = block.work + TOTAL
    if narrow:
        store(convert(sum0, np.int32), total)
        store(convert(sum1, np.int32), total + VECTOR)
        store(convert(sum2, np.int32), total + 2 * VECTOR)
        store(convert(sum3, np.int32), total + 3 * VECTOR)
    else:
        store(load(total, np.float64, LANES) + convert(sum0, np.float64), total)
        store(load(total + 2 * VECTOR, np.float64, LANES) + convert(sum1, np.float64), total + 2 * VECTOR)
        store(load(total + 4 * VECTOR, np.float64, LANES) + convert(sum2, np.float64), total + 4 * VECTOR)
        store(load(total + 6 * VECTOR, np.float64, LANES) + convert(sum3, np.float64), total + 6 * VECTOR)


@inner
def multiply_block(
    p: Fused, order: int, periods: int, block: Block, narrow: bool, c: Matrix, out: Matrix, rows: int, columns: int, dtype: Any
) -> None:
    """All steps of 8 rows by 8 columns, of which `rows` and `columns` exist in c and out."""
    period = p.terms * max(p.restart, 1)
    at_once = p.terms if narrow else INT32_TERMS
    for place in range(0, PAIRS * VECTOR, VECTOR):
        store(load_rows(p, c, 2 * place // VECTOR, rows, columns), block.work + ACCUMULATOR + place)
    for start in range(0, periods * period, period):
        if p.restart != 0:
            for place in range(0, PAIRS * VECTOR, VECTOR):
                store(load(block.work + ACCUMULATOR + place, np.int32, LANES), block.work + ADDEND + place)
                store(zeros(np.int32, LANES), block.work + ACCUMULATOR + place)
        for position in range(0, period, p.terms):
            align(p, order + 4 * position, start, block, dtype)
            for first in range(0, p.terms, at_once):
                terms = min(at_once, p.terms - first)
                add_products(order + 4 * (position + first), terms, start, block, narrow, dtype)
            for place in range(0, PAIRS * VECTOR, VECTOR):
                accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
                emax = load(block.work + EMAX + place, np.int32, LANES)
                if narrow:
                    result = narrow_step_end(p, load(block.work + TOTAL + place, np.int32, LANES), accumulator, emax)
                else:
                    result = wide_step_end(p, load(block.work + TOTAL + 2 * place, np.float64, LANES), accumulator, emax)
                store(result, block.work + ACCUMULATOR + place)
        if p.restart != 0:
            for place in range(0, PAIRS * VECTOR, VECTOR):
                accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
                addend = load(block.work + ADDEND + place, np.int32, LANES)
                store(ieee_sum(p, accumulator, addend), block.work + ACCUMULATOR + place)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        store_rows(p, load(block.work + ACCUMULATOR + place, np.int32, LANES), out, 2 * place // VECTOR, rows, columns)


class Problem(NamedTuple):
    """A multiplication: how, of what, and how large."""

    p: Fused
    order: int
    a: Matrix
    b: Matrix
    c: Matrix
    out: Matrix
    rows: int
    columns: int
    depth: int


@inner
def part(whole: Matrix, row: int, column: int) -> Matrix:
    """The matrix from a row and a column on."""
    # the strides of no matrix are 0, so that its address stays 0
    address = whole.address + row * whole.row_stride + column * whole.column_stride
    return Matrix(address, whole.row_stride, whole.column_stride, whole.itemsize)


@inner
def pack_rows(problem: Problem, block: int, padded_depth: int, values: int, exponents: int, dtype: Any) -> Any:
    """A block of 8 rows of A to a panel; its exponents' range."""
    a = part(problem.a, LINES * block, 0)
    lines = Lines(a.address, a.row_stride, a.column_stride, a.itemsize)
    return pack_lines(problem.p.a, lines, problem.rows - LINES * block, problem.depth, padded_depth, values, exponents, dtype)


@inner
def pack_columns(problem: Problem, column: int, padded_depth: int, values: int, exponents: int, dtype: Any) -> Any:
    """8 columns of B to a panel; their exponents' range."""
    b = part(problem.b, 0, column)
    lines = Lines(b.address, b.column_stride, b.row_stride, b.itemsize)
    return pack_lines(problem.p.b, lines, problem.columns - column, problem.depth, padded_depth, values, exponents, dtype)


@inner
def pack_blocks(problem: Problem, padded_depth: int, first: int, last: int, values: int, exponents: int, ranges: int) -> None:
    """Blocks `first` to `last` of A in float32, and their ranges as two int32 each."""
    for block in range(first, last):
        offset = LINES * padded_depth * block
        low, high = pack_rows(problem, block, padded_depth, values + 4 * offset, exponents + 2 * offset, np.float32)
        store(low, ranges + 8 * block)
        store(high, ranges + 8 * block + 4)


@inner
def multiply_columns(
    problem: Problem, column: int, padded_depth: int, values: int, exponents: int, ranges: int, scratch: int
) -> None:
    """8 columns of the result, A being packed."""
    p = problem.p
    periods = -(-problem.depth // (p.terms * max(p.restart, 1)))
    columns = problem.columns - column
    work = scratch
    b_values = work + WORK
    b_exponents = b_values + 4 * LINES * padded_depth
    b_wide_values = b_exponents + 2 * LINES * padded_depth
    a_wide_values = b_wide_values + 8 * LINES * padded_depth
    a_wide_exponents = a_wide_values + 8 * LINES * padded_depth
    b_low, b_high = pack_columns(problem, column, padded_depth, b_values, b_exponents, np.float32)
    # 16 products are below 16 * 2**(align_bits + 2)
    narrow = p.align_bits <= 25 and p.terms << (p.align_bits + 2) <= 1 << 31
    b_is_wide = False
    for row in range(0, problem.rows, LINES):
        rows = problem.rows - row
        c = part(problem.c, row, column)
        out = part(problem.out, row, column)
        a_low = load_scalar(ranges + row, np.int32)
        a_high = load_scalar(ranges + row + 4, np.int32)
        if min(a_low, b_low, a_low + b_low) >= FLOAT32_LOWEST and a_high + b_high <= FLOAT32_HIGHEST:
            a_values = values + 4 * padded_depth * row
            a_exponents = exponents + 2 * padded_depth * row
            block = Block(a_values, a_exponents, b_values, b_exponents, work, FLOAT32_LOWEST)
            multiply_block(p, problem.order, periods, block, narrow, c, out, rows, columns, np.float32)
        else:
            if not b_is_wide:
                pack_columns(problem, column, padded_depth, b_wide_values, b_exponents, np.float64)
                b_is_wide = True
            pack_rows(problem, row // LINES, padded_depth, a_wide_values, a_wide_exponents, np.float64)
            block = Block(a_wide_values, a_wide_exponents, b_wide_values, b_exponents, work, FLOAT64_LOWEST)
            multiply_block(p, problem.order, periods, block, False, c, out, rows, columns, np.float64)


@inner
def tile(whole: Matrix, index: int, rows: int, columns: int) -> Matrix:
    """Matrix `index` of a contiguous batch."""
    if whole.address == 0:
        return whole
    return Matrix(whole.address + index * rows * columns * whole.itemsize, whole.row_stride, whole.column_stride, whole.itemsize)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def run_pack_blocks(problem: Problem, padded_depth: int, first: int, last: int, values: int, exponents: int, ranges: int) -> None:
    """pack_blocks for Python."""
    pack_blocks(problem, padded_depth, first, last, values, exponents, ranges)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def run_multiply_columns(
    problem: Problem, padded_depth: int, first: int, last: int, values: int, exponents: int, ranges: int, scratch: int
) -> None:
    """Column panels `first` to `last`, for Python."""
    for panel in range(first, last):
        multiply_columns(problem, LINES * panel, padded_depth, values, exponents, ranges, scratch)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def run_tiles(batch: Problem, padded_depth: int, first: int, last: int, scratch: int) -> None:
    """Tiles `first` to `last` of a batch, for Python."""
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


COLUMN_SCRATCH = 2 + 4 + 8 + 8 + 2  # bytes for every k of 8 lines, of multiply_columns
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
            scratch[worker] = _Memory(WORK + COLUMN_SCRATCH * LINES * padded_depth)
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
    size = WORK + 8 * blocks + 6 * LINES * blocks * padded_depth + COLUMN_SCRATCH * LINES * padded_depth
    scratch: dict[int, _Memory] = {}

    def multiply(start: int, stop: int, worker: int) -> None:
        if worker not in scratch:
            scratch[worker] = _Memory(size)
        run_tiles(batch, padded_depth, start, stop, scratch[worker].address)

    parallel_for(multiply, len(out), threads, grain=TILES_AT_ONCE)
