"""Steps whose aligned terms and their sum are integers of 64 bits: plain loops over a panel of columns, which LLVM turns into vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.general.lines import Lines
from fastmma.kernels.general.step_end import FAR, RN, RO, Work, rounded
from fastmma.kernels.llvm.simd import separate
from fastmma.kernels.params import General

LIMB = 40  # bits of the lower limb
_LOW = (1 << LIMB) - 1


@separate
def _add_accumulators(p: General, work: Work) -> None:
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
def _add_products(p: General, a: Lines, b: Lines, i: int, columns: Any, first: int, last: int, offset: int, work: Work) -> None:
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
def _add_groups(p: General, a: Lines, b: Lines, i: int, columns: Any, first: int, last: int, work: Work) -> None:
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
def _add_limbs(p: General, a: Lines, b: Lines, lowest: int, i: int, columns: Any, first: int, last: int, work: Work) -> None:
    """The same for groups whose sums, in units of ``2**lowest``, take two limbs."""
    start, high, low = columns[0], work.group, work.low
    for group in range(first, last, p.group):
        for j in range(len(high)):
            high[j] = 0
            low[j] = 0
        for k in range(group, min(group + p.group, last)):
            x = np.int64(a.significands[i, k])
            if x == 0:
                continue
            base = a.bases[i, k] - lowest
            values, bases = b.significands[k, start : columns[1]], b.bases[k, start : columns[1]]
            for j in range(len(high)):
                place: Any = np.int64(base + bases[j])
                product = x * np.int64(values[j])
                small = product << min(place, LIMB - 1)
                apart = place >= LIMB
                high[j] += product << max(place - LIMB, 0) if apart else small >> LIMB
                low[j] += 0 if apart else small & _LOW
        for j in range(len(high)):
            total = high[j] + (low[j] >> LIMB)
            rest = low[j] & _LOW
            negative = total < 0
            total = -total - np.int64(rest != 0) if negative else total
            rest = -rest & _LOW if negative else rest
            # three bits more than units have: the last one tells whether anything is lost below
            shift: Any = np.int64(work.emax[j]) - p.align_bits - lowest - 3
            right: Any = max(shift, 0)
            far = np.int64(min(max(right - LIMB, 0), FAR))
            near = np.int64(min(right, LIMB))
            units = (total << (LIMB - near)) + (rest >> near) if right < LIMB else total >> far
            kept = (rest >> near) << near if right < LIMB else np.int64(0)
            above = (total >> far) << far
            units |= np.int64((rest != kept) | (above != total))
            term = rounded(units << np.int64(max(-shift, 0)), np.int64(3), p.align_rounding)
            work.sums[j] += -term if negative else term


@separate
def add_terms(p: General, a: Lines, b: Lines, offset: int, i: int, columns: Any, first: int, last: int, work: Work) -> None:
    """The sums of a step, from emax; products' last bits are `offset` below their exponents, or of limbs from it on."""
    _add_accumulators(p, work)
    if p.limbs:
        _add_limbs(p, a, b, offset, i, columns, first, last, work)
    elif p.group > 1 or p.by_scales:
        _add_groups(p, a, b, i, columns, first, last, work)
    else:
        _add_products(p, a, b, i, columns, first, last, offset, work)
