"""LLVM IR of ``tanh.approx.f32``: a quadratic interpolation in 1 to 16 parts of each octave from 2^-8 to 8.

Below, a number is its own result, and from 8 on the result is 1. 17 bits of the fraction below the number of the part count; their square
is without low columns (`fastmma.kernels.functions.unit`). The sum is cut off to a significand of 24 bits. The coefficients are the only
ones, in their units, with which 64,000 to a million results of an H100 in each octave agree; with them all 2^32 results of an H100 and of
an H200 do, by checksums.
"""

from __future__ import annotations

import math
from itertools import accumulate

from fastmma.kernels.functions.tables import coefficients

_FIRST = 119  # exponent field of the first octave
# of an octave: bits of a fraction that tell its part, and the unit of c1 and c2, as a power of 1/2; that of c0 is 2^15 times as large
_OCTAVES = ((0, 41), (0, 40), (0, 39), (1, 39), (1, 38), (2, 38), (2, 37), (2, 36), (3, 37), (4, 39), (3, 41))
_HEAD_BITS = 15


def _array(name: str, numbers: list[float]) -> str:
    return f"@{name} = internal constant [{len(numbers)} x double] [{', '.join(f'double {number!r}' for number in numbers)}]\n"


def _coefficient(name: str) -> str:
    return f" %p.{name} = getelementptr double, ptr @tanh_{name}, i64 %part64\n %{name} = load double, ptr %p.{name}"


def tangents() -> str:
    """Write ``tanh_of``."""
    units = [unit for bits, unit in _OCTAVES for _ in range(1 << bits)]
    found = coefficients()["tanh"]
    values = [math.ldexp(c0, _HEAD_BITS - unit) for (c0, _, _), unit in zip(found, units, strict=True)]
    slopes = [math.ldexp(c1, -unit) for (_, c1, _), unit in zip(found, units, strict=True)]
    curves = [math.ldexp(c2, -unit) for (_, _, c2), unit in zip(found, units, strict=True)]
    firsts = accumulate((1 << bits for bits, _ in _OCTAVES), initial=0)
    octaves = [bits << 8 | first for (bits, _), first in zip(_OCTAVES, firsts, strict=False)]
    return (
        _array("tanh_values", values)
        + _array("tanh_slopes", slopes)
        + _array("tanh_curves", curves)
        + f"""
@tanh_octaves = internal constant [{len(octaves)} x i32] [{", ".join(f"i32 {octave}" for octave in octaves)}]
define internal float @tanh_of(float %x) alwaysinline {{
 %size = call float @llvm.fabs.f32(float %x)
 %c = bitcast float %size to i32
 %field = lshr i32 %c, 23
 %above = sub i32 %field, {_FIRST}
 %least = call i32 @llvm.smax.i32(i32 %above, i32 0)
 %octave = call i32 @llvm.smin.i32(i32 %least, i32 {len(octaves) - 1})
 %octave64 = zext i32 %octave to i64
 %place = getelementptr i32, ptr @tanh_octaves, i64 %octave64
 %word = load i32, ptr %place
 %bits = lshr i32 %word, 8
 %first = and i32 %word, 255
 %fraction = and i32 %c, 8388607
 %upper = sub i32 23, %bits
 %segment = lshr i32 %fraction, %upper
 %part = add i32 %first, %segment
 %part64 = zext i32 %part to i64
 %lower = sub i32 6, %bits
 %moved = lshr i32 %fraction, %lower
 %rest = and i32 %moved, 131071
 %offset = sitofp i32 %rest to double
 %folded = call i32 @square_of(i32 %rest)
 %square = sitofp i32 %folded to double
{_coefficient("values")}
{_coefficient("slopes")}
{_coefficient("curves")}
 %rise = fmul double %slopes, %offset
 %bend = fmul double %curves, %square
 %line = fadd double %values, %rise
 %sum = fadd double %line, %bend
 %cut = call double @cut_to_float(double %sum)
 %t = fptrunc double %cut to float
 %within = fcmp olt float %t, 1.0
 %inside = fcmp olt float %size, 8.0
 %both = and i1 %within, %inside
 %u = select i1 %both, float %t, float 1.0
 %small = icmp slt i32 %above, 0
 %v = select i1 %small, float %size, float %u
 %signed = call float @llvm.copysign.f32(float %v, float %x)
 %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float %signed, float %nan
 ret float %r
}}
"""
    )


# by NVVM's name: the argument, and the body
TANGENT_DEFINITIONS = {"tanh.approx.f": ("x", " %r = call float @tanh_of(float %x)")}
