"""Accumulators in kernels: read from c, rounded, written to out.

A vector holds 16 of them, two rows by 8 columns: lane 2 * column + row. They are float32 bits, also when c and out are f16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import bitcast, convert, even_lanes, extract, interleave, minimum, odd_lanes, select, store
from fastmma.kernels.matrices.addresses import LINES, Matrix, load_codes

INFINITY = 0x7F800000
NAN = 0x7FFFFFFF
FRACTION = 0x7FFFFF
IMPLICIT = 0x800000
MAGNITUDE = 0x7FFFFFFF
SIGN = -0x80000000

_HALF_INFINITY = 0x7C00
CANONICAL_HALF_NAN = 0x7FFF
_HALF_SUBNORMAL = (127 - 14) << 23  # magnitudes below are subnormal in f16
_HALF_OVERFLOW = (127 + 16) << 23
_HALF_REBIAS = (127 - 15) << 10


@inner
def half_widened(codes: Any) -> Any:
    """f16 codes as float32 bits."""
    magnitude = codes & 0x7FFF
    normal = (magnitude << 13) + (_HALF_REBIAS << 13)
    subnormal = bitcast(convert(magnitude, np.float32) * 2.0**-24, np.int32)
    special = (magnitude << 13) | INFINITY
    result = select(magnitude < 0x400, subnormal, select(magnitude < _HALF_INFINITY, normal, special))
    return result | ((codes & 0x8000) << 16)


@inner
def half_rounded(magnitude: Any) -> Any:
    """float32 bits without a sign, of no NaN, rounded to nearest even among the values of f16."""
    nearest = (magnitude + 0xFFF + ((magnitude >> 13) & 1)) & ~0x1FFF
    # adding 0.5 leaves the quantum of f16's subnormals
    subnormal = bitcast((bitcast(magnitude, np.float32) + 0.5) - 0.5, np.int32)
    return select(magnitude < _HALF_SUBNORMAL, subnormal, select(nearest >= _HALF_OVERFLOW, INFINITY, nearest))


@inner
def half_narrowed(bits: Any) -> Any:
    """float32 bits of values that f16 has, as f16 codes; NaN canonical."""
    magnitude = bits & MAGNITUDE
    normal = minimum((magnitude >> 13) - _HALF_REBIAS, _HALF_INFINITY)
    subnormal = convert(bitcast(magnitude, np.float32) * 2.0**24, np.int32)
    result = select(magnitude < _HALF_SUBNORMAL, subnormal, normal) | ((bits >> 16) & 0x8000)
    return select(magnitude > INFINITY, CANONICAL_HALF_NAN, result)


@inner
def load_rows(c: Matrix, row: int, rows: int, columns: int) -> Any:
    """Two rows by 8 columns from `row` on, +0 where c, of `rows` and `columns`, has none."""
    place = c.address + row * c.row_stride
    count = min(columns, LINES) if c.address != 0 else 0
    first = load_codes(place, c.column_stride, c.itemsize, count if row < rows else 0)
    second = load_codes(place + c.row_stride, c.column_stride, c.itemsize, count if row + 1 < rows else 0)
    codes = interleave(first, second)
    return half_widened(codes) if c.itemsize == 2 else codes


@inner
def _store_row(lanes: Any, address: int, stride: int, itemsize: int, count: int) -> None:
    """The low `itemsize` bytes of the first `count` of 8 lanes."""
    narrow = convert(lanes, np.int16)
    if count == LINES and stride == itemsize:
        if itemsize == 4:
            store(lanes, address)
        else:
            store(narrow, address)
        return
    for lane in range(count):
        if itemsize == 4:
            store(extract(lanes, lane), address + lane * stride)
        else:
            store(extract(narrow, lane), address + lane * stride)


@inner
def store_rows(lanes: Any, out: Matrix, row: int, rows: int, columns: int) -> None:
    """Two rows by 8 columns from `row` on, where out, of `rows` and `columns`, has them."""
    codes = half_narrowed(lanes) if out.itemsize == 2 else lanes
    place = out.address + row * out.row_stride
    count = min(columns, LINES)
    if row < rows:
        _store_row(even_lanes(codes), place, out.column_stride, out.itemsize, count)
    if row + 1 < rows:
        _store_row(odd_lanes(codes), place + out.row_stride, out.column_stride, out.itemsize, count)
