"""Packing for `fastmma.kernels.fused.micro_kernel`: values, exponent bytes and signs of A's rows and of B's column panels.

A zero is packed as a tiny positive value, so that its product with a negative element still floors to -1 and is counted as negative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmma.kernels.decode.lanes import field_of, is_negative, magnitude_of, signed, value_of
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import (
    bitcast,
    convert,
    even_lanes,
    highest_lane,
    itemsize_of,
    lane_bits,
    load,
    lowest_lane,
    maximum,
    minimum,
    odd_lanes,
    select,
    splat,
    store,
)
from fastmma.kernels.matrices.addresses import LINES, Lines, Matrix, arrange_codes, code_place, load_code, load_codes
from fastmma.kernels.params import Element

NO_MAGNITUDE = 0x7FFFFFFF  # the smallest magnitude among no elements
VECTOR_BYTES = 4 * LINES  # of 8 codes, magnitudes or exponents


class PanelElementSpec(NamedTuple):
    """The decoding of codes of one operand into panels."""

    element: Element
    value_offset: int  # added to the exponent field: the exponent of the significand's last bit, scaled
    byte_offset: int  # added to the exponent field: the exponent byte, which saturates at both ends
    highest_byte: int
    flip: int  # what exponent bytes are xored with: 255 for saturating differences from A's, else 0
    first_bad: int  # magnitudes from here on are left to another kernel and packed as zeros
    growth: float  # 1 for A, 1 + 2**-t for B
    tiny: float  # what a zero is packed as


class BlockScales(NamedTuple):
    """Codes of scales that are powers of two, of a byte each: one for every `block` adjacent k of each line."""

    codes: Matrix
    block: int
    bias: int
    nan: int  # the code that counts as 1: its lines are done another way


class Panels(NamedTuple):
    """Addresses of packed values, exponents and signs, slab of k by slab; in a slab of A, block of rows by block.

    In a block, 8 adjacent k of one row are followed by the same k of the next row; signs of 8 or, if there are fewer terms, 4 k likewise.
    """

    values: int
    exponents: int
    signs: int
    depth: int  # of a slab
    rows: int
    block: int  # rows


@inner
def forget_extremes(extremes: int, count: int) -> None:
    """Start `count` times 8 pairs of a smallest and a largest magnitude."""
    for place in range(0, count * VECTOR_BYTES * 2, 2 * VECTOR_BYTES):
        store(splat(np.int32(NO_MAGNITUDE), LINES), extremes + place)
        store(splat(np.int32(0), LINES), extremes + place + VECTOR_BYTES)


@inner
def checked(codes: Any, how: PanelElementSpec, extremes: int) -> Any:
    """Codes and magnitudes with zeros for bad ones, after the true ones have been counted in; zeros are not among the smallest."""
    codes = codes >> how.element.shift
    magnitude = magnitude_of(codes, how.element)
    nonzero = ((magnitude - 1) & NO_MAGNITUDE) + 1  # a select would become a store of some lanes, from which a load has to wait
    smallest = minimum(load(extremes, np.uint32, LINES), bitcast(nonzero, np.uint32))
    largest = maximum(load(extremes + VECTOR_BYTES, np.int32, LINES), magnitude)
    store(smallest, extremes)
    store(largest, extremes + VECTOR_BYTES)
    codes = select(magnitude < how.first_bad, codes, 0)
    return codes, magnitude_of(codes, how.element)


@inner
def _exponents_of(codes: Any, scales: BlockScales) -> Any:
    """The exponents of scales in int32 lanes."""
    return select(codes == scales.nan, 0, codes - scales.bias)


@inner
def values(codes: Any, how: PanelElementSpec, shift: Any, dtype: Any) -> Any:
    """The packed values of codes, times 2**shift."""
    magnitude = magnitude_of(codes, how.element)
    value = value_of(magnitude, field_of(magnitude, how.element), shift + how.value_offset, how.element, dtype) * how.growth
    return select(magnitude == 0, how.tiny, signed(value, codes, how.element))


@inner
def negatives(codes: Any, magnitude: Any, how: PanelElementSpec) -> Any:
    """A mask of codes below zero."""
    return is_negative(codes, how.element) & (magnitude != 0)


@inner
def exponent_bytes(magnitude: Any, how: PanelElementSpec, shift: Any) -> Any:
    """Exponents plus `shift` as unsigned bytes in 32-bit lanes, 0 for zeros."""
    byte = field_of(magnitude, how.element) + how.byte_offset + shift
    return select(magnitude == 0, 0, minimum(maximum(byte, 0), how.highest_byte))


@inner
def store_signs(negative: int, terms: int, packed: Panels, place: int, row: int) -> None:
    """Store which of eight k of a row are negative, four times over; the eight begins at a place, and the row is one of a block."""
    if terms == 4:
        signs = packed.signs + place + 4 * row
        store(np.uint32((negative & 15) * 0x01010101), signs)
        store(np.uint32((negative >> 4) * 0x01010101), signs + 4 * packed.block)
    else:
        store(np.uint32(negative * 0x01010101), packed.signs + place // 2 + 4 * row)


@inner
def pack_rows_by_eights(
    how: PanelElementSpec,
    source: Matrix,
    first: int,
    last: int,
    rows: int,
    depth: int,
    terms: int,
    packed: Panels,
    dtype: Any,
    scratch: int,
    extremes: Any,
    scales: BlockScales | None,
) -> None:
    """Pack rows first to last of A, zeros past `rows` and past column `depth`; `extremes` gets each row's smallest and largest magnitude.

    Elements are multiplied by their scales, if there are some. Exponent bytes and sign bytes are written four times over, as the words that
    a broadcast reads. `scratch` holds 3 vectors a row.
    """
    noted = scratch
    arranged = noted + (last - first) * 2 * VECTOR_BYTES
    forget_extremes(noted, last - first)
    unit = max(terms, LINES)
    for k in range(0, (depth + unit - 1) // unit * unit, LINES):
        eight = Lines(
            source.address + first * source.row_stride + k * source.column_stride, source.column_stride, source.row_stride, source.itemsize
        )
        arrange_codes(eight, depth - k, max(min(rows, last) - first, 0), last - first, arranged)
        # divisions take as long as all else of eight elements
        slab, in_slab = k // packed.depth * packed.rows, k % packed.depth * packed.block
        of_scale = 0
        if scales is not None:
            of_scale = k // scales.block
        block = first - first % packed.block
        for row in range(first, last):
            codes = load(arranged + (row - first) * VECTOR_BYTES, np.int32, LINES)
            codes, magnitude = checked(codes, how, noted + (row - first) * 2 * VECTOR_BYTES)
            if row == block + packed.block:
                block = row
            place = (slab + block) * packed.depth + in_slab
            negative = lane_bits(negatives(codes, magnitude, how))
            store_signs(negative, terms, packed, place, row - block)
            place += (row - block) * LINES
            shift = splat(np.int32(0), LINES)
            if scales is not None:  # noqa: SIM102 - Numba prunes a branch on None alone
                if row < rows and k < depth:
                    shift = _exponents_of(splat(load_code(code_place(scales.codes, row, of_scale), 1), LINES), scales)
            store(values(codes, how, shift, dtype), packed.values + place * itemsize_of(dtype))
            store(exponent_bytes(magnitude, how, shift) * 0x01010101, packed.exponents + 4 * place)
    for row in range(first, min(last, rows)):
        place = (row - first) * 2 * VECTOR_BYTES
        extremes[row, 0] = lowest_lane(load(noted + place, np.int32, LINES))
        extremes[row, 1] = highest_lane(load(noted + place + VECTOR_BYTES, np.int32, LINES))


@inner
def _pack_eight(
    shape: Any, terms: int, codes: Any, magnitude: Any, how: PanelElementSpec, shift: Any, k: int, column: int, packed: Panels, dtype: Any
) -> None:
    """Pack 8 columns of one row of B, times 2**shift."""
    store(convert(exponent_bytes(magnitude, how, shift) ^ how.flip, np.uint8), packed.exponents + k * shape.panel + column)
    bits_in_byte, log = (8, 3) if terms >= 8 else (4, 2)  # a division would take longer than all else
    signs = packed.signs + (k >> log) * shape.panel + column
    bit = k & (bits_in_byte - 1)
    negative = select(negatives(codes, magnitude, how), splat(np.int32(1), LINES) << bit, 0)
    if bit != 0:
        negative = negative | convert(load(signs, np.uint8, LINES), np.int32)
    store(convert(negative, np.uint8), signs)
    place = (column // shape.tile * shape.depth + k) * shape.tile + column % shape.tile
    if shape.value_bytes == 4:
        store(values(codes, how, shift, dtype), packed.values + place * 4)
    else:
        # two columns, then two columns for the other vector of the group
        pairs, shifts = bitcast(codes, np.int64), bitcast(shift, np.int64)
        place -= column % shape.lanes // 2
        first = values(bitcast(even_lanes(pairs), np.int32), how, bitcast(even_lanes(shifts), np.int32), dtype)
        second = values(bitcast(odd_lanes(pairs), np.int32), how, bitcast(odd_lanes(shifts), np.int32), dtype)
        store(first, packed.values + place * 8)
        store(second, packed.values + (place + shape.lanes // 2) * 8)


@inner
def _shifts(scales: BlockScales, k: int, depth: int, column: int, columns: int) -> Any:
    """The exponents of the scales of 8 columns at one k, 0 past the last column and row."""
    if k >= depth or column >= columns:
        return splat(np.int32(0), LINES)
    place = code_place(scales.codes, k // scales.block, column)
    return _exponents_of(load_codes(place, scales.codes.column_stride, 1, min(columns - column, LINES)), scales)


@inner
def pack_columns_by_eights(
    shape: Any,
    terms: int,
    how: PanelElementSpec,
    source: Matrix,
    column: int,
    columns: int,
    start: int,
    stop: int,
    depth: int,
    packed: Panels,
    dtype: Any,
    scratch: int,
    extremes: int,
    scales: BlockScales | None,
) -> None:
    """Pack rows start to stop of a panel of B from `column` on, zeros past `columns` columns and `depth` rows.

    `extremes` is where the columns' smallest and largest magnitudes so far lie, by eights; `scratch` holds a vector a row.
    """
    for lane in range(0, shape.panel, LINES):
        eight = Lines(
            source.address + start * source.row_stride + (column + lane) * source.column_stride,
            source.column_stride,
            source.row_stride,
            source.itemsize,
        )
        arrange_codes(eight, columns - column - lane, depth - start if depth < stop else stop - start, stop - start, scratch)
        shift = splat(np.int32(0), LINES)
        left = 0  # rows until the next scales
        for k in range(stop - start):
            if scales is not None:
                if left == 0:
                    shift = _shifts(scales, start + k, depth, column + lane, columns)
                    left = scales.block - (start + k) % scales.block
                left -= 1
            codes, magnitude = checked(load(scratch + k * VECTOR_BYTES, np.int32, LINES), how, extremes + lane * 8)
            _pack_eight(shape, terms, codes, magnitude, how, shift, k, lane, packed, dtype)
