"""Steps whose aligned terms and their sum are integers of 64 bits: plain loops over a panel of columns, which LLVM turns into vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.general.limbs import LIMB, LOW, add_to_limbs
from fastmma.kernels.general.lines import DecodedLines
from fastmma.kernels.general.step_end import FAR, RN, RO, StepMemory, rounded
from fastmma.kernels.llvm.compilation import separate
from fastmma.kernels.params import General

FEW = 12  # bits that hold twice the number of a group's products
SPARE = 3  # bits of a group's sum below units: the last one tells whether anything is lost


@separate
def _add_accumulators(p: General, work: StepMemory) -> None:
    """Sums begin with the aligned accumulators."""
    room = p.align_bits - p.fraction
    left, right = max(room, 0), max(-room, 0)
    for j in range(len(work.sums)):
        significand = work.significands[j]
        magnitude = abs(significand) << left
        shift = min(np.int64(work.emax[j]) - work.exponents[j] + right, FAR)
        term = rounded(magnitude, shift, p.align_rounding)
        work.sums[j] = -term if significand < 0 else term


@separate
def _add_products(
    p: General, a: DecodedLines, b: DecodedLines, i: int, columns: Any, first: int, last: int, offset: int, work: StepMemory
) -> None:
    """Aligned products of a row join the sums."""
    room = p.align_bits - offset
    left, right = np.int64(max(room, 0)), max(-room, 0)
    sums, emax = work.sums, work.emax
    for k in range(first, last):
        x = np.int64(a.significands[i, k]) << left
        if x == 0:
            continue
        above = right - a.exponents[i, k]
        values, exponents = b.significands[k, columns[0] : columns[1]], b.exponents[k, columns[0] : columns[1]]
        if p.align_rounding == RN:
            for j in range(len(sums)):
                product = x * np.int64(values[j])
                sign = product >> 63
                magnitude = (product ^ sign) - sign
                shift: Any = np.int64(min(emax[j] - exponents[j] + above, FAR))
                half = np.int64(shift > 0) << np.int64(max(shift - 1, 0))
                more = half - (1 - ((magnitude >> shift) & 1)) * np.int64(shift > 0)
                sums[j] += (((magnitude + more) >> shift) ^ sign) - sign
        elif p.align_rounding == RO:
            for j in range(len(sums)):
                product = x * np.int64(values[j])
                sign = product >> 63
                magnitude = (product ^ sign) - sign
                shift = np.int64(min(emax[j] - exponents[j] + above, FAR))
                whole = magnitude >> shift
                sums[j] += ((whole | np.int64((whole << shift) != magnitude)) ^ sign) - sign
        else:
            for j in range(len(sums)):
                product = x * np.int64(values[j])
                sign = product >> 63
                magnitude = (product ^ sign) - sign
                sums[j] += ((magnitude >> np.int64(min(emax[j] - exponents[j] + above, FAR))) ^ sign) - sign


@separate
def _add_groups(p: General, a: DecodedLines, b: DecodedLines, i: int, columns: Any, first: int, last: int, work: StepMemory) -> None:
    """Aligned exact sums of groups join the sums."""
    start = columns[0]
    for group in range(first, last, p.group):
        end = min(group + p.group, last)
        for j in range(len(work.group)):
            work.group[j] = 0
        for k in range(group, end):
            x = np.int64(a.significands[i, k])
            values = b.significands[k, start : columns[1]]
            for j in range(len(work.group)):
                work.group[j] += x * np.int64(values[j])
        base = np.int64(a.bases[i, group]) + p.align_bits
        for j in range(len(work.group)):
            total = work.group[j]
            shift = base + b.bases[group, start + j] - work.emax[j]
            magnitude = abs(total) << min(max(shift, 0), FAR)
            term = rounded(magnitude, np.int64(min(max(-shift, 0), FAR)), p.align_rounding)
            work.sums[j] += -term if total < 0 else term


@separate
def _add_limbs(
    p: General, a: DecodedLines, b: DecodedLines, depth: int, i: int, columns: Any, first: int, last: int, work: StepMemory
) -> None:
    """Add the groups of a step whose sums take two limbs, which begin `depth` bits below emax; mark columns that need more."""
    high, low, lost = work.group, work.low, work.lost
    spare = depth - p.align_bits - SPARE  # bits below those that rounding to units looks at
    near = min(spare, LIMB)
    far = min(spare - near, FAR)
    part = min(spare + SPARE - 1, LIMB)  # bits below half a unit
    for j in range(len(high)):
        work.doubtful[j] = 0
    for group in range(first, last, p.group):
        for j in range(len(high)):
            high[j] = 0
            low[j] = 0
            lost[j] = 0
        add_to_limbs(a, b, depth, i, columns, group, min(group + p.group, last), work.emax, high, low, lost)
        for j in range(len(high)):
            total = high[j] + (low[j] >> LIMB)
            rest = low[j] & LOW
            negative = total < 0
            # what is lost may decide the sign of a sum that is rounded to zero
            zero = (p.align_rounding != RO) & negative & (total == -1) & (rest + lost[j] > LOW) & (part > FEW)
            close = (rest & ((np.int64(1) << part) - 1)) + lost[j] > np.int64(1) << part
            work.doubtful[j] |= np.int64((lost[j] != 0) & close & (not zero))
            below = np.int64(lost[j] != 0)
            # the magnitude of a negative sum, of which what is lost takes a bit more
            total = -total - np.int64((rest | below) != 0) if negative else total
            rest = (-rest - below) & LOW if negative else rest
            units = (total << (LIMB - near)) + (rest >> near) if spare <= LIMB else total >> far
            kept = (rest >> near) << near if spare <= LIMB else np.int64(0)
            above = (total >> far) << far
            units |= np.int64((rest != kept) | (above != total)) | below
            term = rounded(units, np.int64(SPARE), p.align_rounding)
            work.sums[j] += -term if negative else term


@separate
def add_terms(
    p: General, a: DecodedLines, b: DecodedLines, offset: int, i: int, columns: Any, first: int, last: int, work: StepMemory
) -> None:
    """The sums of a step, from emax; products' last bits are `offset` below their exponents, or limbs begin so far below emax."""
    _add_accumulators(p, work)
    if p.limbs:
        _add_limbs(p, a, b, offset, i, columns, first, last, work)
    elif p.group > 1 or p.by_scales:
        _add_groups(p, a, b, i, columns, first, last, work)
    else:
        _add_products(p, a, b, i, columns, first, last, offset, work)
