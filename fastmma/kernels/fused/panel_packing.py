"""Packing into panels by the shortest way: of 32 codes or more at once where they are bytes or words and adjacent, else of eight."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.decode.lanes import field_of, magnitude_of
from fastmma.kernels.fused.panels import (
    NO_MAGNITUDE,
    VECTOR_BYTES,
    BlockScales,
    PanelElementSpec,
    Panels,
    negatives,
    pack_columns_by_eights,
    pack_rows_by_eights,
    store_signs,
    values,
)
from fastmma.kernels.fused.word_packing import pack_columns_of_words, pack_rows_of_words
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.simd import (
    convert,
    highest_lane,
    itemsize_of,
    lane_bits,
    load,
    load_scalar,
    lowest_lane,
    maximum,
    minimum,
    select,
    splat,
    store,
    subtract_or_zero,
)
from fastmma.kernels.matrices.addresses import LINES, Matrix


@inner
def _checked_bytes(codes: Any, how: PanelElementSpec, lanes: int) -> Any:
    """Codes of a byte, with zeros for bad ones."""
    return select(magnitude_of(codes, how.element) < splat(np.uint8(min(how.first_bad, 255)), lanes), codes, splat(np.uint8(0), lanes))


@inner
def _exponents_of_bytes(magnitude: Any, how: PanelElementSpec, lanes: int) -> Any:
    """Compute `exponent_bytes` of magnitudes of a byte."""
    raised, lowered = min(max(how.byte_offset, 0), 255), min(max(-how.byte_offset, 0), 255)
    byte = minimum(field_of(magnitude, how.element), splat(np.uint8(255 - raised), lanes)) + splat(np.uint8(raised), lanes)
    byte = minimum(subtract_or_zero(byte, splat(np.uint8(lowered), lanes)), splat(np.uint8(how.highest_byte), lanes))
    none = splat(np.uint8(0), lanes)
    return select(magnitude == none, none, byte)


@separate
def _pack_rows_of_bytes(
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
) -> None:
    """Do what `pack_rows` does, where codes are bytes and those of a row adjacent: all but values is computed of 32 of them at once."""
    none, one = splat(np.uint8(0), VECTOR_BYTES), splat(np.uint8(1), VECTOR_BYTES)
    unit = max(terms, LINES)
    padded = (depth + unit - 1) // unit * unit
    held = scratch + (last - first) * 2 * VECTOR_BYTES
    for row in range(last - first):
        store(splat(np.uint8(255), VECTOR_BYTES), scratch + row * 2 * VECTOR_BYTES)
        store(none, scratch + row * 2 * VECTOR_BYTES + VECTOR_BYTES)
    slab = 0
    for start in range(0, padded, packed.depth):
        stop = min(start + packed.depth, padded)
        block = first - first % packed.block
        for row in range(first, last):
            if row == block + packed.block:
                block = row
            noted, line = scratch + (row - first) * 2 * VECTOR_BYTES, source.address + row * source.row_stride
            smallest, largest = load(noted, np.uint8, VECTOR_BYTES), load(noted + VECTOR_BYTES, np.uint8, VECTOR_BYTES)
            for k in range(start, stop, VECTOR_BYTES):
                count = 0
                if row < rows:
                    count = depth - k
                codes = none
                if count >= VECTOR_BYTES:
                    codes = load(line + k, np.uint8, VECTOR_BYTES)
                elif count > 0:
                    store(none, held)
                    for place in range(count):
                        store(load_scalar(line + k + place, np.uint8), held + place)
                    codes = load(held, np.uint8, VECTOR_BYTES)
                magnitude = magnitude_of(codes, how.element)
                smallest, largest = minimum(smallest, magnitude - one), maximum(largest, magnitude)  # a zero less 1 is the largest
                codes = _checked_bytes(codes, how, VECTOR_BYTES)
                magnitude = magnitude_of(codes, how.element)
                negative = lane_bits(negatives(codes, magnitude, how))
                store(codes, held)
                store(_exponents_of_bytes(magnitude, how, VECTOR_BYTES), noted)
                place = (slab + block) * packed.depth + (k - start) * packed.block
                for eight in range(0, min(VECTOR_BYTES, stop - k), LINES):
                    store_signs((negative >> eight) & 255, terms, packed, place, row - block)
                    at = place + (row - block) * LINES
                    some = convert(load(held + eight, np.uint8, LINES), np.int32)
                    store(values(some, how, splat(np.int32(0), LINES), dtype), packed.values + at * itemsize_of(dtype))
                    store(convert(load(noted + eight, np.uint8, LINES), np.int32) * 0x01010101, packed.exponents + 4 * at)
                    place += LINES * packed.block
            store(smallest, noted)
            store(largest, noted + VECTOR_BYTES)
        slab += packed.rows
    for row in range(first, min(last, rows)):
        noted = scratch + (row - first) * 2 * VECTOR_BYTES
        less = np.int64(lowest_lane(load(noted, np.uint8, VECTOR_BYTES)))
        extremes[row, 0] = NO_MAGNITUDE if less == 255 else less + 1
        extremes[row, 1] = np.int64(highest_lane(load(noted + VECTOR_BYTES, np.uint8, VECTOR_BYTES)))


@separate
def _pack_columns_of_bytes(
    shape: Any,
    terms: int,
    how: PanelElementSpec,
    first: int,
    stride: int,
    inside: int,
    rows: int,
    packed: Panels,
    scratch: int,
    extremes: int,
) -> None:
    """Pack rows of a whole panel of B, of adjacent codes of a byte each, as f32 values: `inside` rows from an address on, then zeros.

    `scratch` holds a byte for each column.
    """
    none, one = splat(np.uint8(0), shape.panel), splat(np.uint8(1), shape.panel)
    flip, bits = splat(np.uint8(how.flip), shape.panel), min(terms, 8)
    smallest, largest, signs = splat(np.uint8(255), shape.panel), none, none
    for k in range(rows):
        codes = none
        if k < inside:
            codes = load(first + k * stride, np.uint8, shape.panel)
        magnitude = magnitude_of(codes, how.element)
        smallest, largest = minimum(smallest, magnitude - one), maximum(largest, magnitude)  # a zero less 1 is the largest
        codes = _checked_bytes(codes, how, shape.panel)
        magnitude = magnitude_of(codes, how.element)
        store(codes, scratch)
        store(_exponents_of_bytes(magnitude, how, shape.panel) ^ flip, packed.exponents + k * shape.panel)
        bit = k & (bits - 1)
        if bit == 0:
            signs = none
        signs = signs | select(negatives(codes, magnitude, how), splat(np.uint8(1 << bit), shape.panel), none)
        store(signs, packed.signs + k // bits * shape.panel)
        for column in range(0, shape.panel, shape.lanes):
            place = (column // shape.tile * shape.depth + k) * shape.tile + column % shape.tile
            some = convert(load(scratch + column, np.uint8, shape.lanes), np.int32)
            store(values(some, how, splat(np.int32(0), shape.lanes), np.float32), packed.values + 4 * place)
    store(smallest, scratch)
    for lane in range(0, shape.panel, LINES):
        place = extremes + lane * 8
        less = convert(load(scratch + lane, np.uint8, LINES), np.int32)
        store(minimum(load(place, np.int32, LINES), select(less == 255, NO_MAGNITUDE, less + 1)), place)
    store(largest, scratch)
    for lane in range(0, shape.panel, LINES):
        place = extremes + lane * 8 + VECTOR_BYTES
        store(maximum(load(place, np.int32, LINES), convert(load(scratch + lane, np.uint8, LINES), np.int32)), place)


@compiled
def pack_rows(
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
    """Pack rows first to last of A, as `pack_rows_by_eights`."""
    if scales is None:
        if source.itemsize == 1 and source.column_stride == 1 and how.element.shift == 0:
            _pack_rows_of_bytes(how, source, first, last, rows, depth, terms, packed, dtype, scratch, extremes)
            return
        if source.itemsize == 2 and how.element.shift == 0 and (source.column_stride == 2 or source.row_stride == 2):
            pack_rows_of_words(how, source, first, last, rows, depth, terms, packed, dtype, scratch, extremes)
            return
    pack_rows_by_eights(how, source, first, last, rows, depth, terms, packed, dtype, scratch, extremes, scales)


@inner
def pack_columns(
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
    """Pack rows start to stop of a panel of B from `column` on, as `pack_columns_by_eights`."""
    if shape.value_bytes == 4 and scales is None:
        whole = columns - column >= shape.panel and source.column_stride == 1
        if whole and source.itemsize == 1 and how.element.shift == 0:
            place = source.address + start * source.row_stride + column
            inside = min(depth, stop) - start
            _pack_columns_of_bytes(shape, terms, how, place, source.row_stride, inside, stop - start, packed, scratch, extremes)
            return
    if shape.value_bytes == 8 and scales is None:
        whole = columns - column >= shape.panel and (source.column_stride == 2 or source.row_stride == 2)
        if whole and source.itemsize == 2 and how.element.shift == 0:
            pack_columns_of_words(shape, terms, how, source, column, start, stop, depth, packed, scratch, extremes)
            return
    pack_columns_by_eights(shape, terms, how, source, column, columns, start, stop, depth, packed, dtype, scratch, extremes, scales)
