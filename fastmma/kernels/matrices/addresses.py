"""Decoding element codes into panels: 8 lines (rows of A, columns of B) of values, and of exponents, for every k."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.decode.lanes import field_of, first_special_of, is_negative, magnitude_of, signed, value_of
from fastmma.kernels.decode.tables import NAN_EXPONENT
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import (
    any_lane,
    bitcast,
    convert,
    highest_lane,
    insert,
    interleave,
    itemsize_of,
    load,
    load_scalar,
    lowest_lane,
    maximum,
    minimum,
    select,
    splat,
    store,
    zeros,
)
from fastmma.kernels.params import Element, Specials

LINES = 8  # of a panel
LANES = 2 * LINES
ZERO_EXPONENT = -8192  # of a zero element: below every floor, and two of them still fit 16 bits
SPECIAL_EXPONENT = 8191  # what an infinity or a NaN counts as in a range of exponents
GROUP_BYTES = LINES * (4 + 8)  # of the packed scales of a group


class Matrix(NamedTuple):
    """The address and strides of a caller's matrix, in bytes. Address 0: there is none."""

    address: int
    row_stride: int
    column_stride: int
    itemsize: int


class Lines(NamedTuple):
    """The address and strides of lines, in bytes from one line to the next and along a line."""

    address: int
    line_stride: int
    stride: int
    itemsize: int


class LineScales(NamedTuple):
    """Codes of scales, of a byte each, one for every `block` adjacent k of each line, and tables of what they mean."""

    address: int
    line_stride: int
    stride: int
    block: int
    exponents: int
    values: int


NOWHERE = Matrix(0, 0, 0, 0)  # every part of it stays at address 0


def matrix(array: NDArray[Any]) -> Matrix:
    """Return where an array's matrix lies; of a batch, the first one."""
    return Matrix(array.ctypes.data, array.strides[-2], array.strides[-1], array.itemsize)


def rows_from(whole: Matrix, row: int) -> Matrix:
    """The matrix from a row on."""
    return whole._replace(address=whole.address + row * whole.row_stride)


@inner
def matrix_part(whole: Matrix, row: int, column: int) -> Matrix:
    """The matrix from a row and a column on."""
    return Matrix(code_place(whole, row, column), whole.row_stride, whole.column_stride, whole.itemsize)


@inner
def code_place(whole: Matrix, row: int, column: int) -> int:
    """Return where a code lies."""
    return whole.address + row * whole.row_stride + column * whole.column_stride


@inner
def batch_matrix(first: Matrix, index: int, size: int) -> Matrix:
    """Matrix `index` of a contiguous batch of matrices of `size` elements."""
    return Matrix(first.address + index * size * first.itemsize, first.row_stride, first.column_stride, first.itemsize)


@inner
def load_code(address: int, itemsize: int) -> Any:
    """One code."""
    if itemsize == 1:
        return np.int32(load_scalar(address, np.uint8))
    if itemsize == 2:
        return np.int32(load_scalar(address, np.uint16))
    return load_scalar(address, np.int32)


@inner
def load_adjacent_codes(address: int, itemsize: int) -> Any:
    """8 adjacent codes as lanes of int32."""
    if itemsize == 1:
        return convert(load(address, np.uint8, LINES), np.int32)
    if itemsize == 2:
        return convert(load(address, np.uint16, LINES), np.int32)
    return load(address, np.int32, LINES)


@inner
def load_codes(address: int, stride: int, itemsize: int, count: int) -> Any:
    """`count` codes (at most 8), `stride` bytes apart, as lanes of int32; 0 in the other lanes."""
    if count == LINES and stride == itemsize:
        return load_adjacent_codes(address, itemsize)
    codes = zeros(np.int32, LINES)
    for lane in range(count):
        codes = insert(codes, lane, load_code(address + lane * stride, itemsize))
    return codes


@inner
def arrange_codes(lines: Lines, count: int, depth: int, padded_depth: int, codes: int) -> None:
    """8 lines as ``codes[k, line]`` of int32, zeros past `count` and `depth`; `padded_depth` is a multiple of 8."""
    address = lines.address
    stride = lines.stride
    itemsize = lines.itemsize
    done = 0
    if count >= LINES and stride == itemsize:
        line = lines.line_stride
        for k in range(0, depth - LINES + 1, LINES):
            place = address + k * stride
            # three perfect shuffles of 64 elements transpose an 8 x 8 matrix
            line04 = interleave(load_adjacent_codes(place, itemsize), load_adjacent_codes(place + 4 * line, itemsize))
            line15 = interleave(load_adjacent_codes(place + line, itemsize), load_adjacent_codes(place + 5 * line, itemsize))
            line26 = interleave(load_adjacent_codes(place + 2 * line, itemsize), load_adjacent_codes(place + 6 * line, itemsize))
            line37 = interleave(load_adjacent_codes(place + 3 * line, itemsize), load_adjacent_codes(place + 7 * line, itemsize))
            store(interleave(interleave(line04, line26), interleave(line15, line37)), codes + 4 * LINES * k)
        done = max(depth // LINES * LINES, 0)
    elif count >= LINES and lines.line_stride == itemsize:
        for k in range(depth):
            store(load_adjacent_codes(address + k * stride, itemsize), codes + 4 * LINES * k)
        done = depth
    for k in range(done, padded_depth):
        for line in range(LINES):
            code = np.int32(0)
            if line < count and k < depth:
                code = load_code(address + line * lines.line_stride + k * stride, itemsize)
            store(code, codes + 4 * (LINES * k + line))


@inner
def _decode(element: Element, codes: int, shifts: Any, first: int, last: int, values: int, exponents: int, dtype: Any) -> Any:
    """Decode codes times 2**shifts; the smallest magnitude that is not zero, and the largest one, of every lane."""
    size = itemsize_of(dtype)
    first_special = first_special_of(element)
    smallest = splat(np.uint32(0xFFFFFFFF), LANES)
    largest = splat(np.int32(0), LANES)
    for place in range(first, last, LANES):
        code = load(codes + 4 * place, np.int32, LANES) >> element.shift
        magnitude = magnitude_of(code, element)
        field = field_of(magnitude, element)
        value = value_of(magnitude, field, shifts - (element.bias + element.mantissa_bits), element, dtype)
        found = magnitude
        if element.specials == Specials.NEGATIVE_ZERO:
            found = select(is_negative(code, element) & (magnitude == 0), first_special, magnitude)
        if element.specials != Specials.NONE:
            value = select(found >= first_special, np.nan, value)
        if element.specials == Specials.IEEE:
            value = select(found == first_special, np.inf, value)
        store(signed(value, code, element), values + size * place)
        exponent = select(magnitude == 0, ZERO_EXPONENT, field + (shifts - element.bias))
        store(convert(exponent, np.int16), exponents + 2 * place)
        # a zero less 1 is the largest of all
        smallest = minimum(smallest, bitcast(magnitude - 1, np.uint32))
        largest = maximum(largest, found)
    return smallest + 1, largest


@inner
def _shifts(scales: LineScales, count: int, k: int, depth: int) -> Any:
    """The exponents of the scales of 8 lines at one k, for two k; 0 past `count` and `depth`."""
    shifts = splat(np.int32(0), LANES)
    if k < depth:
        place = scales.address + k // scales.block * scales.stride
        for line in range(min(count, LINES)):
            code = load_code(place + line * scales.line_stride, 1)
            exponent = load_scalar(scales.exponents + 4 * code, np.int32)
            shifts = insert(insert(shifts, line, exponent), line + LINES, exponent)
    return shifts


@inner
def _decode_scaled(
    element: Element, codes: int, scales: LineScales, count: int, depth: int, padded_depth: int, values: int, exponents: int, dtype: Any
) -> Any:
    """Decode 8 lines times their scales; the lowest and the highest exponent."""
    size = itemsize_of(dtype)
    lowest, highest = -ZERO_EXPONENT, ZERO_EXPONENT
    for start in range(0, padded_depth, scales.block):
        shifts = _shifts(scales, count, start, depth)
        first, last = LINES * start, LINES * min(start + scales.block, padded_depth)
        smallest, largest = _decode(element, codes, shifts, first, last, values, exponents, dtype)
        low = maximum(bitcast(smallest, np.int32) >> element.mantissa_bits, 1) - element.bias + shifts
        high = maximum(largest >> element.mantissa_bits, 1) - element.bias + shifts
        # the scale counts too: times a very small one the value of a zero might be NaN
        lowest = min(lowest, int(lowest_lane(minimum(low, shifts))))
        high = select(largest == 0, ZERO_EXPONENT, select(largest >= first_special_of(element), SPECIAL_EXPONENT, high))
        highest = max(highest, int(highest_lane(high)))
        bad = shifts == NAN_EXPONENT
        if any_lane(bad):
            highest = SPECIAL_EXPONENT
            for place in range(size * first, size * last, size * LANES):
                store(select(bad, np.nan, load(values + place, dtype, LANES)), values + place)
    return lowest, highest


@inner
def pack_lines(
    element: Element,
    lines: Lines,
    scales: LineScales | None,
    count: int,
    depth: int,
    padded_depth: int,
    values: int,
    exponents: int,
    dtype: Any,
) -> Any:
    """Decode 8 lines, zeros past `count` and `depth`, to ``values[k, line]`` of `dtype` and ``exponents[k, line]`` of int16.

    Elements are multiplied by their scales, if there are some, which are powers of two. Returns the lowest and the highest exponent of the
    elements that are not zero. A finite value whose exponent is out of the dtype's range is wrong. `padded_depth` is a multiple of 8.
    """
    # codes lie at the end of the memory of their values: no value is written over a code that is not read yet
    codes = values + LINES * padded_depth * (itemsize_of(dtype) - 4)
    arrange_codes(lines, count, depth, padded_depth, codes)
    if scales is not None:
        return _decode_scaled(element, codes, scales, count, depth, padded_depth, values, exponents, dtype)
    none = splat(np.int32(0), LANES)
    smallest, largest = _decode(element, codes, none, 0, LINES * padded_depth, values, exponents, dtype)
    low, high = lowest_lane(smallest - 1) + 1, highest_lane(largest)
    if high == 0:
        return -ZERO_EXPONENT, ZERO_EXPONENT
    lowest = max(int(low) >> element.mantissa_bits, 1) - element.bias
    highest = max(int(high) >> element.mantissa_bits, 1) - element.bias
    return lowest, SPECIAL_EXPONENT if high >= first_special_of(element) else highest


@inner
def pack_scales(scales: LineScales, count: int, depth: int, padded_depth: int, group: int, packed: int) -> None:
    """Pack the scales of 8 lines, `GROUP_BYTES` for every `group` k: exponents as int32, then values as float64."""
    for k in range(0, padded_depth, group):
        place = packed + k // group * GROUP_BYTES
        for line in range(LINES):
            value, exponent = 0.0, np.int32(0)
            if line < count and k < depth:
                code = load_code(scales.address + k // scales.block * scales.stride + line * scales.line_stride, 1)
                value, exponent = load_scalar(scales.values + 8 * code, np.float64), load_scalar(scales.exponents + 4 * code, np.int32)
            store(exponent, place + 4 * line)
            store(value, place + 4 * LINES + 8 * line)
