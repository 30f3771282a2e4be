"""Decoding element codes into panels of values and exponents, two lines (rows of A, columns of B) side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fastmma.kernels.params import Element
from fastmma.kernels.simd import convert, insert, interleave, load_at, maximum, minimum, power_of_two, scalar_at, select, splat, store, zeros

COLUMNS = 8  # of a panel of B
ZERO_EXPONENT = -8192  # of a zero element: below every floor, and two of them still fit 16 bits
SPECIAL_EXPONENT = 4096  # what an infinity or a NaN counts as in a range of exponents


class Matrix(NamedTuple):
    """Where a caller's matrix lies in memory; strides in bytes."""

    address: int
    row_stride: int
    column_stride: int
    itemsize: int


def matrix(array: NDArray[Any]) -> Matrix:
    """Where the last two dimensions of `array` lie, its first matrix for more dimensions."""
    return Matrix(array.ctypes.data, array.strides[-2], array.strides[-1], array.itemsize)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def codes_at(address: int, stride: int, itemsize: int, count: int) -> Any:
    """`count` (at most 8) codes, `stride` bytes apart, as 8 lanes of int32; the other lanes are 0."""
    if count == 8 and stride == itemsize:
        if itemsize == 1:
            return convert(load_at(address, np.uint8, 8), np.int32)
        if itemsize == 2:
            return convert(load_at(address, np.uint16, 8), np.int32)
        return load_at(address, np.int32, 8)
    codes = zeros(np.int32, 8)
    for lane in range(count):
        place = address + lane * stride
        if itemsize == 1:
            codes = insert(codes, lane, np.int32(scalar_at(place, np.uint8)))
        elif itemsize == 2:
            codes = insert(codes, lane, np.int32(scalar_at(place, np.uint16)))
        else:
            codes = insert(codes, lane, scalar_at(place, np.int32))
    return codes


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def decoded(element: Element, codes: Any, dtype: Any) -> Any:
    """The lanes' values in `dtype`, their exponents, and the exponents as they count in a range's low and high end.

    Values whose exponent is out of the dtype's range are wrong; infinities and NaNs are right in both.
    """
    width = element.exponent_bits + element.mantissa_bits
    magnitude = (codes >> element.shift) & ((1 << width) - 1)
    field = maximum(magnitude >> element.mantissa_bits, 1)
    exponent = field - element.bias
    significand = magnitude - ((field - 1) << element.mantissa_bits)
    value = convert(significand, dtype) * power_of_two(exponent - element.mantissa_bits, dtype)
    high = select(magnitude == 0, ZERO_EXPONENT, exponent)
    exponents = high
    if element.specials != 0:
        first_special = ((1 << element.exponent_bits) - 1) << element.mantissa_bits
        if element.specials == 2:
            first_special = (1 << width) - 1
        else:
            value = select(magnitude == first_special, np.inf, value)
        value = select(magnitude >= first_special + (2 - element.specials), np.nan, value)
        high = select(magnitude >= first_special, SPECIAL_EXPONENT, high)
    value = select(((codes >> (element.shift + width)) & 1) != 0, zeros(dtype, 8) - value, value)
    low = select(magnitude == 0, -ZERO_EXPONENT, exponent)
    return value, exponents, low, high


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_rows(
    element: Element, source: Matrix, row: int, rows: int, pairs: int, depth: int, stride: int, values: Any, exponents: Any, start: int
) -> Any:
    """Decode `pairs` pairs of rows from `row` on, zeros past `rows` and `depth`, to ``[start + pair, k, 2]`` of the panels.

    `stride` is the panel's k extent, a multiple of 8. An exponent word holds the second row's above the first's.
    Returns lanes with the lowest and the highest exponent of the elements that are not zero.
    """
    lowest = splat(np.int32(-ZERO_EXPONENT), 8)
    highest = splat(np.int32(ZERO_EXPONENT), 8)
    for pair in range(pairs):
        first_row = row + 2 * pair
        address = source.address + first_row * source.row_stride
        for k in range(0, stride, 8):
            count = max(0, min(8, depth - k))
            place = address + k * source.column_stride
            first = decoded(
                element, codes_at(place, source.column_stride, source.itemsize, count if first_row < rows else 0), values.dtype
            )
            place += source.row_stride
            second = decoded(
                element, codes_at(place, source.column_stride, source.itemsize, count if first_row + 1 < rows else 0), values.dtype
            )
            index = (start + pair) * stride + k
            store(interleave(first[0], second[0]), values, 2 * index)
            store((first[1] & 0xFFFF) | (second[1] << 16), exponents, index)
            lowest = minimum(lowest, minimum(first[2], second[2]))
            highest = maximum(highest, maximum(first[3], second[3]))
    return lowest, highest


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_columns(
    element: Element, source: Matrix, column: int, columns: int, depth: int, stride: int, values: Any, exponents: Any
) -> Any:
    """Decode 8 columns from `column` on, zeros past `columns` and `depth`, every element twice, to ``[k, 16]`` of the panel.

    Returns lanes with the lowest and the highest exponent of the elements that are not zero.
    """
    lowest = splat(np.int32(-ZERO_EXPONENT), 8)
    highest = splat(np.int32(ZERO_EXPONENT), 8)
    count = min(COLUMNS, columns - column)
    address = source.address + column * source.column_stride
    for k in range(stride):
        place = address + k * source.row_stride
        codes = codes_at(place, source.column_stride, source.itemsize, count if k < depth else 0)
        value, exponent, low, high = decoded(element, codes, values.dtype)
        store(interleave(value, value), values, 2 * COLUMNS * k)
        store((exponent & 0xFFFF) | (exponent << 16), exponents, COLUMNS * k)
        lowest = minimum(lowest, low)
        highest = maximum(highest, high)
    return lowest, highest
