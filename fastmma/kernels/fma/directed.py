"""A double-precision fused multiply-add in the directed rounding modes, in integers: the CPU's rounding mode stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import bitcast

RZ, RM, RP = 1, 2, 3

_FRACTION = np.uint64((1 << 52) - 1)
_IMPLICIT = np.uint64(1 << 52)
_INFINITY = np.uint64(0x7FF << 52)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@inner
def _significand(bits: Any) -> Any:
    """The integer significand and the exponent of its last bit."""
    field = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    fraction = bits & _FRACTION
    return (fraction, -1074) if field == 0 else (fraction | _IMPLICIT, field - 1075)


@inner
def _leading_zeros(high: Any, low: Any) -> Any:
    """Of 128 bits that are not all zero."""
    count = 0
    word = high
    if word == _ZERO:
        count = 64
        word = low
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == _ZERO:
            word <<= np.uint64(step)
            count += step
    return count


@inner
def _shifted_left(high: Any, low: Any, count: int) -> Any:
    """128 bits shifted left by less than 128."""
    if count >= 64:
        return low << np.uint64(count - 64), _ZERO
    if count == 0:
        return high, low
    return (high << np.uint64(count)) | (low >> np.uint64(64 - count)), low << np.uint64(count)


@inner
def _shifted_right(high: Any, low: Any, count: int) -> Any:
    """128 bits shifted right; any lost bit sets the last one."""
    if count == 0:
        return high, low
    if count >= 128:
        return _ZERO, _ONE if high | low != _ZERO else _ZERO
    kept_high, kept_low = _shifted_left(high, low, 128 - count)
    sticky = _ONE if kept_high | kept_low != _ZERO else _ZERO
    if count >= 64:
        return _ZERO, (high >> np.uint64(count - 64)) | sticky
    return high >> np.uint64(count), (low >> np.uint64(count)) | (high << np.uint64(64 - count)) | sticky


@inner
def _rounded(rounding: int, negative: bool, high: Any, low: Any, exponent: int) -> Any:
    """Bits of 128 bits (not all zero) times 2**exponent."""
    sign = np.uint64(1 << 63) if negative else _ZERO
    upward = (rounding == RM and negative) or (rounding == RP and not negative)
    count = _leading_zeros(high, low)
    high, low = _shifted_left(high, low, count)
    binade = exponent - count + 127
    if binade > 1023:
        return sign | (_INFINITY if upward else _INFINITY - _ONE)
    if binade < -1022:
        high, low = _shifted_right(high, low, -1022 - binade)
        binade = -1022
    # the leading bit of a normal number adds the one that is missing in its exponent field
    bits = (high >> np.uint64(11)) + (np.uint64(binade + 1022) << np.uint64(52))
    inexact = (high & np.uint64(0x7FF)) | low != _ZERO
    return sign | (bits + _ONE if upward and inexact else bits)


@inner
def directed_fma(rounding: int, a: float, b: float, c: float) -> Any:
    """``a * b + c`` of finite numbers, rounded once toward zero (RZ), down (RM) or up (RP)."""
    a_bits = bitcast(a, np.uint64)
    b_bits = bitcast(b, np.uint64)
    c_bits = bitcast(c, np.uint64)
    negative = ((a_bits ^ b_bits) >> np.uint64(63)) != _ZERO
    c_negative = (c_bits >> np.uint64(63)) != _ZERO
    a_significand, a_exponent = _significand(a_bits)
    b_significand, b_exponent = _significand(b_bits)
    c_high, c_exponent = _significand(c_bits)
    # schoolbook multiplication of two halves each; both are below 2**53
    a_high, a_low = a_significand >> np.uint64(32), a_significand & _LOW
    b_high, b_low = b_significand >> np.uint64(32), b_significand & _LOW
    middle = a_high * b_low + a_low * b_high
    low = a_low * b_low + (middle << np.uint64(32))
    carry = _ONE if low < middle << np.uint64(32) else _ZERO
    high = a_high * b_high + (middle >> np.uint64(32)) + carry
    exponent = a_exponent + b_exponent

    if high | low == _ZERO:
        if c_high == _ZERO:
            # of zeros of both signs the sum is +0, but -0 when rounding down
            total_negative = negative and c_negative if rounding != RM else negative or c_negative
            return bitcast(np.uint64(1 << 63) if total_negative else _ZERO, np.float64)
        return c
    if c_high == _ZERO:
        return bitcast(_rounded(rounding, negative, high, low, exponent), np.float64)

    # both with their leading bit at position 126: one bit for the carry, and at least 20 below a product's last bit
    count = _leading_zeros(high, low) - 1
    high, low = _shifted_left(high, low, count)
    exponent -= count
    count = _leading_zeros(c_high, _ZERO) - 1
    c_high <<= np.uint64(count)
    c_exponent -= 64 + count
    c_low = _ZERO
    if exponent > c_exponent:
        c_high, c_low = _shifted_right(c_high, c_low, exponent - c_exponent)
    else:
        high, low = _shifted_right(high, low, c_exponent - exponent)
        exponent = c_exponent
    if negative == c_negative:
        total_low = low + c_low
        total_high = high + c_high + (_ONE if total_low < low else _ZERO)
        return bitcast(_rounded(rounding, negative, total_high, total_low, exponent), np.float64)
    if high == c_high and low == c_low:
        return -0.0 if rounding == RM else 0.0
    if high < c_high or (high == c_high and low < c_low):
        high, low, c_high, c_low = c_high, c_low, high, low
        negative = c_negative
    total_high = high - c_high - (_ONE if low < c_low else _ZERO)
    return bitcast(_rounded(rounding, negative, total_high, low - c_low, exponent), np.float64)
