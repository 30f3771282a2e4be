"""Sums of any width: digits of 32 bits in int64, which carry only at the end of a step.

Digits are zero between steps, and only those that terms reach are looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmma.kernels.general.lines import DecodedLines
from fastmma.kernels.general.step_end import EXACT, FAR, RN, RO, StepMemory, rounded
from fastmma.kernels.llvm.compilation import inner, separate
from fastmma.kernels.params import General

LOWEST = -320  # exponent of the last bit of the first digit: below every product's
DIGITS = 22  # up to 2**384, above every sum
_MASK = 0xFFFFFFFF


class Reach(NamedTuple):
    """The first digit that products reach, and the last one that their sums do."""

    first: int
    last: int


@inner
def _add(digits: Any, j: int, value: Any, place: Any) -> None:
    """``value * 2**(place + LOWEST)`` joins; values are below 2**31 in magnitude, and so are their numbers times 2**8."""
    digits[j, place >> 5] += value << (place & 31)


@separate
def _carried(digits: Any, j: int, first: int, last: int) -> bool:
    """Digits of the magnitude, each from 0 to 2**32 - 1; whether the sum is negative."""
    carry = np.int64(0)
    for place in range(first, last + 1):
        total = digits[j, place] + carry
        digits[j, place] = total & _MASK
        carry = total >> 32
    flip, more = carry & _MASK, -carry  # without a branch: signs are hard to foresee
    for place in range(first, last + 1):
        total = (digits[j, place] ^ flip) + more
        digits[j, place] = total & _MASK
        more = total >> 32
    return bool(carry < 0)


@separate
def _round(digits: Any, j: int, first: int, place: Any, mode: int) -> None:
    """Round a magnitude to a multiple of 2**place (counted from `LOWEST`)."""
    digit, bit = place >> 5, np.int64(place & 31)
    below = digits[j, digit] & ((np.int64(1) << bit) - 1)
    lost = below
    for lower in range(first, digit):
        lost |= digits[j, lower]
    if lost == 0:
        return
    up = False
    odd = (digits[j, digit] >> bit) & 1
    if mode == RO:
        up = odd == 0
    elif mode == RN and place > 0:
        at, half = (place - 1) >> 5, np.int64((place - 1) & 31)
        more = digits[j, at] & ((np.int64(1) << half) - 1)
        for lower in range(first, at):
            more |= digits[j, lower]
        up = (digits[j, at] >> half) & 1 == 1 and (more != 0 or odd == 1)
    for lower in range(first, digit):
        digits[j, lower] = 0
    digits[j, digit] -= below
    if up:
        digits[j, digit] += np.int64(1) << bit
        while digits[j, digit] > _MASK:
            digits[j, digit] &= _MASK
            digit += 1
            digits[j, digit] += 1


@separate
def _code(p: General, digits: Any, j: int, first: int, last: int, floats: Any) -> Any:
    """The code of a sum between two digits, rounded once; the digits are cleared."""
    negative = _carried(digits, j, first, last)
    top = last
    while top >= first and digits[j, top] == 0:
        top -= 1
    if top < first:
        return 0
    floats[0] = digits[j, top]
    bit = (floats.view(np.int64)[0] >> 52) - 1023
    exponent = max(32 * top + bit + LOWEST, 1 - p.bias)
    place = exponent - p.keep_bits - LOWEST
    _round(digits, j, first, place, p.rounding)
    digit, bit = place >> 5, place & 31
    whole = digits[j, digit] >> bit | digits[j, digit + 1] << (32 - bit)
    for each in range(first, max(top, digit) + 2):
        digits[j, each] = 0
    if whole >> (p.keep_bits + 1):
        whole, exponent = whole >> 1, exponent + 1
    if exponent > p.bias:
        code = np.int64(2 * p.bias + 1) << p.fraction
    else:
        whole <<= p.fraction - p.keep_bits
        field = np.int64(exponent + p.bias) if whole >> p.fraction else np.int64(0)
        code = (field << p.fraction) | (whole & ((np.int64(1) << p.fraction) - 1))
    if negative and code:
        code |= np.int64(p.bias + 1) << (p.fraction + 1)
    return code


@inner
def _add_aligned(digits: Any, j: int, value: Any, place: Any, unit: Any, mode: int) -> None:
    """A term, rounded to a multiple of ``2**unit`` (both counted from `LOWEST`), joins."""
    if place >= unit:
        _add(digits, j, value, place)
        return
    magnitude = rounded(abs(value), np.int64(min(unit - place, FAR)), mode)
    _add(digits, j, -magnitude if value < 0 else magnitude, unit)


@separate
def _add_group(
    p: General,
    a: DecodedLines,
    b: DecodedLines,
    reach: Reach,
    i: int,
    left: int,
    j: int,
    first: int,
    last: int,
    unit: Any,
    own: Any,
    digits: Any,
) -> None:
    """The exact sum of a group, rounded to units, joins; `own` are the group's digits."""
    for k in range(first, last):
        product = np.int64(a.significands[i, k]) * np.int64(b.significands[k, left + j])
        if product != 0:
            _add(own, 0, product, np.int64(a.bases[i, k]) + b.bases[k, left + j] - LOWEST)
    negative = _carried(own, 0, reach.first, reach.last)
    if unit > 0:
        _round(own, 0, reach.first, unit, p.align_rounding)
    for place in range(reach.first, max(reach.last, unit >> 5) + 2):
        digits[j, place] += -own[0, place] if negative else own[0, place]
        own[0, place] = 0


@separate
def step(
    p: General,
    a: DecodedLines,
    b: DecodedLines,
    reach: Reach,
    i: int,
    columns: Any,
    first: int,
    last: int,
    work: StepMemory,
    own: Any,
    codes: Any,
) -> None:
    """The codes of a step's results, from emax; `work` has the sums' digits, and `own` are a group's."""
    left = columns[0]
    units: Any = work.sums
    sums, width = work.digits, columns[1] - left
    exact = p.align_rounding == EXACT
    for j in range(width):
        units[j] = 0 if exact else max(np.int64(work.emax[j]) - p.align_bits - LOWEST, 0)
        if work.significands[j] != 0:
            place = np.int64(work.exponents[j]) - p.fraction - LOWEST
            _add_aligned(sums, j, work.significands[j], place, units[j], p.align_rounding)
    if p.group > 1 and not exact:
        for group in range(first, last, p.group):
            for j in range(width):
                _add_group(p, a, b, reach, i, left, j, group, min(group + p.group, last), units[j], own, sums)
    else:
        for k in range(first, last):
            x = np.int64(a.significands[i, k])
            if x == 0:
                continue
            base = np.int64(a.bases[i, k]) - LOWEST
            values, bases = b.significands[k, left : columns[1]], b.bases[k, left : columns[1]]
            if exact:
                for j in range(width):
                    place = base + bases[j]
                    sums[j, place >> 5] += (x * values[j]) << (place & 31)
            else:
                for j in range(width):
                    if values[j] != 0:
                        _add_aligned(sums, j, x * values[j], base + bases[j], units[j], p.align_rounding)
    for j in range(width):
        low: Any = reach.first
        high: Any = reach.last
        if work.significands[j] != 0:
            place = (np.int64(work.exponents[j]) - p.fraction - LOWEST) >> 5
            low, high = min(low, place), max(high, place + 2)
        codes[j] = np.uint32(_code(p, sums, j, low, max(high, (units[j] >> 5) + 2), work.floats))
