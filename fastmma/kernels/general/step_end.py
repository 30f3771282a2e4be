"""The end of a step: an exact sum is rounded to the accumulator's format, and what infinities and NaNs decide is put in its place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.decode.tables import FINITE, MINUS, NAN, PLUS, ZERO
from fastmma.kernels.general.lines import DecodedLines
from fastmma.kernels.llvm.compilation import inner, separate
from fastmma.kernels.params import ROUNDINGS, General

RZ, RN, RO, EXACT = range(len(ROUNDINGS))
FAR = 63  # a shift that leaves nothing of a sum


class StepMemory(NamedTuple):
    """Buffers of the width of a panel."""

    sums: NDArray[np.int64]  # in units; of sums of digits, where their units are
    emax: NDArray[np.int32]
    significands: NDArray[np.int64]  # of accumulators
    exponents: NDArray[np.int32]
    floats: NDArray[np.float64]
    group: NDArray[np.int64]
    low: NDArray[np.int64]  # lower limbs
    lost: NDArray[np.int64]  # how many terms of limbs lost something
    doubtful: NDArray[np.int64]  # not zero where limbs do not decide how a sum is rounded
    units: NDArray[np.int32]  # of sums that had two limbs
    digits: NDArray[np.int64]  # (column, digit)


@separate
def make_work(width: int, digits: int) -> StepMemory:
    integers, words = np.empty((6, width), np.int64), np.empty((3, width), np.int32)
    floats, sums = np.empty(width, np.float64), np.zeros((width, digits), np.int64)
    return StepMemory(
        integers[0], words[0], integers[1], words[1], floats, integers[2], integers[3], integers[4], integers[5], words[2], sums
    )


@separate
def of_column(work: StepMemory, j: int) -> StepMemory:
    """The buffers of one column."""
    at = slice(j, j + 1)
    return StepMemory(
        work.sums[at],
        work.emax[at],
        work.significands[at],
        work.exponents[at],
        work.floats[at],
        work.group[at],
        work.low[at],
        work.lost[at],
        work.doubtful[at],
        work.units[at],
        work.digits[at],
    )


@inner
def rounded(magnitude: Any, shift: Any, mode: int) -> Any:
    """``magnitude * 2**-shift`` as an integer, for a shift from 0 to `FAR` and magnitudes below 2**62."""
    whole = magnitude >> shift
    rest = magnitude - (whole << shift)
    if mode == RN:
        half = np.int64(1) << max(shift - 1, 0)
        return whole + np.int64((rest > half) | ((rest == half) & ((whole & 1) == 1)))
    if mode == RO:
        return whole | np.int64(rest != 0)
    return whole


@separate
def read_accumulators(p: General, state: Any, work: StepMemory) -> None:
    """Significands and exponents of finite accumulators, which emax counts."""
    mask = (np.int64(1) << p.fraction) - 1
    highest = (2 * p.bias + 1) << p.fraction
    for j in range(len(state)):
        code = np.int64(state[j])
        magnitude = code & ((np.int64(2 * p.bias + 2) << p.fraction) - 1)
        field: Any = magnitude >> p.fraction
        significand = (magnitude & mask) | (min(field, 1) << p.fraction)
        finite = magnitude < highest
        work.significands[j] = 0 if not finite else -significand if code > magnitude else significand
        work.exponents[j] = max(field, 1) - p.bias if finite and magnitude != 0 else ZERO
        work.emax[j] = work.exponents[j] if p.align_rounding == EXACT else max(work.exponents[j], p.emax_floor)


@separate
def write_accumulators(p: General, work: StepMemory, units: Any, state: Any) -> None:
    """Rounded sums, in units of ``2**(units - align_bits)``, as codes."""
    bits = work.floats.view(np.int64)
    for j in range(len(state)):
        work.floats[j] = np.float64(abs(work.sums[j]))
    lowest, infinity = np.int64(1 - p.bias), np.int64(2 * p.bias + 1) << p.fraction
    for j in range(len(state)):
        total = work.sums[j]
        magnitude = abs(total)
        unit = np.int64(units[j]) - p.align_bits
        top = max((bits[j] >> 52) - 1023, 0)
        top -= np.int64((magnitude >> top) == 0)
        exponent = max(top + unit, lowest)
        shift = exponent - p.keep_bits - unit
        whole = rounded(magnitude << min(max(-shift, 0), FAR), min(max(shift, 0), FAR), p.rounding)
        carry = whole >> (p.keep_bits + 1)
        exponent += carry
        whole = (whole >> carry) << (p.fraction - p.keep_bits)
        field = exponent + p.bias if whole >> p.fraction != 0 else 0
        code = (field << p.fraction) | (whole & ((np.int64(1) << p.fraction) - 1))
        code = infinity if exponent > p.bias else code
        sign = (np.int64(p.bias + 1) << (p.fraction + 1)) if total < 0 else 0
        state[j] = np.uint32(0 if magnitude == 0 or code == 0 else code | sign)


@inner
def kind_of(p: General, code: Any) -> int:
    """The kind of an accumulator."""
    top = np.int64(2 * p.bias + 1) << p.fraction
    magnitude = np.int64(code) & ((np.int64(2 * p.bias + 2) << p.fraction) - 1)
    if magnitude < top:
        return FINITE
    if magnitude > top:
        return NAN
    return MINUS if np.int64(code) > magnitude else PLUS


@separate
def special_sum(p: General, a: Any, b: Any, i: int, j: int, first: int, last: int, seen: int) -> int:
    """The code that infinities and NaNs among a step's products and its accumulator, of kind `seen`, make; -1 without any."""
    plus, minus, nan = seen == PLUS, seen == MINUS, seen == NAN
    for k in range(first, last):
        left, right = a.kinds[i, k], b.kinds[k, j]
        if left == FINITE and right == FINITE:
            continue
        of_zero = (left == FINITE and a.significands[i, k] == 0) or (right == FINITE and b.significands[k, j] == 0)
        if left == NAN or right == NAN or of_zero:
            nan = True
        else:
            negative = (left == MINUS or a.significands[i, k] < 0) != (right == MINUS or b.significands[k, j] < 0)
            plus, minus = plus or not negative, minus or negative
    infinity = (2 * p.bias + 1) << p.fraction
    if nan or (plus and minus):
        return ((2 * p.bias + 2) << p.fraction) - 1
    if plus:
        return infinity
    return infinity | (p.bias + 1) << (p.fraction + 1) if minus else -1


@separate
def ieee_sum(p: General, x: Any, y: Any) -> Any:
    """Two codes of the accumulator's format added to nearest."""
    first, second = kind_of(p, x), kind_of(p, y)
    nan, infinity = ((2 * p.bias + 2) << p.fraction) - 1, (2 * p.bias + 1) << p.fraction
    if first == NAN or second == NAN or (first != FINITE and second != FINITE and first != second):
        return nan
    if first != FINITE or second != FINITE:
        kind = first if first != FINITE else second
        return infinity | ((p.bias + 1) << (p.fraction + 1) if kind == MINUS else 0)
    if p.fraction == 23:
        pair = np.empty(2, np.uint32)
        pair[0], pair[1] = x, y
        floats = pair.view(np.float32)
        floats[0] = floats[0] + floats[1]
        return np.int64(pair[0])
    # f16: both are multiples of 2**-24 below 2**16
    total, negative_zeros = np.int64(0), True
    for each in (np.int64(x), np.int64(y)):
        field: Any = (each >> 10) & 31
        significand = ((each & 1023) | (min(field, 1) << 10)) << (max(field, 1) - 1)
        total += -significand if each >> 15 else significand
        negative_zeros = negative_zeros and each == 1 << 15
    magnitude: Any = abs(total)
    top: Any = 0
    while magnitude >> (top + 1):
        top += 1
    exponent: Any = max(top - 10, 0)
    whole = rounded(magnitude, np.int64(exponent), RN)
    if whole >> 11:
        whole, exponent = whole >> 1, exponent + 1
    code: Any = (exponent + 1 << 10 | whole & 1023) if whole >> 10 else whole
    code = min(code, infinity)
    return code | 1 << 15 if total < 0 or negative_zeros else code


@separate
def raise_emax(a_exponents: Any, b_exponents: Any, i: int, columns: Any, first: int, last: int, emax: Any) -> None:
    """emax counts products, too."""
    for k in range(first, last):
        x = np.int32(a_exponents[i, k])
        if x != ZERO:
            others = b_exponents[k, columns[0] : columns[1]]
            for j in range(len(emax)):
                emax[j] = max(emax[j], x + others[j])


@separate
def put_specials(p: General, a: DecodedLines, b: DecodedLines, i: int, columns: Any, first: int, last: int, kinds: Any, state: Any) -> None:
    """The results that infinities and NaNs decide; `kinds` are those of the accumulators before the step."""
    for j in range(len(state)):
        code = special_sum(p, a, b, i, columns[0] + j, first, last, kinds[j])
        if code >= 0:
            state[j] = np.uint32(code)
