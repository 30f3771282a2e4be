"""Packing of codes of 16 bits into panels: all but values is computed of a vector of codes at once, and values of normal numbers by shifts.

Codes whose k are adjacent where columns should be, or the other way round, are transposed before, a part at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.decode.lanes import field_of, magnitude_of
from fastmma.kernels.fused.panels import NO_MAGNITUDE, VECTOR_BYTES, PanelElementSpec, Panels, negatives, store_signs, values
from fastmma.kernels.llvm.compilation import inner, separate
from fastmma.kernels.llvm.simd import (
    any_lane,
    bitcast,
    convert,
    even_lanes,
    highest_lane,
    interleave,
    itemsize_of,
    lane_bits,
    load,
    load_scalar,
    lowest_lane,
    maximum,
    minimum,
    odd_lanes,
    select,
    splat,
    store,
    subtract_or_zero,
)
from fastmma.kernels.matrices.addresses import LINES, Matrix

WORDS = 32  # codes of a row of A that are packed at once, and k of B that are transposed at once
_HIGHEST = 0xFFFF  # a magnitude of zero, less 1
_FEW_WORDS = 2 * LINES * LINES  # bytes of 8 lines of 8 codes
_NOTED = 4 * WORDS  # bytes of a row's smallest and largest magnitudes


def scratch_of_rows(rows: int) -> int:
    """Bytes of scratch that the packing of so many rows takes: what is noted of each, codes of 32 rows, and of one with its exponents."""
    return rows * _NOTED + 2 * WORDS * WORDS + 6 * WORDS + _FEW_WORDS


def scratch_of_columns(panel: int) -> int:
    """Bytes of scratch that the packing of a panel of columns takes."""
    return 2 * panel * (WORDS + 1) + _FEW_WORDS


@inner
def _checked(codes: Any, how: PanelElementSpec, lanes: int) -> Any:
    """Codes with zeros for bad ones."""
    fine = magnitude_of(codes, how.element) < splat(np.uint16(min(how.first_bad, _HIGHEST)), lanes)
    return select(fine, codes, splat(np.uint16(0), lanes))


@inner
def _exponents(magnitude: Any, how: PanelElementSpec, lanes: int) -> Any:
    """Exponents as unsigned bytes, 0 for zeros; see `fastmma.kernels.fused.panels.exponent_bytes`."""
    word = field_of(magnitude, how.element) + splat(np.uint16(max(how.byte_offset, 0)), lanes)
    word = minimum(subtract_or_zero(word, splat(np.uint16(max(-how.byte_offset, 0)), lanes)), splat(np.uint16(how.highest_byte), lanes))
    none = splat(np.uint16(0), lanes)
    return convert(select(magnitude == none, none, word), np.uint8)


@inner
def _is_any_small(magnitude: Any, how: PanelElementSpec, lanes: int) -> Any:
    """Tell whether any of these magnitudes is that of a zero or of a subnormal."""
    return any_lane(magnitude < splat(np.uint16(1 << how.element.mantissa_bits), lanes))


@inner
def _normal_values(codes: Any, how: PanelElementSpec) -> Any:
    """The packed values of int16 codes of normal numbers, by adding to their exponent fields; the sign is the highest bit."""
    gap = 52 - how.element.mantissa_bits
    kept = (np.int64(-1) << 63) | ((np.int64(1) << (how.element.exponent_bits + 52)) - 1)
    bias = np.int64(1023 + how.element.mantissa_bits + how.value_offset) << 52
    return bitcast(((convert(codes, np.int64) << gap) & kept) + bias, np.float64) * how.growth


@inner
def _transpose(source: int, line_stride: int, lines: int, length: int, scratch: int, target: int, target_stride: int, padded: int) -> None:
    """Lines of adjacent codes as ``target[place, line]``, zeros past `lines` lines and past `length`; `padded` lines and length alike.

    Both paddings are 32, or of lines 64; `scratch` holds 8 by 8 codes.
    """
    for line in range(0, padded, LINES):
        for place in range(0, WORDS, LINES):
            start, out = source + line * line_stride + 2 * place, target + place * target_stride + 2 * line
            if line + LINES <= lines and place + LINES <= length:
                # three perfect shuffles of 64 elements transpose an 8 x 8 matrix
                line04 = interleave(load(start, np.uint16, LINES), load(start + 4 * line_stride, np.uint16, LINES))
                line15 = interleave(load(start + line_stride, np.uint16, LINES), load(start + 5 * line_stride, np.uint16, LINES))
                line26 = interleave(load(start + 2 * line_stride, np.uint16, LINES), load(start + 6 * line_stride, np.uint16, LINES))
                line37 = interleave(load(start + 3 * line_stride, np.uint16, LINES), load(start + 7 * line_stride, np.uint16, LINES))
                store(interleave(interleave(line04, line26), interleave(line15, line37)), scratch)
                for each in range(LINES):
                    store(load(scratch + 2 * LINES * each, np.uint16, LINES), out + each * target_stride)
            else:
                for each in range(LINES):
                    for other in range(LINES):
                        code = np.uint16(0)
                        if line + other < lines and place + each < length:
                            code = load_scalar(start + other * line_stride + 2 * each, np.uint16)
                        store(code, out + each * target_stride + 2 * other)


@inner
def _pack_words_of_row(
    how: PanelElementSpec,
    codes: Any,
    place: int,
    noted: int,
    held: int,
    terms: int,
    packed: Panels,
    first: int,
    row: int,
    count: int,
    dtype: Any,
) -> None:
    """Pack `count` of 32 adjacent codes of a row of a block, which lie at a place; what is packed of the block begins at `first`."""
    one = splat(np.uint16(1), WORDS)
    magnitude = magnitude_of(codes, how.element)
    store(minimum(load(noted, np.uint16, WORDS), magnitude - one), noted)  # a zero less 1 is the largest
    store(maximum(load(noted + 2 * WORDS, np.uint16, WORDS), magnitude), noted + 2 * WORDS)
    codes = _checked(codes, how, WORDS)
    magnitude = magnitude_of(codes, how.element)
    negative = lane_bits(negatives(codes, magnitude, how))
    exponents = _exponents(magnitude, how, WORDS)
    twice = interleave(exponents, exponents)
    store(interleave(twice, twice), held)
    if itemsize_of(dtype) == 8 and count == WORDS:  # noqa: SIM102 - the first is known when the code is made
        if not _is_any_small(magnitude, how, WORDS):
            for eight in range(0, WORDS, LINES):
                store_signs((negative >> eight) & 255, terms, packed, first, row)
                at = first + row * LINES
                store(_normal_values(load(place + 2 * eight, np.int16, LINES), how), packed.values + at * 8)
                store(load(held + 4 * eight, np.int32, LINES), packed.exponents + 4 * at)
                first += LINES * packed.block
            return
    place = held + 4 * WORDS
    store(codes, place)
    for eight in range(0, count, LINES):
        store_signs((negative >> eight) & 255, terms, packed, first, row)
        at = first + row * LINES
        some = convert(load(place + 2 * eight, np.uint16, LINES), np.int32)
        store(values(some, how, splat(np.int32(0), LINES), dtype), packed.values + at * itemsize_of(dtype))
        store(load(held + 4 * eight, np.int32, LINES), packed.exponents + 4 * at)
        first += LINES * packed.block


@separate
def pack_rows_of_words(
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
    """Do what `pack_rows` does, of at most 32 rows, where codes are words, and those of a column or of a row adjacent."""
    none = splat(np.uint16(0), WORDS)
    unit = max(terms, LINES)
    padded = (depth + unit - 1) // unit * unit
    inside = min(last, rows) - first
    turned = scratch + (last - first) * _NOTED
    held = turned + 2 * WORDS * WORDS
    eights = held + 6 * WORDS
    for row in range(last - first):
        store(splat(np.uint16(_HIGHEST), WORDS), scratch + row * _NOTED)
        store(none, scratch + row * _NOTED + 2 * WORDS)
    slab = 0
    for start in range(0, padded, packed.depth):
        stop = min(start + packed.depth, padded)
        for k in range(start, stop, WORDS):
            if source.column_stride != 2:
                lines = source.address + first * 2 + k * source.column_stride
                _transpose(lines, source.column_stride, depth - k, inside, eights, turned, 2 * WORDS, WORDS)
            block = first - first % packed.block
            for row in range(first, last):
                if row == block + packed.block:
                    block = row
                line = turned + (row - first) * 2 * WORDS
                codes = none
                if source.column_stride != 2:
                    if row < rows:
                        codes = load(line, np.uint16, WORDS)
                elif row < rows and k + WORDS <= depth:
                    line = source.address + row * source.row_stride + 2 * k
                    codes = load(line, np.uint16, WORDS)
                elif row < rows and k < depth:
                    store(none, line)
                    for each in range(depth - k):
                        store(load_scalar(source.address + row * source.row_stride + 2 * (k + each), np.uint16), line + 2 * each)
                    codes = load(line, np.uint16, WORDS)
                place = (slab + block) * packed.depth + (k - start) * packed.block
                noted = scratch + (row - first) * _NOTED
                _pack_words_of_row(how, codes, line, noted, held, terms, packed, place, row - block, min(WORDS, stop - k), dtype)
        slab += packed.rows
    for row in range(first, min(last, rows)):
        noted = scratch + (row - first) * _NOTED
        less = np.int64(lowest_lane(load(noted, np.uint16, WORDS)))
        extremes[row, 0] = NO_MAGNITUDE if less == _HIGHEST else less + 1
        extremes[row, 1] = np.int64(highest_lane(load(noted + 2 * WORDS, np.uint16, WORDS)))


@inner
def _pack_values_of_panel(shape: Any, how: PanelElementSpec, k: int, codes: int, small: Any, packed: Panels) -> None:
    """Pack the values of the codes of a panel at one k, which lie at an address."""
    for column in range(0, shape.panel, shape.lanes):
        # two columns, then two columns for the other vector of the group
        pairs = bitcast(load(codes + 2 * column, np.uint16, shape.lanes), np.int32)
        place = packed.values + 8 * ((column // shape.tile * shape.depth + k) * shape.tile + column % shape.tile)
        first, second = even_lanes(pairs), odd_lanes(pairs)
        if small:
            none = splat(np.int32(0), shape.lanes // 2)
            store(values(convert(bitcast(first, np.uint16), np.int32), how, none, np.float64), place)
            store(values(convert(bitcast(second, np.uint16), np.int32), how, none, np.float64), place + 4 * shape.lanes)
        else:
            store(_normal_values(bitcast(first, np.int16), how), place)
            store(_normal_values(bitcast(second, np.int16), how), place + 4 * shape.lanes)


@separate
def _pack_lines(
    shape: Any,
    terms: int,
    how: PanelElementSpec,
    lines: int,
    stride: int,
    start: int,
    stop: int,
    inside: int,
    packed: Panels,
    scratch: int,
    extremes: int,
) -> None:
    """Pack rows start to stop of a slab of a whole panel of B, whose codes lie at `lines`; those from `inside` on are zeros."""
    none, one = splat(np.uint16(0), shape.panel), splat(np.uint16(1), shape.panel)
    flip, bits = splat(np.uint8(how.flip), shape.panel), min(terms, 8)
    smallest, largest, signs = splat(np.uint16(_HIGHEST), shape.panel), none, splat(np.uint8(0), shape.panel)
    for k in range(start, stop):
        place = lines + (k - start) * stride
        codes = none
        if k < inside:
            codes = load(place, np.uint16, shape.panel)
        magnitude = magnitude_of(codes, how.element)
        smallest, largest = minimum(smallest, magnitude - one), maximum(largest, magnitude)  # a zero less 1 is the largest
        codes = _checked(codes, how, shape.panel)
        magnitude = magnitude_of(codes, how.element)
        store(_exponents(magnitude, how, shape.panel) ^ flip, packed.exponents + k * shape.panel)
        bit = k & (bits - 1)
        if bit == 0:
            signs = splat(np.uint8(0), shape.panel)
        signs = signs | select(negatives(codes, magnitude, how), splat(np.uint8(1 << bit), shape.panel), splat(np.uint8(0), shape.panel))
        store(signs, packed.signs + k // bits * shape.panel)
        small = _is_any_small(magnitude, how, shape.panel)
        if small:
            place = scratch
            store(codes, place)
        _pack_values_of_panel(shape, how, k, place, small, packed)
    store(smallest, scratch)
    for lane in range(0, shape.panel, LINES):
        place = extremes + lane * 8
        less = convert(load(scratch + 2 * lane, np.uint16, LINES), np.int32)
        store(minimum(load(place, np.int32, LINES), select(less == _HIGHEST, NO_MAGNITUDE, less + 1)), place)
    store(largest, scratch)
    for lane in range(0, shape.panel, LINES):
        place = extremes + lane * 8 + VECTOR_BYTES
        store(maximum(load(place, np.int32, LINES), convert(load(scratch + 2 * lane, np.uint16, LINES), np.int32)), place)


@separate
def pack_columns_of_words(
    shape: Any,
    terms: int,
    how: PanelElementSpec,
    source: Matrix,
    column: int,
    start: int,
    stop: int,
    depth: int,
    packed: Panels,
    scratch: int,
    extremes: int,
) -> None:
    """Do what `pack_columns` does, of a whole panel as f64 values, where codes are words, and those of a row or of a column adjacent."""
    first = source.address + start * source.row_stride + column * source.column_stride
    count, inside = stop - start, min(depth, stop) - start
    held = scratch + 2 * shape.panel * WORDS
    if source.column_stride == 2:
        _pack_lines(shape, terms, how, first, source.row_stride, 0, count, inside, packed, held, extremes)
        return
    for k in range(0, count, WORDS):
        lines = first + 2 * k
        _transpose(lines, source.column_stride, shape.panel, inside - k, held + 2 * shape.panel, scratch, 2 * shape.panel, shape.panel)
        _pack_lines(shape, terms, how, scratch, 2 * shape.panel, k, min(k + WORDS, count), inside, packed, held, extremes)
