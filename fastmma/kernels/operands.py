"""Decoding element codes into panels: 8 lines (rows of A, columns of B) of values, and of exponents, for every k."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fastmma.kernels.params import Element
from fastmma.kernels.simd import (
    convert,
    gather,
    highest_lane,
    interleave,
    itemsize_of,
    load,
    lowest_lane,
    maximum,
    minimum,
    pointer,
    power_of_two,
    select,
    splat,
    store,
    zeros,
)

LINES = 8  # of a panel
SQUARE = LINES * LINES
ZERO_EXPONENT = -8192  # of a zero element: below every floor, and two of them still fit 16 bits
SPECIAL_EXPONENT = 8191  # what an infinity or a NaN counts as in a range of exponents


class Matrix(NamedTuple):
    """Where a caller's matrix lies in memory; strides in bytes, itemsize 0 if there is none."""

    address: Any  # an integer for Python, a pointer in kernels
    row_stride: int
    column_stride: int
    itemsize: int


NOWHERE = Matrix(0, 0, 0, 0)


def matrix(array: NDArray[Any]) -> Matrix:
    """Where an array's matrix lies; of a batch, the first one."""
    return Matrix(array.ctypes.data, array.strides[-2], array.strides[-1], array.itemsize)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pointed(place: Matrix) -> Matrix:
    """The same with a pointer for its integer address."""
    return Matrix(pointer(place.address), place.row_stride, place.column_stride, place.itemsize)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def load_codes(address: Any, stride: int, itemsize: int, count: int) -> Any:
    """`count` codes (at most 8), `stride` bytes apart, as lanes of int32; 0 in the other lanes."""
    if count == LINES and stride == itemsize:
        if itemsize == 1:
            return convert(load(address, np.uint8, LINES), np.int32)
        if itemsize == 2:
            return convert(load(address, np.uint16, LINES), np.int32)
        return load(address, np.int32, LINES)
    if count <= 0:
        return zeros(np.int32, LINES)
    if itemsize == 1:
        return convert(gather(address, stride, count, np.uint8, LINES), np.int32)
    if itemsize == 2:
        return convert(gather(address, stride, count, np.uint16, LINES), np.int32)
    return gather(address, stride, count, np.int32, LINES)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def decoded(element: Element, codes: Any, dtype: Any) -> Any:
    """Lanes of values in `dtype`, of exponents, and of what they count as in the low and the high end of a range.

    A value whose exponent is out of the dtype's range is wrong, but for infinities and NaNs.
    """
    width = element.exponent_bits + element.mantissa_bits
    magnitude = (codes >> element.shift) & ((1 << width) - 1)
    field = maximum(magnitude >> element.mantissa_bits, 1)
    exponent = field - element.bias
    significand = magnitude - ((field - 1) << element.mantissa_bits)
    value = convert(significand, dtype) * power_of_two(exponent - element.mantissa_bits, dtype)
    exponents = select(magnitude == 0, ZERO_EXPONENT, exponent)
    low = select(magnitude == 0, -ZERO_EXPONENT, exponent)
    high = exponents
    if element.specials != 0:
        first_special = (1 << width) - 1
        if element.specials == 1:
            first_special = ((1 << element.exponent_bits) - 1) << element.mantissa_bits
            value = select(magnitude == first_special, np.inf, value)
        value = select(magnitude >= first_special + (2 - element.specials), np.nan, value)
        high = select(magnitude >= first_special, SPECIAL_EXPONENT, high)
    negative = ((codes >> (element.shift + width)) & 1) != 0
    return select(negative, value * -1.0, value), exponents, low, high


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def store_line_values(value: Any, exponents: Any, values: Any, exponent_words: Any, k: int, twice: int, dtype: Any) -> None:
    """Decoded elements to a panel from `k` on, each one twice if so wanted."""
    size = itemsize_of(dtype)
    narrow = convert(exponents, np.int16)
    if twice != 0:
        store(interleave(value, value), values + 2 * LINES * size * k)
        store(interleave(narrow, narrow), exponent_words + 4 * LINES * k)
    else:
        store(value, values + LINES * size * k)
        store(narrow, exponent_words + 2 * LINES * k)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_lines(
    element: Element,
    address: Any,
    line_stride: int,
    stride: int,
    itemsize: int,
    lines: int,
    depth: int,
    padded_depth: int,
    values: Any,
    exponents: Any,
    twice: int,
    dtype: Any,
) -> Any:
    """Decode 8 lines, zeros past `lines` and `depth`, to ``values[k, line]`` of `dtype` and ``exponents[k, line]`` of int16.

    `stride` leads along k; `padded_depth` is a multiple of 8. `twice` stores every element twice, side by side.
    Returns the lowest and the highest exponent of the elements that are not zero.
    """
    if stride == itemsize:
        lowest = splat(np.int32(-ZERO_EXPONENT), SQUARE)
        highest = splat(np.int32(ZERO_EXPONENT), SQUARE)
        for k in range(0, padded_depth, LINES):
            place = address + k * stride
            count = min(LINES, depth - k)
            line0 = load_codes(place, stride, itemsize, count if lines > 0 else 0)
            line1 = load_codes(place + line_stride, stride, itemsize, count if lines > 1 else 0)
            line2 = load_codes(place + 2 * line_stride, stride, itemsize, count if lines > 2 else 0)
            line3 = load_codes(place + 3 * line_stride, stride, itemsize, count if lines > 3 else 0)
            line4 = load_codes(place + 4 * line_stride, stride, itemsize, count if lines > 4 else 0)
            line5 = load_codes(place + 5 * line_stride, stride, itemsize, count if lines > 5 else 0)
            line6 = load_codes(place + 6 * line_stride, stride, itemsize, count if lines > 6 else 0)
            line7 = load_codes(place + 7 * line_stride, stride, itemsize, count if lines > 7 else 0)
            # three perfect shuffles of 64 elements transpose an 8 x 8 matrix
            first_half = interleave(interleave(line0, line4), interleave(line2, line6))
            second_half = interleave(interleave(line1, line5), interleave(line3, line7))
            value, exponent, low, high = decoded(element, interleave(first_half, second_half), dtype)
            store_line_values(value, exponent, values, exponents, k, twice, dtype)
            lowest = minimum(lowest, low)
            highest = maximum(highest, high)
        return lowest_lane(lowest), highest_lane(highest)
    line_lowest = splat(np.int32(-ZERO_EXPONENT), LINES)
    line_highest = splat(np.int32(ZERO_EXPONENT), LINES)
    for k in range(padded_depth):
        codes = load_codes(address + k * stride, line_stride, itemsize, min(lines, LINES) if k < depth else 0)
        value, exponent, low, high = decoded(element, codes, dtype)
        store_line_values(value, exponent, values, exponents, k, twice, dtype)
        line_lowest = minimum(line_lowest, low)
        line_highest = maximum(line_highest, high)
    return lowest_lane(line_lowest), highest_lane(line_highest)
