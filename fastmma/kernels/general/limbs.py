"""Sums of two limbs, from emax down: what lies below them is floored and counted, so that a sum is known to lie between two numbers.

Columns where these are rounded differently are marked as doubtful, and computed in digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.general.lines import DecodedLines
from fastmma.kernels.general.step_end import EXACT, FAR, StepMemory, rounded
from fastmma.kernels.llvm.compilation import inner, separate
from fastmma.kernels.params import General

LIMB = 36  # bits of the lower limb
LOW = (1 << LIMB) - 1
DEPTH = 86  # bits from emax to the last one of a sum that does not grow: 52 in the upper limb
_SMALL = 22  # bits of an upper limb that goes into one word with the lower one
_LEFT = 26  # bits of the lower limb that do not


@inner
def _high(value: Any, place: Any) -> Any:
    """Return what ``value * 2**place`` adds to the upper limb."""
    return value << max(place - LIMB, 0) if place >= LIMB else (value << min(place, LIMB)) >> LIMB


@inner
def _low(value: Any, place: Any) -> Any:
    """Return what it adds to the lower one."""
    return 0 if place >= LIMB else (value << min(place, LIMB)) & LOW


@separate
def add_to_limbs(
    a: DecodedLines, b: DecodedLines, depth: int, i: int, columns: Any, first: int, last: int, emax: Any, high: Any, low: Any, lost: Any
) -> None:
    """Products join sums in units of ``2**(emax - depth)``, floored; how many of them lost something is counted."""
    for k in range(first, last):
        x = np.int64(a.significands[i, k])
        if x == 0:
            continue
        base = a.bases[i, k] + depth
        values, bases = b.significands[k, columns[0] : columns[1]], b.bases[k, columns[0] : columns[1]]
        for j in range(len(high)):
            place: Any = np.int64(base + bases[j] - emax[j])
            right: Any = min(max(-place, 0), FAR)
            product = x * np.int64(values[j])
            whole = product >> right
            left = min(max(place, 0), LIMB + FAR)
            high[j] += _high(whole, left)
            low[j] += _low(whole, left)
            lost[j] += np.int64((whole << right) != product)


@separate
def _add_rounded(p: General, a: DecodedLines, b: DecodedLines, i: int, columns: Any, first: int, last: int, work: StepMemory) -> None:
    """Products, each rounded to the units that are the last bit of the limbs, join the sums."""
    high, low = work.sums, work.low
    for k in range(first, last):
        x = np.int64(a.significands[i, k])
        if x == 0:
            continue
        base = a.bases[i, k] + p.align_bits
        values, bases = b.significands[k, columns[0] : columns[1]], b.bases[k, columns[0] : columns[1]]
        for j in range(len(high)):
            place: Any = np.int64(base + bases[j] - work.emax[j])
            product = x * np.int64(values[j])
            magnitude = rounded(abs(product), min(max(-place, 0), FAR), p.align_rounding)
            whole = -magnitude if product < 0 else magnitude
            left = min(max(place, 0), LIMB + FAR)
            high[j] += _high(whole, left)
            low[j] += _low(whole, left)


@separate
def add_terms(
    p: General, a: DecodedLines, b: DecodedLines, depth: int, i: int, columns: Any, first: int, last: int, work: StepMemory
) -> None:
    """The sums of a step, from emax, as words in units of ``2**(work.units - align_bits)``; columns in doubt are marked."""
    high, low, lost, emax = work.sums, work.low, work.lost, work.emax
    each = p.group == 1 and p.align_rounding != EXACT and p.align_bits == depth  # terms are rounded to units, one by one
    for j in range(len(high)):
        place: Any = np.int64(work.exponents[j]) - p.fraction + depth - emax[j]
        right: Any = min(max(-place, 0), FAR)
        significand = work.significands[j]
        magnitude = rounded(abs(significand), right, p.align_rounding)
        whole = (-magnitude if significand < 0 else magnitude) if each else significand >> right
        left = min(max(place, 0), LIMB + FAR)
        high[j] = _high(whole, left)
        low[j] = _low(whole, left)
        lost[j] = 0 if each else np.int64((whole << right) != significand)
    if each:
        _add_rounded(p, a, b, i, columns, first, last, work)
    else:
        add_to_limbs(a, b, depth, i, columns, first, last, emax, high, low, lost)
    least = np.int64(1) << (p.keep_bits + 3)
    closed = np.int64(p.align_rounding != EXACT)  # what is lost may then be nothing, or a whole unit
    for j in range(len(high)):
        total = high[j] + (low[j] >> LIMB)
        rest = low[j] & LOW
        some = np.int64(lost[j] != 0)
        surely = (abs(total) >= least) & (rest >= closed) & (rest + lost[j] + closed <= LOW + 1)
        work.doubtful[j] = some & np.int64(not surely)
        small = (abs(total) < 1 << _SMALL) & (some == 0)
        sticky = np.int64((rest & ((1 << _LEFT) - 1)) != 0) | some
        high[j] = (total << LIMB) | rest if small else (total << (LIMB - _LEFT)) | (rest >> _LEFT) | sticky
        work.units[j] = emax[j] - depth + p.align_bits + (0 if small else _LEFT)
