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

from fastmma.kernels.operands import COLUMNS, ZERO_EXPONENT, Matrix, codes_at, matrix, pack_columns, pack_rows
from fastmma.kernels.params import Fused
from fastmma.kernels.simd import (
    bitcast,
    convert,
    even_lanes,
    extract,
    highest_lane,
    integer_part,
    interleave,
    load,
    load_pair,
    lowest_lane,
    maximum,
    minimum,
    odd_lanes,
    power_of_two,
    select,
    splat,
    store,
    store_at,
    truncated,
    zeros,
)
from fastmma.threads import parallel_for

PAIRS = 4  # pairs of rows in a block
ROWS = 2 * PAIRS
LANES = 2 * COLUMNS
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
def block_steps(
    p: Fused,
    order: Any,
    steps: int,
    stride: int,
    a_values: Any,
    a_exponents: Any,
    start: int,
    b_values: Any,
    b_exponents: Any,
    lowest: int,
    state: Any,
    state_start: int,
) -> None:
    """All steps of a block of 8 rows and 8 columns: accumulators from and to ``state[state_start + pair, 16]``."""
    row0 = start * stride
    row1 = row0 + stride
    row2 = row1 + stride
    row3 = row2 + stride
    chain = max(p.restart, 1)
    out = LANES * state_start
    c0 = load(state, out, LANES)
    c1 = load(state, out + LANES, LANES)
    c2 = load(state, out + 2 * LANES, LANES)
    c3 = load(state, out + 3 * LANES, LANES)
    for step in range(steps):
        if p.restart != 0 and step % chain == 0:
            c0 = zeros(np.int32, LANES)
            c1 = c0
            c2 = c0
            c3 = c0
        base = step // chain * order.size
        position = step % chain * p.terms

        high0 = splat(np.int16(p.emax_floor), LANES)
        high1 = high0
        high2 = high0
        high3 = high0
        for term in range(position, position + p.terms):
            k = base + order[term]
            b_exponent = bitcast(load(b_exponents, COLUMNS * k, COLUMNS), np.int16)
            high0 = maximum(high0, b_exponent + bitcast(splat(a_exponents[row0 + k], COLUMNS), np.int16))
            high1 = maximum(high1, b_exponent + bitcast(splat(a_exponents[row1 + k], COLUMNS), np.int16))
            high2 = maximum(high2, b_exponent + bitcast(splat(a_exponents[row2 + k], COLUMNS), np.int16))
            high3 = maximum(high3, b_exponent + bitcast(splat(a_exponents[row3 + k], COLUMNS), np.int16))
        emax0 = maximum(convert(high0, np.int32), accumulator_exponent(p, c0))
        emax1 = maximum(convert(high1, np.int32), accumulator_exponent(p, c1))
        emax2 = maximum(convert(high2, np.int32), accumulator_exponent(p, c2))
        emax3 = maximum(convert(high3, np.int32), accumulator_exponent(p, c3))
        # with a lower emax all products are zero: any finite scale will do
        scale0 = power_of_two(p.align_bits - maximum(emax0, lowest), a_values.dtype)
        scale1 = power_of_two(p.align_bits - maximum(emax1, lowest), a_values.dtype)
        scale2 = power_of_two(p.align_bits - maximum(emax2, lowest), a_values.dtype)
        scale3 = power_of_two(p.align_bits - maximum(emax3, lowest), a_values.dtype)

        total0 = zeros(np.float64, LANES)
        total1 = total0
        total2 = total0
        total3 = total0
        for first in range(position, position + p.terms, INT32_TERMS):
            sum0 = integer_part(zeros(a_values.dtype, LANES))
            sum1 = sum0
            sum2 = sum0
            sum3 = sum0
            for term in range(first, min(first + INT32_TERMS, position + p.terms)):
                k = base + order[term]
                b = load(b_values, LANES * k, LANES)
                sum0 += integer_part(load_pair(a_values, 2 * (row0 + k), LANES) * b * scale0)
                sum1 += integer_part(load_pair(a_values, 2 * (row1 + k), LANES) * b * scale1)
                sum2 += integer_part(load_pair(a_values, 2 * (row2 + k), LANES) * b * scale2)
                sum3 += integer_part(load_pair(a_values, 2 * (row3 + k), LANES) * b * scale3)
            total0 += convert(sum0, np.float64)
            total1 += convert(sum1, np.float64)
            total2 += convert(sum2, np.float64)
            total3 += convert(sum3, np.float64)
        c0 = step_end(p, total0, c0, emax0)
        c1 = step_end(p, total1, c1, emax1)
        c2 = step_end(p, total2, c2, emax2)
        c3 = step_end(p, total3, c3, emax3)

        if p.restart != 0 and step % chain == chain - 1:
            c0 = ieee_sum(p, c0, load(state, out, LANES))
            c1 = ieee_sum(p, c1, load(state, out + LANES, LANES))
            c2 = ieee_sum(p, c2, load(state, out + 2 * LANES, LANES))
            c3 = ieee_sum(p, c3, load(state, out + 3 * LANES, LANES))
            store(c0, state, out)
            store(c1, state, out + LANES)
            store(c2, state, out + 2 * LANES)
            store(c3, state, out + 3 * LANES)
    store(c0, state, out)
    store(c1, state, out + LANES)
    store(c2, state, out + 2 * LANES)
    store(c3, state, out + 3 * LANES)


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
def load_state(p: Fused, c: Matrix, rows: int, columns: int, column: int, state: Any) -> None:
    """The accumulators of 8 columns of c, +0 when its address is 0, to ``state[pair, 16]``; zeros past the edges."""
    count = min(COLUMNS, columns - column) if c.address != 0 else 0
    for row in range(0, -(-rows // ROWS) * ROWS, 2):
        place = c.address + row * c.row_stride + column * c.column_stride
        first = codes_at(place, c.column_stride, c.itemsize, count if row < rows else 0)
        second = codes_at(place + c.row_stride, c.column_stride, c.itemsize, count if row + 1 < rows else 0)
        lanes = interleave(first, second)
        store(half_widened(lanes) if p.half != 0 else lanes, state, COLUMNS * row)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def store_row(lanes: Any, address: int, stride: int, itemsize: int, count: int) -> None:
    """Write the low `itemsize` bytes of the first `count` of 8 lanes."""
    if itemsize == 4:
        if count == COLUMNS and stride == itemsize:
            store_at(lanes, address)
        else:
            for lane in range(count):
                store_at(extract(lanes, lane), address + lane * stride)
    else:
        narrow = convert(lanes, np.int16)
        if count == COLUMNS and stride == itemsize:
            store_at(narrow, address)
        else:
            for lane in range(count):
                store_at(extract(narrow, lane), address + lane * stride)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def store_state(p: Fused, out: Matrix, rows: int, columns: int, column: int, state: Any) -> None:
    """The accumulators of 8 columns to `out`."""
    count = min(COLUMNS, columns - column)
    for row in range(0, rows, 2):
        lanes = load(state, COLUMNS * row, LANES)
        if p.half != 0:
            lanes = half_narrowed(lanes)
        place = out.address + row * out.row_stride + column * out.column_stride
        store_row(even_lanes(lanes), place, out.column_stride, out.itemsize, count)
        if row + 1 < rows:
            store_row(odd_lanes(lanes), place + out.row_stride, out.column_stride, out.itemsize, count)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def depth_stride(depth: int, period: int) -> int:
    """The k extent of panels: whole periods, and whole vectors of 8."""
    unit = max(period, 8)
    return -(-depth // unit) * unit


class Panels(NamedTuple):
    """Scratch memory: operand panels in float32 for the usual blocks and in float64 for the others."""

    a_values: Any
    a_exponents: Any
    a_ranges: Any
    b_values: Any
    b_exponents: Any
    a_values_64: Any
    a_exponents_64: Any
    b_values_64: Any
    state: Any


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_blocks(
    p: Fused, a: Matrix, rows: int, depth: int, stride: int, first: int, last: int, values: Any, exponents: Any, ranges: Any
) -> None:
    """Blocks of 8 rows of A to float32 panels; ``ranges[block]`` gets their lowest and highest exponent."""
    for block in range(first, last):
        low, high = pack_rows(p.a, a, ROWS * block, rows, PAIRS, depth, stride, values, exponents, PAIRS * block)
        ranges[block, 0] = lowest_lane(low)
        ranges[block, 1] = highest_lane(high)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def column_panel(
    p: Fused, order: Any, a: Matrix, b: Matrix, c: Matrix, out: Matrix, rows: int, columns: int, depth: int, column: int, panels: Panels
) -> None:
    """8 columns of the result, A being packed."""
    period = order.size
    steps = -(-depth // period) * (period // p.terms)
    stride = depth_stride(depth, period)
    load_state(p, c, rows, columns, column, panels.state)
    low, high = pack_columns(p.b, b, column, columns, depth, stride, panels.b_values, panels.b_exponents)
    b_low = lowest_lane(low)
    b_high = highest_lane(high)
    b_packed_64 = False
    for block in range(-(-rows // ROWS)):
        a_low = panels.a_ranges[block, 0]
        a_high = panels.a_ranges[block, 1]
        if min(a_low, b_low, a_low + b_low) >= FLOAT32_LOWEST and a_high + b_high <= FLOAT32_HIGHEST:
            block_steps(
                p, order, steps, stride, panels.a_values, panels.a_exponents, PAIRS * block, panels.b_values, panels.b_exponents,
                FLOAT32_LOWEST, panels.state, PAIRS * block,
            )  # fmt: skip
        else:
            if not b_packed_64:
                pack_columns(p.b, b, column, columns, depth, stride, panels.b_values_64, panels.b_exponents)
                b_packed_64 = True
            pack_rows(p.a, a, ROWS * block, rows, PAIRS, depth, stride, panels.a_values_64, panels.a_exponents_64, 0)
            block_steps(
                p, order, steps, stride, panels.a_values_64, panels.a_exponents_64, 0, panels.b_values_64, panels.b_exponents,
                FLOAT64_LOWEST, panels.state, PAIRS * block,
            )  # fmt: skip
    store_state(p, out, rows, columns, column, panels.state)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def tile_range(
    p: Fused, order: Any, a: Matrix, b: Matrix, c: Matrix, out: Matrix, rows: int, columns: int, depth: int, first: int, last: int,
    panels: Panels,
) -> None:  # fmt: skip
    """Tiles `first` to `last` of contiguous batches."""
    stride = depth_stride(depth, order.size)
    blocks = -(-rows // ROWS)
    for tile in range(first, last):
        tile_a = Matrix(a.address + tile * rows * depth * a.itemsize, a.row_stride, a.column_stride, a.itemsize)
        tile_b = Matrix(b.address + tile * depth * columns * b.itemsize, b.row_stride, b.column_stride, b.itemsize)
        tile_c = Matrix(c.address + tile * rows * columns * c.itemsize, c.row_stride, c.column_stride, c.itemsize)
        tile_out = Matrix(out.address + tile * rows * columns * out.itemsize, out.row_stride, out.column_stride, out.itemsize)
        pack_blocks(p, tile_a, rows, depth, stride, 0, blocks, panels.a_values, panels.a_exponents, panels.a_ranges)
        for column in range(0, columns, COLUMNS):
            column_panel(p, order, tile_a, tile_b, tile_c, tile_out, rows, columns, depth, column, panels)


NOWHERE = Matrix(0, 0, 0, 0)
TILES_AT_ONCE = 256


def _aligned(size: int, dtype: Any) -> NDArray[Any]:
    """Uninitialised memory that starts at a cache line: a vector that straddles two costs twice."""
    memory = np.empty(size * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size * np.dtype(dtype).itemsize].view(dtype)


def _column_panels(rows: int, stride: int, a_values: NDArray[Any], a_exponents: NDArray[Any], a_ranges: NDArray[Any]) -> Panels:
    """A worker's scratch memory beside the packed A."""
    return Panels(
        a_values, a_exponents, a_ranges,
        _aligned(LANES * stride, np.float32), _aligned(COLUMNS * stride, np.int32),
        _aligned(ROWS * stride, np.float64), _aligned(PAIRS * stride, np.int32), _aligned(LANES * stride, np.float64),
        _aligned(-(-rows // ROWS) * ROWS * COLUMNS, np.int32),
    )  # fmt: skip


def _a_panels(rows: int, stride: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    blocks = -(-rows // ROWS)
    return _aligned(ROWS * blocks * stride, np.float32), _aligned(PAIRS * blocks * stride, np.int32), np.empty((blocks, 2), np.int32)


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
    rows, depth = a.shape
    columns = b.shape[1]
    if depth == 0:
        out[...] = 0 if c is None else c
    if out.size == 0 or depth == 0:
        return
    order = _order(p, order)
    stride = depth_stride(depth, order.size)
    a_values, a_exponents, a_ranges = _a_panels(rows, stride)
    places = matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out)
    scratch: dict[int, Panels] = {}

    def pack(start: int, stop: int, worker: int) -> None:
        pack_blocks(p, places[0], rows, depth, stride, start, stop, a_values, a_exponents, a_ranges)

    def multiply(start: int, stop: int, worker: int) -> None:
        if worker not in scratch:
            scratch[worker] = _column_panels(rows, stride, a_values, a_exponents, a_ranges)
        column_panel(p, order, *places, rows, columns, depth, COLUMNS * start, scratch[worker])

    parallel_for(pack, len(a_ranges), threads, grain=max(1, len(a_ranges) // (4 * threads)))
    parallel_for(multiply, -(-columns // COLUMNS), threads)


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
    count, rows, depth = a.shape
    columns = b.shape[2]
    if depth == 0:
        out[...] = 0 if c is None else c
    if out.size == 0 or depth == 0:
        return
    order = _order(p, order)
    stride = depth_stride(depth, order.size)
    places = matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out)
    scratch: dict[int, Panels] = {}

    def multiply(start: int, stop: int, worker: int) -> None:
        if worker not in scratch:
            scratch[worker] = _column_panels(rows, stride, *_a_panels(rows, stride))
        tile_range(p, order, *places, rows, columns, depth, start, stop, scratch[worker])

    parallel_for(multiply, count, threads, grain=TILES_AT_ONCE)


def _order(p: Fused, order: NDArray[np.int32] | None) -> NDArray[np.int32]:
    if order is None:
        return np.arange(p.terms * max(p.restart, 1), dtype=np.int32)
    return np.array(order, np.int32)
