"""The end of a fused step: the accumulator joins the sum of truncated products, and the total is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import bitcast, convert, maximum, minimum, power_of_two, select, splat, truncated, zeros
from fastmma.kernels.matrices.accumulators import FRACTION, IMPLICIT, INFINITY, MAGNITUDE, NAN, SIGN, half_rounded
from fastmma.kernels.matrices.addresses import LANES, ZERO_EXPONENT
from fastmma.kernels.params import Fused

_REBIAS = (1023 - 127) << 23
_MAGNITUDE_64 = 0x7FFFFFFFFFFFFFFF


@inner
def accumulator_exponent(p: Fused, accumulator: Any) -> Any:
    """Exponents of accumulators given as float32 bits."""
    magnitude = accumulator & MAGNITUDE
    field = maximum(magnitude >> 23, 113 if p.half != 0 else 1)
    return select(magnitude == 0, ZERO_EXPONENT, field - 127)


@inner
def _rounded(p: Fused, value: Any) -> Any:
    """Lanes of float64 rounded to the result's format, as float32 bits; a zero is +0, a NaN canonical."""
    bits = bitcast(value, np.int64)
    magnitude = bitcast(bits & _MAGNITUDE_64, np.float64)
    if p.half != 0:
        # a subnormal has the quantum of the lowest binade: round it there
        offset = select(magnitude < 2.0**-14, 2.0**-14, zeros(np.float64, LANES))
        shifted = bitcast(magnitude + offset, np.int64)
        shifted = (shifted + 0x1FFFFFFFFFF + ((shifted >> 42) & 1)) & ~0x3FFFFFFFFFF
        nearest = bitcast(shifted, np.float64) - offset
        result = convert((bitcast(nearest, np.int64) >> 29) - _REBIAS, np.int32)
        result = select(nearest == 0.0, 0, select(nearest >= 65536.0, INFINITY, result))
    else:
        normal = convert(minimum((bitcast(magnitude, np.int64) >> 29) - _REBIAS, INFINITY), np.int32)
        subnormal = convert(magnitude * 2.0**149, np.int32)
        result = select(magnitude < 2.0**-126, subnormal, normal) & (-1 << (23 - p.keep_bits))
    sign = convert(bits >> 32, np.int32) & SIGN
    result = select(result == 0, 0, result | sign)
    return select(value != value, NAN, result)


@inner
def wide_step_end(p: Fused, products: Any, accumulator: Any, emax: Any) -> Any:
    """The next accumulator, from a float64 sum of products."""
    scaled = convert(bitcast(accumulator, np.float32), np.float64) * power_of_two(p.align_bits - emax, np.float64)
    return _rounded(p, (products + truncated(scaled)) * power_of_two(emax - p.align_bits, np.float64))


@inner
def narrow_step_end(p: Fused, products: Any, accumulator: Any, emax: Any) -> Any:
    """The next accumulator, from an int32 sum of products; a total has up to 32 bits and a sign. At most 25 align_bits."""
    magnitude = accumulator & MAGNITUDE
    field = magnitude >> 23
    significand = (magnitude & FRACTION) | select(field == 0, 0, splat(np.int32(IMPLICIT), LANES))
    shift = emax - maximum(field, 1) + (127 + 25 - p.align_bits)
    term = (significand << 2) >> minimum(shift, 31)
    accumulator_sign = accumulator >> 31
    term = (term ^ accumulator_sign) - accumulator_sign
    total = products + term
    # the sign that the sum has before it wraps
    sign = ((products & term) | ((products ^ term) & total)) >> 31
    size = bitcast((total ^ sign) - sign, np.uint32)
    if p.half != 0:
        # 24 bits with the lost ones in the last hold all that rounding to 11 needs
        large = size >= 1 << 24
        sticky = (size >> 8) | select((size & 0xFF) == 0, 0, splat(np.uint32(1), LANES))
        value = convert(bitcast(select(large, sticky, size), np.int32), np.float32)
        exponent = emax - p.align_bits + select(large, 8, zeros(np.int32, LANES))
        result = half_rounded(bitcast(value, np.int32) + (exponent << 23))
    else:
        # without the bit after the 24 that stay, the conversion rounds down
        value = bitcast(convert(size & ((size >> 24) ^ 0xFFFFFFFF), np.float32), np.int32)
        # a bias of 64 more keeps exponents that are too low or too high positive
        raised = bitcast(value + ((emax + (64 - p.align_bits)) << 23), np.uint32)
        normal = minimum(raised, (255 + 64) << 23) - (64 << 23)
        subnormal = ((raised & FRACTION) | IMPLICIT) >> minimum(65 - (raised >> 23), 31)
        result = bitcast(select(raised < 65 << 23, subnormal, normal), np.int32) & (-1 << (23 - p.keep_bits))
    result = select(total == 0, 0, result)
    result = select(result == 0, 0, result | (sign & SIGN))
    return select(magnitude < INFINITY, result, select(magnitude == INFINITY, accumulator, NAN))


@inner
def ieee_sum(p: Fused, first: Any, second: Any) -> Any:
    """The IEEE sum in the result's format of two lanes of float32 bits, to nearest even."""
    if p.half != 0:
        return _rounded(p, convert(bitcast(first, np.float32), np.float64) + convert(bitcast(second, np.float32), np.float64))
    total = bitcast(first, np.float32) + bitcast(second, np.float32)
    return select(total != total, NAN, bitcast(total, np.int32))
