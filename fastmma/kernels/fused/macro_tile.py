"""One macro tile of a product, compiled: a chunk of rows by a panel of columns, slab of k by slab of k."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmma.kernels.fused.panel_packing import pack_columns
from fastmma.kernels.fused.panels import NO_MAGNITUDE, VECTOR_BYTES, BlockScales, PanelElementSpec, Panels, forget_extremes
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.micro_kernel import run_at
from fastmma.kernels.llvm.simd import (
    bitcast,
    convert,
    even_lanes,
    extract,
    highest_lane,
    interleave,
    load,
    load_scalar,
    maximum,
    minimum,
    odd_lanes,
    select,
    splat,
    store,
)
from fastmma.kernels.matrices.addresses import LANES, LINES, NOWHERE, Matrix, load_codes
from fastmma.kernels.sums.epilogue import rounded_to_bf16
from fastmma.kernels.sums.promotion import promoted

_INFINITY = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF
_PAIRS = LINES // 2  # of columns in an f64 vector


class Limits(NamedTuple):
    """The limits within which the micro-kernel is exact, beyond finite operands; everything else is redone."""

    lowest_sum: int  # smallest exponent fields of a row and a column add up to at least this, or emax must not get small
    lowest_byte: int  # the smallest emax byte at which no bit below 2**-149 can matter
    smallest_c: int  # c's magnitude in f32 is zero or from here ...
    largest_c: int  # ... to below here
    mask_c: int  # the fraction bits that c keeps
    surplus: int  # what sums of exponent bytes hold above emax bytes ...
    deficit: int  # ... or below them


class WorkerMemory(NamedTuple):
    """Addresses of a worker's buffers."""

    values: int
    exponents: int
    signs: int
    arranged: int
    extremes: int
    state: int
    scratch: int
    min_emax: int
    max_sum_exponent: int
    total: int


class Promoting(NamedTuple):
    """Every so many k the sums join the totals and start at zero again; addresses and strides of the float32 scales."""

    every: int
    rule: int
    scale_a: int
    scale_b: int
    chunk_a: int  # bytes from a chunk's scales to the next chunk's
    chunk_b: int


class Extent(NamedTuple):
    """One macro tile: rows first to last, a whole number of blocks, by a panel of columns; the last row may lie past the matrix."""

    first: int
    last: int
    column: int
    columns: int
    depth: int


@inner
def _from_half(codes: Any) -> Any:
    """f16 codes in int32 lanes as f32 bits; infinities and NaNs all become infinities."""
    magnitude = codes & 0x7FFF
    subnormal = bitcast(convert(magnitude, np.float32) * np.float32(2.0**-24), np.int32)
    normal = select(magnitude >= 0x7C00, _INFINITY, (magnitude << 13) + (112 << 23))
    return select(magnitude < 0x400, subnormal, normal) | ((codes & 0x8000) << 16)


@inner
def _to_half(bits: Any) -> Any:
    """The f16 codes of f32 bits that hold f16 values; a zero is +0, also what rounded to it from below."""
    magnitude = bits & _MAGNITUDE
    subnormal = convert(bitcast(magnitude, np.float32) * np.float32(2.0**24), np.int32)
    normal = minimum((magnitude >> 13) - (112 << 10), 0x7C00)
    return select(magnitude < 113 << 23, subnormal, normal) | select(magnitude == 0, 0, (bits >> 16) & 0x8000)


@inner
def _read_state(shape: Any, extent: Extent, c: Matrix, limits: Limits, state: int, fallback_rows: Any) -> None:
    """The initial sums as float32, +0 without c; rows with a c that the micro-kernel cannot take are marked."""
    if c.address == 0:
        for row in range(extent.last - extent.first):
            for place in range(0, shape.panel * 4, shape.panel):
                store(splat(np.uint8(0), shape.panel), state + row * shape.panel * 4 + place)
            if row < fallback_rows.size:  # in a loop of its own, LLVM would call the C library's memset, and have to link it
                fallback_rows[row] = np.uint8(0)
        return
    zero = splat(np.int32(0), LINES)
    for row in range(extent.last - extent.first):
        bad_lanes = zero
        for lane in range(0, shape.panel, LINES):
            bits = zero
            count = extent.columns - extent.column - lane
            if row < fallback_rows.size and count > 0:
                place = c.address + (extent.first + row) * c.row_stride + (extent.column + lane) * c.column_stride
                bits = load_codes(place, c.column_stride, c.itemsize, min(count, LINES))
                if shape.half:
                    bits = _from_half(bits)
                bits = bits & limits.mask_c
                magnitude = bits & _MAGNITUDE
                small = select(magnitude == 0, zero, select(magnitude < limits.smallest_c, zero + 1, zero))
                bad = select(magnitude < limits.largest_c, small, 1)
                bad_lanes = bad_lanes | bad
                bits = select(bad != 0, 0, select(magnitude == 0, 0, bits))
            store(bits, state + (row * shape.panel + lane) * 4)
        _in_vectors(shape, state + row * shape.panel * 4)
        if row < fallback_rows.size:
            fallback_rows[row] = np.uint8(highest_lane(bad_lanes) != 0)


@inner
def _in_vectors(shape: Any, place: int) -> None:
    """One row of sums from the order of columns to that of f64 vectors, in which the micro-kernel of sparse A keeps them."""
    if shape.sparse and not shape.single:
        for lane in range(place, place + 4 * shape.panel, 4 * shape.lanes):
            pairs = load(lane, np.int64, LINES)
            store(even_lanes(pairs), lane)
            store(odd_lanes(pairs), lane + 2 * shape.lanes)


@inner
def _in_columns(shape: Any, place: int) -> None:
    """The way back."""
    if shape.sparse and not shape.single:
        for lane in range(place, place + 4 * shape.panel, 4 * shape.lanes):
            store(interleave(load(lane, np.int64, _PAIRS), load(lane + 2 * shape.lanes, np.int64, _PAIRS)), lane)


@inner
def _write_row(shape: Any, extent: Extent, row: int, out: Matrix, state: int) -> None:
    """One row of results from the state to the caller's array, of f32 that are rounded to bf16 where that is of two bytes."""
    _in_columns(shape, state + row * shape.panel * 4)
    if not shape.half and extent.columns - extent.column >= shape.panel and out.column_stride == out.itemsize:
        target = out.address + (extent.first + row) * out.row_stride + extent.column * out.itemsize
        if out.itemsize == 4:
            for place in range(0, 4 * shape.panel, shape.panel):
                store(load(state + row * shape.panel * 4 + place, np.uint8, shape.panel), target + place)
        else:
            sums = load(state + row * shape.panel * 4, np.int32, shape.panel)
            store(convert(rounded_to_bf16(sums) >> 16, np.uint16), target)
        return
    for lane in range(0, min(shape.panel, extent.columns - extent.column), LINES):
        count = min(extent.columns - extent.column - lane, LINES)
        bits = load(state + (row * shape.panel + lane) * 4, np.int32, LINES)
        place = out.address + (extent.first + row) * out.row_stride + (extent.column + lane) * out.column_stride
        if shape.half:
            bits = _to_half(bits)
        elif out.itemsize == 2:
            bits = rounded_to_bf16(bits) >> 16
        if count == LINES and out.column_stride == out.itemsize:
            if out.itemsize == 2:
                store(convert(bits, np.uint16), place)
            else:
                store(bits, place)
        else:
            for column in range(count):
                if out.itemsize == 2:
                    store(np.uint16(extract(bits, column)), place + column * out.column_stride)
                else:
                    store(extract(bits, column), place + column * out.column_stride)


@inner
def _read_total(shape: Any, extent: Extent, c: Matrix, total: int, rows: int) -> None:
    """The initial totals of f32, which may be any, +0 without c."""
    for row in range(extent.last - extent.first):
        for lane in range(0, shape.panel, LINES):
            bits = splat(np.int32(0), LINES)
            count = min(extent.columns - extent.column - lane, LINES)
            if c.address != 0 and row < rows and count > 0:
                place = c.address + (extent.first + row) * c.row_stride + (extent.column + lane) * c.column_stride
                bits = load_codes(place, c.column_stride, c.itemsize, count)
            store(bits, total + (row * shape.panel + lane) * 4)
        _in_vectors(shape, total + row * shape.panel * 4)


@inner
def _promote(shape: Any, extent: Extent, how: Promoting, chunk: int, state: int, total: int, rows: int) -> None:
    """The sums join the totals, and become zero; scales of B are there for whole panels, those of A for `rows` rows."""
    b = how.scale_b + chunk * how.chunk_b + 4 * extent.column
    a = how.scale_a + chunk * how.chunk_a + 4 * extent.first
    for row in range(rows):
        scale_a = np.float32(1)
        if how.rule != 0:
            scale_a = load_scalar(a + 4 * row, np.float32)
        left = splat(scale_a, LANES)
        right = left
        for lane in range(0, shape.panel, LANES):
            if how.rule != 0:
                right = load(b + 4 * lane, np.float32, LANES)
            place = (row * shape.panel + lane) * 4
            partial = load(state + place, np.float32, LANES)
            store(promoted(how.rule, partial, left, right, load(total + place, np.float32, LANES)), total + place)
            store(splat(np.int32(0), LANES), state + place)


@compiled
def run_macro_tile(
    shape: Any,
    kernel: int,
    terms: int,
    extent: Extent,
    promoting: Promoting | None,
    packed: Panels,
    smallest_a: Any,
    how: PanelElementSpec,
    b: Matrix,
    c: Matrix,
    out: Matrix,
    limits: Limits,
    work: WorkerMemory,
    dtype: Any,
    fallback_rows: Any,
    fallback_columns: Any,
    scales: BlockScales | None,
) -> None:
    """Compute a macro tile; mark rows (of the chunk) and columns (of the panel) that have to be done another way.

    `kernel` is the address of the micro-kernel, and `terms` the k of its steps. A slab of k must not reach beyond the next promotion;
    with promotions, c is where the totals start. Without, None leaves their code out of what is compiled.
    """
    slab = Panels(work.values, work.exponents, work.signs, shape.depth, 0, 0)
    blocks = (extent.last - extent.first) // shape.rows
    result = work.state
    if promoting is None:
        _read_state(shape, extent, c, limits, work.state, fallback_rows)
    else:
        result = work.total
        _read_state(shape, extent, NOWHERE, limits, work.state, fallback_rows)
        _read_total(shape, extent, c, work.total, fallback_rows.size)
    forget_extremes(work.extremes, shape.panel // LINES)
    for place in range(0, (extent.last - extent.first) * shape.panel, shape.panel):
        store(splat(np.uint8(255), shape.panel), work.min_emax + place)
    for place in range(0, blocks * shape.lanes, LINES):
        store(splat(np.int32(0), LINES), work.max_sum_exponent + 4 * place)
    whole = -(-extent.depth // terms) * terms
    bits_in_byte = min(terms, 8)
    for start in range(0, whole, packed.depth):
        stop = min(start + packed.depth, whole)
        pack_columns(
            shape,
            terms,
            how,
            b,
            extent.column,
            extent.columns,
            start,
            stop,
            extent.depth,
            slab,
            dtype,
            work.arranged,
            work.extremes,
            scales,
        )
        place = start * packed.rows + extent.first * packed.depth
        block = shape.rows * packed.depth
        run_at(
            kernel,
            (
                packed.values + place * shape.left_bytes,
                packed.exponents + place * 4,
                packed.signs + place // bits_in_byte * 4,
                slab.values,
                slab.exponents,
                slab.signs,
                work.state,
                work.scratch,
                work.min_emax,
                work.max_sum_exponent,
                block * shape.left_bytes,
                block * 4,
                block // bits_in_byte * 4,
                blocks,
                (stop - start) // terms,
                limits.surplus,
                limits.deficit,
            ),
        )
        if promoting is not None:  # noqa: SIM102 - Numba prunes a branch on None alone
            if stop % promoting.every == 0 or stop == whole:
                _promote(shape, extent, promoting, start // promoting.every, work.state, work.total, fallback_rows.size)
    smallest_b = NO_MAGNITUDE
    for column in range(fallback_columns.size):
        place = column // LINES * 2 * VECTOR_BYTES + column % LINES * 4
        fallback_columns[column] = load_scalar(work.extremes + place + VECTOR_BYTES, np.int32) >= how.first_bad
        if not fallback_columns[column]:
            smallest_b = min(smallest_b, load_scalar(work.extremes + place, np.int32))
    field_b = max(smallest_b >> how.element.mantissa_bits, 1)
    for row in range(fallback_rows.size):
        if shape.half:
            largest = splat(np.int32(0), LINES)
            for lane in range(0, shape.lanes, LINES):
                largest = maximum(largest, load(work.max_sum_exponent + 4 * (row // shape.rows * shape.lanes + lane), np.int32, LINES))
            if highest_lane(largest) >= _INFINITY:
                fallback_rows[row] = 1
        elif smallest_a[row] + field_b < limits.lowest_sum:
            for column in range(fallback_columns.size):
                if load_scalar(work.min_emax + row * shape.panel + column, np.uint8) < limits.lowest_byte:
                    fallback_rows[row] = 1
        _write_row(shape, extent, row, out, result)
