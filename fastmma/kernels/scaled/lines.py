"""Facts of rows of A and columns of B that fast block-scaled kernels know beforehand, and the lines that are left to others."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.decode.tables import ScaleTable, scale_table_of
from fastmma.kernels.llvm.compilation import compiled, separate
from fastmma.kernels.llvm.simd import any_lane, bitcast, highest_lane, load, load_scalar, maximum, select, splat, store
from fastmma.kernels.macro_tiles import FallbackMask
from fastmma.kernels.params import Element

Codes = NDArray[Any]

NO_EXPONENT = 1 << 20  # the lowest exponent of no scales
_LINES = 256  # looked at together
NAN = 0x7FFFFFFF
_INFINITY = 0x7F800000
_LANES = 16  # of codes or of results


class ScaledOperands(NamedTuple):
    """Codes of one product, in the order in which kernels take them."""

    a: Codes
    b: Codes
    c: Codes | None
    out: Codes
    scale_a: Codes
    scale_b: Codes


class Extremes(NamedTuple):
    """Of every line: exponents of the scales of blocks that are not zero; whether it has infinite or NaN elements, or a NaN scale."""

    lowest: NDArray[np.int32]
    highest: NDArray[np.int32]
    special: NDArray[np.bool_]
    nan: NDArray[np.bool_]


@lru_cache(256)
def scales_of(element: Element) -> ScaleTable:
    """Make the table of a format of scales, in which a zero and a NaN count as a 1 that is not alive."""
    values, exponents, alive = scale_table_of(element)
    return ScaleTable(np.where(alive, values, 1.0), np.where(alive, exponents, 0).astype(np.int32), alive)


@lru_cache(256)
def nans_of(element: Element) -> NDArray[np.uint8]:
    """Return which of the 256 codes of a scale are NaNs."""
    return np.isnan(scale_table_of(element).values).astype(np.uint8)


def fixed(codes: Codes) -> Codes:
    """The same, C-contiguous and read-only: one type for the compiler, whatever the caller has."""
    view = np.ascontiguousarray(codes).view()
    view.flags.writeable = False
    return view


def fixed_right(b: Codes, scale_b: Codes) -> tuple[Codes, Codes, bool]:
    """B and its scales likewise; B as its transpose if that takes no copy, and whether it is."""
    turned = not b.flags.c_contiguous and b.T.flags.c_contiguous
    return fixed(b.T if turned else b), fixed(scale_b), turned


@separate
def _note(magnitude: int, exponent: int, alive: bool, line: int, special: int, extremes: Any) -> None:
    """Count a block's largest magnitude and its scale in."""
    if magnitude >= special:
        extremes[2, line] = 1
    if alive and magnitude != 0:
        extremes[0, line] = min(extremes[0, line], exponent)
        extremes[1, line] = max(extremes[1, line], exponent)


@compiled
def along(
    codes: Any, scale_codes: Any, scales: ScaleTable, block: int, mask: int, special: int, first: int, last: int, extremes: Any
) -> None:
    """Lines first to last, which are rows of `codes` and of `scale_codes`."""
    depth = codes.shape[1]
    for line in range(first, last):
        source = codes.ctypes.data + line * depth
        low, high, largest_magnitude = np.int32(NO_EXPONENT), np.int32(-NO_EXPONENT), splat(np.uint8(0), _LANES)
        for number in range(scale_codes.shape[1]):
            code = scale_codes[line, number]
            start, stop = number * block, min((number + 1) * block, depth)
            whole = start + max(stop - start, 0) // _LANES * _LANES
            magnitudes = splat(np.uint8(0), _LANES)
            for k in range(start, whole, _LANES):
                magnitudes = maximum(magnitudes, load(source + k, np.uint8, _LANES) & np.uint8(mask))
            for k in range(whole, stop):
                magnitudes = maximum(magnitudes, splat(np.uint8(codes[line, k] & mask), _LANES))
            largest_magnitude = maximum(largest_magnitude, magnitudes)
            if scales.alive[code] != 0 and any_lane(magnitudes != 0):
                exponent = scales.exponents[code]
                low, high = min(low, exponent), max(high, exponent)
        extremes[0, line], extremes[1, line], extremes[2, line] = low, high, np.int32(highest_lane(largest_magnitude) >= special)


@compiled
def across(
    codes: Any, scale_codes: Any, scales: ScaleTable, block: int, mask: int, special: int, first: int, last: int, extremes: Any
) -> None:
    """Lines first to last, which are columns."""
    largest = np.empty(last - first, np.uint8)
    for number in range(scale_codes.shape[0]):
        largest[:] = 0
        for k in range(number * block, min((number + 1) * block, codes.shape[0])):
            source = codes[k, first:last]
            for j in range(last - first):
                largest[j] = max(largest[j], np.uint8(source[j] & mask))
        for j in range(last - first):
            code = scale_codes[number, first + j]
            _note(largest[j], scales.exponents[code], scales.alive[code] != 0, first + j, special, extremes)


def extremes(element: Element, scale: Element, codes: Codes, scale_codes: Codes, block: int, columns: bool, threads: int) -> Extremes:
    """Look at all lines; `codes` are C-contiguous, lines being rows, or `columns`."""
    count = codes.shape[int(columns)]
    found = np.empty((3, count), np.int32)
    found[0], found[1], found[2] = NO_EXPONENT, -NO_EXPONENT, 0
    mask = (1 << (element.exponent_bits + element.mantissa_bits)) - 1
    scales = scales_of(scale)
    look = across if columns else along

    def work(start: int, stop: int, _worker: int) -> None:
        look(codes, scale_codes, scales, block, mask, element.first_special, start, stop, found)

    parallel_for(work, count, threads, _LINES)
    nan: NDArray[np.bool_] = np.zeros(count, np.bool_)
    for code in np.flatnonzero(nans_of(scale)):
        nan |= (scale_codes == code).any(axis=0 if columns else 1)
    return Extremes(found[0], found[1], found[2].astype(np.bool_), nan)


@compiled
def write(state: Any, good: Any, out: Any, factor: Any) -> bool:
    """Write the first rows and columns of a macro tile's sums, times a float32, to where they belong; NaN is canonical.

    Returns whether the sums of `good` rows are finite.
    """
    rows, columns = out.shape
    largest, largest_magnitude = splat(np.int32(0), _LANES), np.int32(0)
    for row in range(rows):
        source, target = state.ctypes.data + row * state.strides[0], out.ctypes.data + row * out.strides[0]
        counted = np.int32(0x7FFFFFFF) if good[row] else np.int32(0)
        whole = columns // _LANES * _LANES if out.strides[1] == out.itemsize else 0
        for place in range(0, 4 * whole, 4 * _LANES):
            bits = load(source + place, np.int32, _LANES)
            largest = maximum(largest, bits & counted)
            products = bitcast(bits, np.float32) * factor
            store(select(products != products, NAN, bitcast(products, np.int32)), target + place)
        for column in range(whole, columns):
            word = load_scalar(source + 4 * column, np.int32)
            largest_magnitude = max(largest_magnitude, np.int32(word & counted))
            number = load_scalar(source + 4 * column, np.float32) * factor
            if number != number:
                store(np.int32(NAN), target + column * out.strides[1])
            else:
                store(number, target + column * out.strides[1])
    return bool(max(highest_lane(largest), largest_magnitude) < _INFINITY)


def settle(out: Codes, rows: Extremes, columns: Extremes, fallback: FallbackMask) -> None:
    """Mark special lines as missed; make all NaN that a NaN scale belongs to."""
    fallback.rows[:], fallback.columns[:] = rows.special & ~rows.nan, columns.special & ~columns.nan
    fallback.parts[:, rows.nan] = False
    out[rows.nan] = NAN
    out[:, columns.nan] = NAN
