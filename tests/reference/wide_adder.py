"""Fused steps of any numbers, compiled: for arithmetics that no kernel knows, in an accumulator that holds every bit of every product.

It computes what `fastmma.numerics.reference` does, some thousand times as fast; `tests/agreement` compares both.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

import fastmma
from fastmma.isa.codes import to_codes
from fastmma.isa.formats import FORMATS, Format
from fastmma.numerics.arithmetic import CANONICAL_NAN
from fastmma.numerics.reference_steps import flushed, number, round_to

_LOWEST, _LIMBS, _LIMB = -320, 21, 32  # the accumulator's last bit, and its size: products of f32's exponents fit
_MASK = (1 << _LIMB) - 1
_PLUS, _MINUS, _NAN = 1, 2, 4  # infinities of either sign, and what is no number
_MODES = {"rz": 0, "rn": 1, "ro": 2, "rm": 3, "exact": 4}
_FAR = 62
_EXACT = 52  # bits of integers that float64 holds
_SHORT = 58  # bits of sums that are added as one integer
_F32_BOUND = 128  # f32 holds what is below that power of two


class Lines(NamedTuple):
    """Decoded elements: significands, the powers of two of their last bits, exponents, specials, and which are negative."""

    significands: NDArray[Any]
    lasts: NDArray[Any]
    exponents: NDArray[Any]
    specials: NDArray[Any]
    negatives: NDArray[Any]


class Rule(NamedTuple):
    """The numbers of an arithmetic."""

    terms: int
    align_bits: int
    keep_bits: int
    rounding: int
    align_rounding: int
    emax_floor: int
    joins: bool
    join_bits: int
    flush_inputs: bool
    flush_results: bool
    negative_zero: bool
    group: int


class Sums(NamedTuple):
    """The format of sums."""

    bits: int
    mantissa: int
    bias: int
    emin: int
    emax: int
    nan: int


def holds(plan: fastmma.GemmPlan) -> bool:
    """Tell whether it computes a plan's products: of one part, of whose terms each is a product, or a group's sum that an integer holds."""
    ins, own = plan.operation.instruction, plan.operation.arithmetic
    plain = plan.split_k == 1 and plan.promote_every is None and not plan.epilogue and ins.ctype == ins.dtype == ins.accumulator
    reach = sum(fmt.emax - fmt.emin + 2 * fmt.mantissa_bits + 1 for fmt in ins.formats[:2]) + own.group.bit_length()
    known = own.c_joins in ("terms", "sum") and (own.group == 1 or reach < _FAR) and not ins.sparse and not ins.scale_vec_size
    return own.method == "fused" and plain and known and not own.native_c


def multiply(plan: fastmma.GemmPlan, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the codes of a product (M, N)."""
    ins, own = plan.operation.instruction, plan.operation.arithmetic
    fmt, depth = ins.formats.d, -(-a.shape[1] // ins.k) * ins.k
    rows, columns = (
        _decoded(np.pad(values, ((0, 0), (0, depth - values.shape[1]))), each, own)
        for values, each in ((a, ins.formats.a), (b.T, ins.formats.b))
    )
    starts = np.zeros((len(a), b.shape[1]), np.int64) if c is None else to_codes(c, fmt.name).astype(np.int64)
    modes = _MODES[own.rounding], _MODES[own.align_rounding]
    joins, flushes = (own.c_joins == "sum", own.join_bits), (own.flush_inputs, own.flush_results, own.negative_zero)
    rule = Rule(own.terms, own.align_bits, own.keep_bits, *modes, own.emax_floor, *joins, *flushes, own.group)
    sums = Sums(fmt.bits, fmt.mantissa_bits, fmt.bias, fmt.emin, fmt.emax, CANONICAL_NAN[fmt.name])
    order, halves = _order(ins.k, own)
    return np.asarray(_product(rows, columns, starts, ins.k, order, halves, rule, sums)).astype(fmt.code_dtype)


def _order(k: int, own: fastmma.Arithmetic) -> tuple[NDArray[np.int64], int]:
    """The places of an instruction in the order of its steps, and how many runs from zero they make."""
    places = np.arange(k)
    if own.split:
        return np.concatenate([places[places // own.split % 2 == half] for half in (0, 1)]), 2
    if own.interleave:
        steps = k // (own.terms * own.group)
        return np.concatenate([places[places // own.interleave % steps == step] for step in range(steps)]), 1
    return places, 1


def _decoded(values: NDArray[Any], fmt: Format, own: fastmma.Arithmetic) -> Lines:
    codes = np.ascontiguousarray(to_codes(np.ascontiguousarray(values), fmt.name if fmt.name != "tf32" else "f32"))
    found, at = np.unique(codes, return_inverse=True)
    decoded = []
    for code in found.tolist():
        value = number(flushed(code, fmt) if own.flush_inputs else code, fmt)
        if own.widened and not value.special:
            wide = FORMATS[own.widened]
            value = number(round_to(value.significand, value.last, wide, "rn"), wide)._replace(negative=value.negative)
        special = _NAN if value.special == "nan" else 0 if not value.special else _MINUS if value.negative else _PLUS
        decoded.append((value.significand, value.last, value.exponent, special, value.negative))
    table = np.array(decoded, np.int64)[at.reshape(codes.shape)]
    return Lines(*(np.ascontiguousarray(table[..., each]) for each in range(5)))


@njit(cache=True)
def _add(limbs: Any, value: int, last: int) -> None:
    if value:
        offset = last - _LOWEST
        shifted = value << (offset & 31)
        limbs[offset >> 5] += shifted & _MASK
        limbs[(offset >> 5) + 1] += shifted >> _LIMB


@njit(cache=True)
def _carry(limbs: Any) -> None:
    """Make all limbs digits of a two's complement."""
    carry = 0
    for each in range(len(limbs)):
        total = limbs[each] + carry
        limbs[each] = total & _MASK
        carry = total >> _LIMB


@njit(cache=True)
def _floor(limbs: Any, last: int) -> None:
    """Clear the bits below a power of two."""
    offset = max(last - _LOWEST, 0)
    for each in range(min(offset >> 5, len(limbs))):
        limbs[each] = 0
    if offset >> 5 < len(limbs):
        limbs[offset >> 5] = (limbs[offset >> 5] >> (offset & 31)) << (offset & 31)


@njit(cache=True)
def _make_positive(limbs: Any) -> bool:
    """Negate a negative sum; tell whether it was."""
    negative = limbs[-1] >> (_LIMB - 1) != 0
    if negative:
        for each in range(len(limbs)):
            limbs[each] = limbs[each] ^ _MASK
        limbs[0] += 1
        _carry(limbs)
    return negative


@njit(cache=True)
def _bit_length(value: int) -> int:
    if value >> _EXACT:
        return _LIMB + math.frexp(float(value >> _LIMB))[1]
    return math.frexp(float(value))[1]


@njit(cache=True)
def _length(limbs: Any) -> int:
    for each in range(len(limbs) - 1, -1, -1):
        if limbs[each]:
            return each * _LIMB + _bit_length(limbs[each])
    return 0


@njit(cache=True)
def _shifted(value: int, shift: int, mode: int) -> int:
    """Round a signed integer to units of two to `shift`."""
    near = min(shift, _FAR)
    if mode == 3:
        return value >> near
    magnitude = abs(value)
    whole = magnitude >> near
    rest = magnitude - (whole << near)
    if mode == 1 and shift <= _FAR:
        half = 1 << (shift - 1)
        whole += int(rest > half or (rest == half and whole & 1 != 0))
    elif mode == 2:
        whole |= int(rest > 0)
    return -whole if value < 0 else whole


@njit(cache=True)
def _bits(limbs: Any, first: int, count: int) -> int:
    """Return so many bits of a magnitude, from one on."""
    found = 0
    for bit in range(count):
        at = first + bit
        if 0 <= at < len(limbs) * _LIMB:
            found |= (limbs[at >> 5] >> (at & 31) & 1) << bit
    return found


@njit(cache=True)
def _any_below(limbs: Any, first: int) -> bool:
    for each in range(min(max(first, 0) >> 5, len(limbs))):
        if limbs[each]:
            return True
    return first > 0 and limbs[first >> 5] & ((1 << (first & 31)) - 1) != 0


@njit(cache=True)
def _rounded(limbs: Any, fraction: int, mode: int, sums: Any) -> tuple[int, bool]:
    """Return the code of a sum, and whether it was negative before it was rounded."""
    negative = _make_positive(limbs)
    length = _length(limbs)
    if length == 0:
        return 0, False
    exponent = max(length - 1 + _LOWEST, sums.emin)
    first = exponent - fraction - _LOWEST
    whole = _bits(limbs, first, fraction + 1)
    half, below = _bits(limbs, first - 1, 1) != 0, _any_below(limbs, first - 1)
    if mode == 1:
        whole += int(half and (below or whole & 1 != 0))
    elif mode == 2:
        whole |= int(half or below)
    elif mode == 3 and negative:
        whole += int(half or below)
    return _packed(whole, exponent, negative, fraction, sums), negative


@njit(cache=True)
def _packed(whole: int, exponent: int, negative: bool, fraction: int, sums: Any) -> int:
    """Return the code of a rounded magnitude of so many fraction bits."""
    if whole >> (fraction + 1):
        whole, exponent = whole >> 1, exponent + 1
    sign = int(negative) << (sums.bits - 1)
    if exponent > sums.emax:
        return sign | ((sums.emax + sums.bias + 1) << sums.mantissa)
    if whole == 0:
        return 0
    whole <<= sums.mantissa - fraction
    field = exponent + sums.bias if whole >> sums.mantissa else 0
    return sign | field << sums.mantissa | (whole & ((1 << sums.mantissa) - 1))


@njit(cache=True)
def _number(code: int, sums: Any) -> tuple[int, int, int, int]:
    """Return the significand, its last bit, the exponent and the special of a code."""
    field = code >> sums.mantissa & ((1 << (sums.bits - 1 - sums.mantissa)) - 1)
    fraction = code & ((1 << sums.mantissa) - 1)
    negative = code >> (sums.bits - 1) & 1
    if field == sums.emax + sums.bias + 1:
        return 0, 0, 0, _NAN if fraction else _MINUS if negative else _PLUS
    significand = fraction | (1 << sums.mantissa if field else 0)
    exponent = max(field, 1) - sums.bias
    return -significand if negative else significand, exponent - sums.mantissa, exponent, 0


@njit(cache=True)
def _without_subnormal(code: int, sums: Any) -> int:
    field = code >> sums.mantissa & ((1 << (sums.bits - 1 - sums.mantissa)) - 1)
    return code if field else code >> (sums.bits - 1) << (sums.bits - 1)


@njit(cache=True)
def _special(specials: int, sums: Any) -> int:
    if specials & _NAN or specials == _PLUS | _MINUS:
        return sums.nan
    return ((sums.emax + sums.bias + 1) << sums.mantissa) | int(specials == _MINUS) << (sums.bits - 1)


@njit(cache=True)
def _ieee_sum(x: int, y: int, limbs: Any, sums: Any) -> int:
    """Add two codes, to nearest."""
    first, second = _number(x, sums), _number(y, sums)
    if first[3] | second[3]:
        return _special(first[3] | second[3], sums)
    if first[0] == 0 and second[0] == 0:
        return (x & y) >> (sums.bits - 1) << (sums.bits - 1)
    limbs[:] = 0
    _add(limbs, first[0], first[1])
    _add(limbs, second[0], second[1])
    _carry(limbs)
    return _rounded(limbs, sums.mantissa, 1, sums)[0]


@njit(cache=True)
def _special_product(x: Any, y: Any, k: int) -> int:
    """Return the special of a product one of whose factors is one."""
    one, other = x.specials[k], y.specials[k]
    zero = (one == 0 and x.significands[k] == 0) or (other == 0 and y.significands[k] == 0)
    return _NAN if zero or (one | other) & _NAN else _MINUS if x.negatives[k] != y.negatives[k] else _PLUS


@njit(cache=True)
def _gathered(terms: Any, count: int, members: int) -> int:
    """Make one term of the last ones, which are a group; return how many terms there are."""
    if members < 2:
        return count
    first, last, exponent, total = count - members, terms[count - 1, 1], terms[count - 1, 2], 0
    for each in range(first, count):
        last, exponent = min(last, terms[each, 1]), max(exponent, terms[each, 2])
    for each in range(first, count):
        total += terms[each, 0] << (terms[each, 1] - last)
    terms[first, 0], terms[first, 1], terms[first, 2] = total, last, exponent
    return first + 1


@njit(cache=True)
def _step(x: Any, y: Any, places: Any, c: int, limbs: Any, terms: Any, rule: Any, sums: Any) -> int:
    """Compute one step: its products and a code, which is one of its terms or joins their sum."""
    start = _number(c, sums)
    specials, emax, count, members = start[3], rule.emax_floor, 0, 0
    for at, k in enumerate(places):
        if at % rule.group == 0:
            count, members = _gathered(terms, count, members), 0
        if x.specials[k] | y.specials[k]:
            specials |= _special_product(x, y, k)
            continue
        value = x.significands[k] * y.significands[k]
        if value:
            last, exponent = x.lasts[k] + y.lasts[k], x.exponents[k] + y.exponents[k]
            terms[count, 0], terms[count, 1], terms[count, 2] = value, last, exponent
            emax, count, members = max(emax, exponent), count + 1, members + 1
            if rule.joins and exponent + 2 > _F32_BOUND and _bit_length(abs(value)) + last > _F32_BOUND:
                specials |= _MINUS if value < 0 else _PLUS
    count = _gathered(terms, count, members)
    if specials:
        return _special(specials, sums)
    if not rule.joins and start[0]:
        terms[count, 0], terms[count, 1], terms[count, 2] = start[0], start[1], start[2]
        emax, count = max(emax, start[2]), count + 1
    unit = emax - rule.align_bits
    low, high = (start[1], start[2] + 1) if rule.joins and start[0] else (_FAR * _FAR, -_FAR * _FAR)
    for each in range(count):
        value, last = terms[each, 0], terms[each, 1]
        if unit > last and rule.align_rounding != 4:
            value, last = _shifted(value, unit - last, rule.align_rounding), unit
            terms[each, 0], terms[each, 1] = value, last
        if value:
            low, high = min(low, last), max(high, terms[each, 2] + 1 + rule.group, last + 1)
    if high - low < _SHORT:
        code, negative = _short_sum(terms[:count], start, low, max(emax, start[2]), rule, sums)
    else:
        limbs[:] = 0
        for each in range(count):
            _add(limbs, terms[each, 0], terms[each, 1])
        _carry(limbs)
        if rule.joins:
            _join(limbs, start, max(emax, start[2]), rule, sums)
        code, negative = _rounded(limbs, rule.keep_bits, rule.rounding, sums)
    if rule.negative_zero and negative and code == 0:
        code = 1 << (sums.bits - 1)
    return _without_subnormal(code, sums) if rule.flush_results else code


@njit(cache=True)
def _short_sum(terms: Any, start: Any, low: int, emax: int, rule: Any, sums: Any) -> tuple[int, bool]:
    """Add terms as one integer of units of two to `low`, and round."""
    total = 0
    for each in range(len(terms)):
        if terms[each, 0]:
            total += terms[each, 0] << (terms[each, 1] - low)
    if rule.joins:
        sum_last, c_last = emax - rule.join_bits - 1, emax - rule.align_bits
        total = _cleared(total, sum_last - low)
        if start[0]:
            total += _cleared(start[0] << (start[1] - low), c_last - low)
        top = _bit_length(abs(total)) - 1 + low
        total = _cleared(total, max(max(top, sums.emin) - rule.join_bits, min(sum_last, c_last)) - low)
    if total == 0:
        return 0, False
    exponent = max(_bit_length(abs(total)) - 1 + low, sums.emin)
    shift = exponent - rule.keep_bits - low
    whole = abs(_shifted(total, shift, rule.rounding)) if shift > 0 else abs(total) << -shift
    return _packed(whole, exponent, total < 0, rule.keep_bits, sums), total < 0


@njit(cache=True)
def _cleared(value: int, count: int) -> int:
    """Round down to units of two to `count`."""
    near = min(max(count, 0), _FAR)
    return value >> near << near


@njit(cache=True)
def _join(limbs: Any, start: Any, emax: int, rule: Any, sums: Any) -> None:
    """Let a number join a sum of products, and cut what results."""
    sum_last, c_last = emax - rule.join_bits - 1, emax - rule.align_bits
    _floor(limbs, sum_last)
    shift = max(c_last - start[1], 0)
    _add(limbs, start[0] >> min(shift, _FAR), start[1] + shift)
    _carry(limbs)
    magnitude = limbs.copy()
    _make_positive(magnitude)
    top = _length(magnitude) - 1 + _LOWEST
    _floor(limbs, max(max(top, sums.emin) - rule.join_bits, min(sum_last, c_last)))


@njit(cache=True)
def _line(lines: Any, at: int) -> Any:
    return Lines(lines.significands[at], lines.lasts[at], lines.exponents[at], lines.specials[at], lines.negatives[at])


@njit(cache=True)
def _product(rows: Any, columns: Any, starts: Any, size: int, order: Any, halves: int, rule: Any, sums: Any) -> Any:
    found = np.empty(starts.shape, np.int64)
    limbs, terms = np.zeros(_LIMBS, np.int64), np.zeros((size + 1, 3), np.int64)
    for i in range(starts.shape[0]):
        x = _line(rows, i)
        for j in range(starts.shape[1]):
            y, total = _line(columns, j), starts[i, j]
            for first in range(0, len(x.significands), size):
                total = _without_subnormal(total, sums) if rule.flush_inputs else total
                value = 0 if halves == 2 else total
                for half in range(halves):
                    end = (half + 1) * size // halves
                    for turn in range(half * size // halves, end, rule.terms * rule.group):
                        places = first + order[turn : min(turn + rule.terms * rule.group, end)]
                        value = _step(x, y, places, value, limbs, terms, rule, sums)
                total = _ieee_sum(value, total, limbs, sums) if halves == 2 else value
            found[i, j] = total
    return found
