"""LLVM IR for CPUs of a GPU's special function unit: ex2, rcp, rsqrt, sqrt and lg2 of float32.

The unit interpolates (Oberman and Siu, "A high-performance area-efficient multifunction interpolator", 2005): of the 17 bits x of a
fraction below the number of its segment it computes ``c0 + c1 * x + c2 * x^2``. Its squarer adds products of two bits in columns, of which
it has none below 2^19: s is the square less those, divided by 2^19.
"""

from __future__ import annotations

from functools import cache

from fastmma.kernels.functions.lookup import declare_permutation, look_up
from fastmma.kernels.functions.tables import INTERPOLATORS, Interpolator, coefficients
from fastmma.kernels.functions.unit_lanes import EXPONENTIAL, SQUARE, has_lanes, lanes, rise_body

_FRACTION = 23  # bits
_X = 17  # bits of x
_COLUMN = 19  # the lowest one of the squarer
_QUARTER = 2  # bits of a sum below those of the result
_LOW = 16  # bits of c2, which shares a word with c1


def _square() -> str:
    """Write s of x: half the square of the upper bits, and products of lower bits by the bits that reach the lowest column with them."""
    half = _COLUMN // 2
    lines = [f" %g = lshr i32 %x, {half}", " %gg = mul i32 %g, %g", " %s0 = lshr i32 %gg, 1"]
    below = range(_COLUMN - _X, half)
    for index, bit in enumerate(below):
        lines += [
            f" %b{bit} = and i32 %x, {1 << bit}",
            f" %z{bit} = icmp eq i32 %b{bit}, 0",
            f" %h{bit} = lshr i32 %x, {_COLUMN - 1 - bit}",
            f" %p{bit} = select i1 %z{bit}, i32 0, i32 %h{bit}",
            f" %s{index + 1} = add i32 %s{index}, %p{bit}",
        ]
    return "\n".join([*lines, f" ret i32 %s{len(below)}"])


def _signed(word: int) -> int:
    """The number that a word is with a sign."""
    return (word + (1 << 31)) % (1 << 32) - (1 << 31)


def _interpolator(name: str, row: Interpolator) -> str:
    """Write the table of a function, and the part of its result that c1 and c2 make, rounded down to a multiple of 2^`cut`.

    Words of the table have c2 above c1, less `row.middle`.
    """
    found = coefficients()[name]
    heads = look_up(f"{name}_heads", [_signed(c0 + (row.start << _QUARTER)) for c0, _, _ in found])
    slopes = look_up(f"{name}_slopes", [_signed(c2 << _LOW | (c1 - row.middle) % (1 << _LOW)) for _, c1, c2 in found])
    body = f""" %up = shl i32 %word, {32 - _LOW}
 %c1 = ashr i32 %up, {32 - _LOW}
 %c2 = ashr i32 %word, {_LOW}
 %s = call i32 @square_of(i32 %x)
 %upper = lshr i32 %x, {row.cut}
 %lower = and i32 %x, {(1 << row.cut) - 1}
 %a = mul i32 %c1, %upper
 %b = mul i32 %c1, %lower
 %c = mul i32 %c2, %s
 %d = add i32 %b, %c
 %e = add i32 %d, {row.bias}
 %f = ashr i32 %e, {row.cut}
 %r = add i32 %a, %f
 ret i32 %r
"""
    if has_lanes():
        body = rise_body(row.bias, row.cut)
    code = f"""{heads}{slopes}
define internal i32 @{name}_rise(i32 %segment, i32 %x) alwaysinline {{
 %word = call i32 @{name}_slopes_at(i32 %segment)
{body}}}
"""
    if not row.start:
        return code
    unit = _X + row.bits - _FRACTION  # of what the fraction has below the number of its segment, in x
    up = (abs(row.middle).bit_length() - 1) - row.grid + unit - _QUARTER  # of the same, in what the middle of c1 makes of a result
    joined = "sub" if row.middle < 0 else "add"
    if up < 0:
        end = f" %middle = shl i32 %lower, {up + _QUARTER}\n %all = {joined} i32 %sum, %middle\n %r = lshr i32 %all, {_QUARTER}\n"
    else:
        end = f" %whole = lshr i32 %sum, {_QUARTER}\n %middle = shl i32 %lower, {up}\n %r = {joined} i32 %whole, %middle\n"
    return f"""{code}
; of a fraction, above which the number of an octave and other bits may be: the code of a float32 number
define internal i32 @{name}_code(i32 %place) alwaysinline {{
 %segment = lshr i32 %place, {_FRACTION - row.bits}
 %lower = and i32 %place, {(1 << (_FRACTION - row.bits)) - 1}
 %x = shl i32 %lower, {unit}
 %rise = call i32 @{name}_rise(i32 %segment, i32 %x)
 %quarters = ashr i32 %rise, {row.grid - row.cut}
 %head = call i32 @{name}_heads_at(i32 %segment)
 %sum = add i32 %head, %quarters
{end} ret i32 %r
}}
"""


# from 128 on, and of NaN, the code is that of infinity; the lower bits of negative numbers are inverted
_CODE = """ %f = fmul float %h, 8388608.0
 %steps = fptosi float %f to i32
 %fraction = and i32 %steps, 8388607
 %some = icmp ne i32 %fraction, 0
 %sign = ashr i32 %steps, 31
 %less = select i1 %some, i32 %sign, i32 0
 %code = add i32 %steps, %less
"""
_POWER_OF_TWO = f""" %under = fcmp olt float %x, 128.0
 %h1 = select i1 %under, float %x, float 128.0
 %over = fcmp ogt float %h1, -127.0
 %h = select i1 %over, float %h1, float -127.0
{_CODE} %t = call i32 @ex2_code(i32 %code)
 %small = icmp slt i32 %code, -1056964608
 %up = and i32 %code, -8388608
 %c = add i32 %t, %up
 %r0 = bitcast i32 %c to float
 %r1 = select i1 %small, float 0.0, float %r0
 %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float %r1, float %nan
 ret float %r
"""
_FUNCTIONS = """
; 2 to the k, for k from -126 to 127
define internal float @power(i32 %k) alwaysinline {
 %e = add i32 %k, 127
 %c = shl i32 %e, 23
 %r = bitcast i32 %c to float
 ret float %r
}
define internal float @ex2_of(float %x, i1 %flush) alwaysinline {
 %tiny = fcmp olt float %x, -126.0
 %precise = xor i1 %flush, true
 %low = and i1 %tiny, %precise
 %half = fmul float %x, 0.5
 %h = select i1 %low, float %half, float %x
 %p = call float @power_of_two(float %h)
 %square = fmul float %p, %p
 %r = select i1 %low, float %square, float %p
 ret float %r
}
define internal float @rcp_of(float %x) alwaysinline {
 %c = bitcast float %x to i32
 %place = and i32 %c, 8388607
 %code = call i32 @rcp_code(i32 %place)
 %t = bitcast i32 %code to float
 %biased = lshr i32 %c, 23
 %be = and i32 %biased, 255
 %k = sub i32 127, %be
 %k1 = call i32 @llvm.smax.i32(i32 %k, i32 -126)
 %k2 = call i32 @llvm.smin.i32(i32 %k1, i32 127)
 %scale = call float @power(i32 %k2)
 %r0 = fmul float %t, %scale
 %flushed = fcmp olt float %r0, 0x3810000000000000
 %under = icmp slt i32 %k, -126
 %gone = or i1 %flushed, %under
 %r1 = select i1 %gone, float 0.0, float %r0
 %subnormal = icmp eq i32 %be, 0
 %r2 = select i1 %subnormal, float 0x7FF0000000000000, float %r1
 %r3 = call float @llvm.copysign.f32(float %r2, float %x)
 %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float %r3, float %nan
 ret float %r
}
; the place of x in tables of 1 to 2 and of 2 to 4
define internal i32 @root_place(float %x) alwaysinline {
 %c = bitcast float %x to i32
 %moved = add i32 %c, 8388608
 %r = and i32 %moved, 16777215
 ret i32 %r
}
; the root of a number whose code there is, at the ends and where it is none
define internal float @root_of(float %x, i32 %code, i1 %inverse) alwaysinline {
 %c = bitcast float %x to i32
 %biased = lshr i32 %c, 23
 %be = and i32 %biased, 255
 %e = sub i32 %be, 127
 %k0 = ashr i32 %e, 1
 %minus = sub i32 0, %k0
 %k = select i1 %inverse, i32 %minus, i32 %k0
 %up = shl i32 %k, 23
 %scaled = add i32 %code, %up
 %r0 = bitcast i32 %scaled to float
 %subnormal = icmp eq i32 %be, 0
 %zero = select i1 %inverse, float 0x7FF0000000000000, float 0.0
 %signed = call float @llvm.copysign.f32(float %zero, float %x)
 %infinite = icmp eq i32 %c, 2139095040
 %end = select i1 %inverse, float 0.0, float 0x7FF0000000000000
 %r1 = select i1 %infinite, float %end, float %r0
 %r2 = select i1 %subnormal, float %signed, float %r1
 %r = call float @if_not_negative(float %x, float %r2)
 ret float %r
}
; NaN of negative normal numbers and of NaN
define internal float @if_not_negative(float %x, float %result) alwaysinline {
 %c = bitcast float %x to i32
 %up = shl i32 %c, 1
 %normal = icmp ugt i32 %up, 16777215
 %negative = icmp slt i32 %c, 0
 %invalid = and i1 %negative, %normal
 %missing = fcmp uno float %x, 0.0
 %no = or i1 %invalid, %missing
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %no, float %nan, float %result
 ret float %r
}
; of powers of 4, whose root it knows, and of others
define internal float @rsqrt_of(float %x) alwaysinline {
 %place = call i32 @root_place(float %x)
 %found = call i32 @rsqrt_code(i32 %place)
 %known = icmp eq i32 %place, 0
 %code = select i1 %known, i32 1065353216, i32 %found
 %r = call float @root_of(float %x, i32 %code, i1 true)
 ret float %r
}
define internal float @sqrt_of(float %x) alwaysinline {
 %place = call i32 @root_place(float %x)
 %code = call i32 @sqrt_code(i32 %place)
 %r = call float @root_of(float %x, i32 %code, i1 false)
 ret float %r
}
; of x: the exponent and the logarithm of the fraction have 36 bits behind the point; negative sums are inverted, and all are cut off
define internal float @lg2_of(float %x) alwaysinline {
 %c = bitcast float %x to i32
 %biased = lshr i32 %c, 23
 %be = and i32 %biased, 255
 %e = sub i32 %be, 127
 %f = and i32 %c, 8388607
 %segment = lshr i32 %f, 17
 %low = and i32 %f, 131071
 %curve = call i32 @lg2_rise(i32 %segment, i32 %low)
 %line = shl i32 %low, 13
 %rise = add i32 %curve, %line
 %head = call i32 @lg2_heads_at(i32 %segment)
 %steps = sext i32 %rise to i64
 %start = sext i32 %head to i64
 %started = shl i64 %start, 10
 %fraction = add i64 %started, %steps
 %e64 = sext i32 %e to i64
 %whole = shl i64 %e64, 36
 %sum = add i64 %whole, %fraction
 %below = icmp slt i64 %sum, 0
 %inverted = xor i64 %sum, -1
 %m = select i1 %below, i64 %inverted, i64 %sum
 %d0 = or i64 %m, 4841369599423283200
 %d1 = bitcast i64 %d0 to double
 %d2 = fsub double %d1, 0x4330000000000000
 %d3 = bitcast double %d2 to i64
 %d4 = and i64 %d3, -536870912
 %d5 = bitcast i64 %d4 to double
 %d6 = fmul double %d5, 0x3DB0000000000000
 %t = fptrunc double %d6 to float
 %minus = fneg float %t
 %r0 = select i1 %below, float %minus, float %t
 %one = icmp eq i32 %c, 1065353216
 %r1 = select i1 %one, float 0.0, float %r0
 %infinite = icmp eq i32 %c, 2139095040
 %r2 = select i1 %infinite, float 0x7FF0000000000000, float %r1
 %subnormal = icmp eq i32 %be, 0
 %r3 = select i1 %subnormal, float 0xFFF0000000000000, float %r2
 %r = call float @if_not_negative(float %x, float %r3)
 ret float %r
}
; a subnormal x is multiplied by 2^24 first
define internal float @scaled_up(float %x) alwaysinline {
 %m = call float @llvm.fabs.f32(float %x)
 %small = fcmp olt float %m, 0x3810000000000000
 %more = fmul float %x, 16777216.0
 %r = select i1 %small, float %more, float %x
 ret float %r
}
define internal i1 @is_small(float %x) alwaysinline {
 %m = call float @llvm.fabs.f32(float %x)
 %r = fcmp olt float %m, 0x3810000000000000
 ret i1 %r
}
"""


def _power_of_two() -> str:
    """Write 2 to a power, zero where it is below 2^-126; of 16 lanes, codes count from the places of fractions in their octaves."""
    begin = "define internal float @power_of_two(float %x) alwaysinline {\n"
    if not has_lanes():
        return f"{begin}{_POWER_OF_TWO}}}\n"
    row = INTERPOLATORS["ex2"]
    bits = _FRACTION - row.bits
    starts = [
        _signed(c0 + (row.start << _QUARTER) - (segment << bits + _QUARTER)) for segment, (c0, _, _) in enumerate(coefficients()["ex2"])
    ]
    return f"""{look_up("ex2_starts", starts)}
; of steps of 2^-23: the code of 2 to so many. The upper 2 of 17 bits of a fraction are multiplied apart
define internal i32 @power_code(i32 %code) alwaysinline {{
 %segment = lshr i32 %code, {bits}
 %x = shl i32 %code, {32 - bits}
 %d0 = call i32 @top_square_start(i32 %x)
 %d1 = call i32 @top_square_upper(i32 %d0, i32 %x)
 %d2 = call i32 @top_square_lower(i32 %d1, i32 %x)
 %s = shl i32 %d2, 16
 %low = and i32 %code, 32767
 %both = or i32 %s, %low
 %word = call i32 @ex2_slopes_at(i32 %segment)
 %e = call i32 @add_pairs(i32 {row.bias}, i32 %word, i32 %both)
 %quarters = ashr i32 %e, {row.grid}
 %start = call i32 @ex2_starts_at(i32 %segment)
 %sum = add i32 %start, %quarters
 %whole = lshr i32 %sum, {_QUARTER}
 %top = lshr i32 %x, 30
 %rise = call i32 @add_pairs(i32 %whole, i32 %word, i32 %top)
 %r = add i32 %rise, %code
 ret i32 %r
}}
{begin} %h = call float @within_128(float %x)
{_CODE} %c = call i32 @power_code(i32 %code)
 %normal = fcmp oge float %x, -126.0
 %nan = call float @zero_unless_nan(float %x)
 %other = bitcast float %nan to i32
 %all = select i1 %normal, i32 %c, i32 %other
 %r = bitcast i32 %all to float
 ret float %r
}}
{EXPONENTIAL}"""


@cache
def special_functions() -> str:
    """Write ``ex2_of``, ``rcp_of``, ``rsqrt_of``, ``sqrt_of``, ``lg2_of`` and what they call."""
    steps, square = (lanes(), SQUARE) if has_lanes() else ("", f"{_square()}\n")
    before = f"{steps}define internal i32 @square_of(i32 %x) alwaysinline {{\n{square}}}\n"
    rows = "".join(_interpolator(name, row) for name, row in INTERPOLATORS.items())
    return declare_permutation() + before + rows + _power_of_two() + _FUNCTIONS
