"""The block-scaled dot-product-add, exactly, on any CPU: plain loops over a panel of columns, which LLVM turns into vectors.

Sums run in float64, in units of 2**(emax - align_bits): there truncated terms are integers, and infinities and NaNs follow from IEEE
arithmetic. Where terms are single products the scales of a step are one power of two, so these are truncated as int32 unless an operand is
infinite or NaN.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.llvm.compilation import compiled, separate
from fastmma.kernels.params import Element, Scaled, Specials

ZERO_EXPONENT = -8192  # of a zero: below every floor, and two of them still fit 16 bits
INT32_TERMS = 16  # that many products below 2**27 sum up within int32
SCALE_LOWEST, SCALE_HIGHEST = -100, 60  # beyond these a float32 product is truncated to zero, or is zero
SUBNORMAL_EXPONENT = -126
FLOAT64_BIAS, FLOAT64_FRACTION = 1023, 52
NAN = 0x7FFFFFFF
SIGN_32 = 0x80000000
INFINITY_32, INFINITY_64 = 0xFF << 23, 0x7FF << 52
FIELDS_64_TO_32 = 29  # places from one format's exponent field to the other's
REBIAS = (FLOAT64_BIAS - 127) << 52
SPECIAL_REBIAS = INFINITY_64 - (INFINITY_32 << FIELDS_64_TO_32)


class Lines(NamedTuple):
    """Decoded operands; the arrays of A are (tile, row, k or block), those of B (tile, panel, k or block, column)."""

    values: NDArray[np.float32]
    exponents: NDArray[np.int16]
    scales: NDArray[np.float64]
    scale_exponents: NDArray[np.int32]


@lru_cache(256)
def tables(element: Element) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Values and exponents of the 256 codes; bits above the element's are ignored."""
    codes = np.arange(256)
    if element.specials == Specials.POWERS_OF_TWO:
        exponents = codes - element.bias
        values = np.ldexp(1.0, exponents)
        values[255] = np.nan
        return values, exponents.astype(np.int32)
    width = element.exponent_bits + element.mantissa_bits
    magnitude = codes & ((1 << width) - 1)
    field = np.maximum(magnitude >> element.mantissa_bits, 1)
    values = np.ldexp(magnitude - ((field - 1) << element.mantissa_bits), field - element.bias - element.mantissa_bits)
    values[magnitude >= element.first_special] = np.nan
    if element.specials == Specials.IEEE:
        values[magnitude == element.first_special] = np.inf
    values = np.where(codes >> width & 1, -values, values)
    return values, np.where(magnitude == 0, ZERO_EXPONENT, field - element.bias).astype(np.int32)


def scale_tables(element: Element) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The values and exponents of all codes of a scale format, which has no sign."""
    values, exponents = tables(element)
    return np.abs(values), exponents


class Work(NamedTuple):
    """Buffers of the width of a panel; powers of two are written as bits."""

    sums: NDArray[np.float64]
    totals: NDArray[np.float64]
    factor: NDArray[np.float64]
    inverse: NDArray[np.float64]
    scale: NDArray[np.float32]
    dots: NDArray[np.float32]  # (term of a step, column)
    emax: NDArray[np.int32]
    shift: NDArray[np.int32]
    part: NDArray[np.int32]
    highest: NDArray[np.int16]


@separate
def _work(width: int, terms: int) -> Work:
    floats = np.empty((4, width), np.float64)
    singles = np.empty((1 + terms, width), np.float32)
    integers = np.empty((3, width), np.int32)
    highest = np.empty(width, np.int16)
    return Work(floats[0], floats[1], floats[2], floats[3], singles[0], singles[1:], integers[0], integers[1], integers[2], highest)


@separate
def _align(p: Scaled, work: Work) -> None:
    """Let emax, which the products have, count the accumulators too; powers of two that scale to units of the last bit, and back."""
    sums, emax = work.sums, work.emax
    sum_bits, factor_bits, inverse_bits = sums.view(np.int64), work.factor.view(np.int64), work.inverse.view(np.int64)
    for j in range(len(sums)):
        field = (sum_bits[j] >> FLOAT64_FRACTION) & 0x7FF
        exponent = max(field - FLOAT64_BIAS, SUBNORMAL_EXPONENT) if sums[j] != 0 else ZERO_EXPONENT
        emax[j] = max(emax[j], exponent, p.emax_floor)
        factor_bits[j] = (FLOAT64_BIAS + p.align_bits - emax[j]) << FLOAT64_FRACTION
        inverse_bits[j] = (FLOAT64_BIAS - p.align_bits + emax[j]) << FLOAT64_FRACTION


@separate
def _finish(work: Work) -> None:
    """Add the truncated accumulators to the totals of truncated terms; round toward zero to float32."""
    sums, totals, factor, inverse = work.sums, work.totals, work.factor, work.inverse
    bits = totals.view(np.int64)
    for j in range(len(sums)):
        totals[j] = (totals[j] + np.trunc(sums[j] * factor[j])) * inverse[j]
        subnormal = np.trunc(totals[j] * 2.0**149) * 2.0**-149
        if abs(totals[j]) < 2.0**-126:
            totals[j] = subnormal
        elif abs(totals[j]) >= 2.0**128:
            totals[j] = np.copysign(np.inf, totals[j])
        else:
            bits[j] &= -1 << 29
        sums[j] = totals[j]


@separate
def _narrow_products(a: Any, b: Any, work: Work) -> None:
    """Sums of truncated products of finite elements, scaled in float32."""
    scale, part, totals = work.scale, work.part, work.totals
    for start in range(0, len(a), INT32_TERMS):
        part[:] = 0
        for k in range(start, start + INT32_TERMS, 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            for j in range(len(totals)):
                first = np.int32(a0 * b[k, j] * scale[j]) + np.int32(a1 * b[k + 1, j] * scale[j])
                second = np.int32(a2 * b[k + 2, j] * scale[j]) + np.int32(a3 * b[k + 3, j] * scale[j])
                part[j] += first + second
        for j in range(len(totals)):
            totals[j] += part[j]


@separate
def _wide_products(a: Any, b: Any, work: Work) -> None:
    """Sums of truncated products, infinities and NaNs among them, scaled in float64."""
    scale, totals = work.scale, work.totals
    for k in range(len(a)):
        for j in range(len(totals)):
            totals[j] += np.trunc(np.float64(a[k]) * np.float64(b[k, j]) * np.float64(scale[j]))


@separate
def _multiply_products(p: Scaled, a: Lines, b: Lines, special: bool, work: Work) -> None:
    """All steps of a row by a panel whose terms are products; `a` and `b` without the leading dimensions."""
    emax, shift, highest, totals = work.emax, work.shift, work.highest, work.totals
    scale_bits = work.scale.view(np.int32)
    width = len(emax)
    for first in range(0, len(a.values), p.step):
        last = first + p.step
        block = first // p.block
        highest[:] = 2 * ZERO_EXPONENT
        for k in range(first, last, 4):
            e0, e1, e2, e3 = a.exponents[k], a.exponents[k + 1], a.exponents[k + 2], a.exponents[k + 3]
            for j in range(width):
                even = max(np.int16(e0 + b.exponents[k, j]), np.int16(e2 + b.exponents[k + 2, j]))
                odd = max(np.int16(e1 + b.exponents[k + 1, j]), np.int16(e3 + b.exponents[k + 3, j]))
                highest[j] = max(highest[j], even, odd)
        for j in range(width):
            shift[j] = a.scale_exponents[block] + b.scale_exponents[block, j]
            emax[j] = highest[j] + shift[j]
        _align(p, work)
        for j in range(width):
            scale_bits[j] = (min(max(shift[j] + p.align_bits - emax[j], SCALE_LOWEST), SCALE_HIGHEST) + 127) << 23
            # NaN for a NaN scale, else 0
            totals[j] = (a.scales[block] * b.scales[block, j]) * 0.0
        if special:
            _wide_products(a.values[first:last], b.values[first:last], work)
        else:
            _narrow_products(a.values[first:last], b.values[first:last], work)
        _finish(work)


@separate
def _cancelled(a: Any, b: Any, j: int) -> bool:
    """Tell whether a row's and a column's elements have products that are not zero, of a group whose sum is."""
    common = 0
    for k in range(len(a)):
        common += a[k] != 0 and b[k, j] != 0
    return common > 0


@separate
def _multiply_groups(p: Scaled, a: Lines, b: Lines, work: Work) -> None:
    """All steps of a row by a panel whose terms are exact sums of groups."""
    emax, totals, factor = work.emax, work.totals, work.factor
    width, terms = len(emax), p.step // p.group
    for first in range(0, len(a.values), p.step):
        work.dots[:] = 0
        emax[:] = p.emax_floor
        for term in range(terms):
            start = first + term * p.group
            dot = work.dots[term]
            for k in range(start, start + p.group, 4):
                a0, a1, a2, a3 = a.values[k], a.values[k + 1], a.values[k + 2], a.values[k + 3]
                for j in range(width):
                    even = a0 * b.values[k, j] + a2 * b.values[k + 2, j]
                    dot[j] += even + (a1 * b.values[k + 1, j] + a3 * b.values[k + 3, j])
            block = start // p.block
            for j in range(width):
                exponent = a.scale_exponents[block] + b.scale_exponents[block, j]
                emax[j] = max(emax[j], exponent if dot[j] != 0 else ZERO_EXPONENT)
            for j in range(width):
                if dot[j] == 0 and _cancelled(a.values[start : start + p.group], b.values[start : start + p.group], j):
                    emax[j] = max(emax[j], a.scale_exponents[block] + b.scale_exponents[block, j])
        _align(p, work)
        totals[:] = 0
        for term in range(terms):
            dot = work.dots[term]
            block = (first + term * p.group) // p.block
            for j in range(width):
                totals[j] += np.trunc(dot[j] * (a.scales[block] * b.scales[block, j]) * factor[j])
        _finish(work)


@separate
def _widen(bits: Any, sums: Any) -> None:
    """float32 bits to float64, by integers: a caller's mode may flush float32 subnormals."""
    sum_bits = sums.view(np.int64)
    for j in range(len(bits)):
        magnitude = np.int64(bits[j] & ~SIGN_32)
        if magnitude < 1 << 23:
            sums[j] = magnitude * 2.0**-149
        else:
            rebias = REBIAS if magnitude < INFINITY_32 else SPECIAL_REBIAS
            sum_bits[j] = (magnitude << FIELDS_64_TO_32) + rebias
        sum_bits[j] |= np.int64(bits[j] & SIGN_32) << 32


@separate
def _narrow(sums: Any, bits: Any) -> None:
    """float64 that float32 has to its bits; a zero is +0, a NaN canonical."""
    sum_bits = sums.view(np.int64)
    for j in range(len(bits)):
        magnitude = sum_bits[j] & 0x7FFFFFFFFFFFFFFF
        sign = np.int64(SIGN_32) if sum_bits[j] < 0 else 0
        if magnitude > INFINITY_64:
            bits[j] = NAN
        elif magnitude == INFINITY_64:
            bits[j] = sign | INFINITY_32
        elif abs(sums[j]) < 2.0**-126:
            whole = np.int64(abs(sums[j]) * 2.0**149)
            bits[j] = sign | whole if whole != 0 else 0
        else:
            bits[j] = sign | ((magnitude - REBIAS) >> FIELDS_64_TO_32)


@compiled
def multiply(p: Scaled, a: Lines, b: Lines, special: bool, state: Any, tiles: Any, panels: Any, rows: Any) -> None:
    """Ranges of tiles, panels and rows; `state` (tile, panel, row, column) holds c and gets d, as float32 bits."""
    work = _work(state.shape[3], p.step // p.group if p.group > 1 else 0)
    for tile in range(tiles[0], tiles[1]):
        for panel in range(panels[0], panels[1]):
            columns = Lines(b.values[tile, panel], b.exponents[tile, panel], b.scales[tile, panel], b.scale_exponents[tile, panel])
            for row in range(rows[0], rows[1]):
                line = Lines(a.values[tile, row], a.exponents[tile, row], a.scales[tile, row], a.scale_exponents[tile, row])
                bits = state[tile, panel, row]
                _widen(bits, work.sums)
                if p.group == 1:
                    _multiply_products(p, line, columns, special, work)
                else:
                    _multiply_groups(p, line, columns, work)
                _narrow(work.sums, bits)


@compiled
def _looked_up(table: Any, codes: Any) -> Any:
    found = np.empty(codes.shape, table.dtype)
    entries, places = found.ravel(), codes.ravel()
    for place in range(len(places)):
        entries[place] = table[places[place]]
    return found


def _padded(codes: NDArray[np.uint8], axis: int, size: int) -> NDArray[np.uint8]:
    """Codes with zeros behind them up to a size of an axis, C-contiguous."""
    shape = list(codes.shape)
    shape[axis] = size
    padded = np.zeros(shape, codes.dtype)
    padded[tuple(slice(count) for count in codes.shape)] = codes
    return padded


def paneled(codes: NDArray[Any], width: int) -> NDArray[Any]:
    """(tile, line, column) as contiguous (tile, panel, line, column), zeros past the last column."""
    tiles, lines, columns = codes.shape
    panels = -(-columns // width)
    wide = _padded(codes, 2, panels * width).reshape(tiles, lines, panels, width)
    return np.ascontiguousarray(wide.transpose(0, 2, 1, 3))


def _decoded(p: Scaled, element: Element, codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Lines:
    values, exponents = tables(element)
    scale_values, scale_exponents = scale_tables(p.scale)
    # only single products have exponents of their own
    own = _looked_up(exponents.astype(np.int16), codes) if p.group == 1 else np.zeros((*codes.shape[:2], 1, 1)[: codes.ndim], np.int16)
    return Lines(_looked_up(values.astype(np.float32), codes), own, _looked_up(scale_values, scales), _looked_up(scale_exponents, scales))


def rows_of(p: Scaled, a: NDArray[np.uint8], scale_a: NDArray[np.uint8]) -> Lines:
    """Decode a (T, m, k) and its scales."""
    depth = padded_depth(p, a.shape[2])
    return _decoded(p, p.a, _padded(a, 2, depth), _padded(scale_a, 2, depth // p.block))


def columns_of(p: Scaled, b: NDArray[np.uint8], scale_b: NDArray[np.uint8], width: int) -> Lines:
    """Decode b (T, k, n) and its scales to panels of `width` columns."""
    depth = padded_depth(p, b.shape[1])
    return _decoded(p, p.b, paneled(_padded(b, 1, depth), width), paneled(_padded(scale_b, 1, depth // p.block), width))


def padded_depth(p: Scaled, depth: int) -> int:
    """k filled up to whole steps and blocks."""
    unit = max(p.step, p.block)
    return -(-depth // unit) * unit


def special(element: Element, lines: Lines) -> bool:
    """Tell whether there are infinities or NaNs."""
    return element.specials != Specials.NONE and not bool(np.isfinite(lines.values).all())
