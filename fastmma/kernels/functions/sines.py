"""LLVM IR of ``sin.approx.f32`` and ``cos.approx.f32``: a quadratic interpolation in 64 parts of a quarter of a turn.

The argument, times 1/2pi as float32, is cut off to 24 bits, and then to multiples of 2^-25 of a turn; in the second and the fourth quarter
the bits of the rest are inverted. The square of the place within a part is a folded one, without its lowest columns. What the parts add
to is an integer, in 2^-37; its first 24 bits are the result. The coefficients are the only integers with which 2^22 results of an H200
agree; with them all 2^32 results of both functions do.
"""

from __future__ import annotations

import numpy as np

_VALUES = """
0 823463 1646436 2468414 3288906 4107418 4923453 5736526 6546141 7351816 8153060 8949394 9740335 10525413 11304145 12076070
12840725 13597643 14346367 15086452 15817450 16538916 17250422 17951542 18641840 19320916 19988350 20643746 21286703 21916841
22533776 23137138 23726565 24301698 24862194 25407711 25937924 26452518 26951170 27433593 27899488 28348583 28780594 29195273
29592364 29971632 30332846 30675788 31000253 31306042 31592974 31860879 32109590 32338961 32548845 32739132 32909694 33060432
33191257 33302087 33392857 33463517 33514014 33544326
"""
_SLOPES = """
25737 25730 25706 25668 25613 25544 25459 25358 25243 25112 24966 24805 24629 24438 24233 24013 23778 23529 23266 22989 22698
22394 22076 21744 21400 21042 20672 20290 19895 19489 19070 18640 18199 17747 17284 16811 16328 15834 15332 14820 14299 13769
13232 12686 12133 11572 11004 10430 9849 9263 8671 8073 7471 6864 6254 5639 5021 4400 3776 3151 2523 1893 1263 632
"""
_CURVES = """
14 48 76 110 137 171 201 229 262 292 322 352 381 410 441 470 497 525 553 581 608 637 664 688 715 738 763 790 812 839 859 881 904
926 946 967 988 1004 1025 1043 1059 1074 1093 1107 1123 1136 1148 1162 1172 1185 1196 1203 1213 1220 1230 1236 1242 1247 1250
1258 1260 1260 1263 1265
"""
_VALUE_UNIT, _UNIT = 4096.0, float.fromhex("0x1p-37")
_COLUMNS = range(2, 9)  # of the folded square, beside the square of the upper bits


def _array(name: str, numbers: str, unit: float = 1.0) -> str:
    entries = ", ".join(f"double {float(number) * unit}" for number in numbers.split())
    return f"@{name} = internal constant [{len(numbers.split())} x double] [{entries}]\n"


def _square() -> str:
    """Write what is added to half the square of the upper bits."""
    lines, total = [" %upper = lshr i32 %x, 9\n %all = mul i32 %upper, %upper\n %s1 = lshr i32 %all, 1"], "%s1"
    for column in _COLUMNS:
        lines.append(f" %b{column} = lshr i32 %x, {column}\n %o{column} = and i32 %b{column}, 1\n %n{column} = sub i32 0, %o{column}")
        lines.append(f" %h{column} = lshr i32 %x, {18 - column}\n %a{column} = and i32 %h{column}, %n{column}")
        lines.append(f" %s{column} = add i32 {total}, %a{column}")
        total = f"%s{column}"
    return "\n".join([*lines, f" %square = sitofp i32 {total} to double"])


def _coefficient(name: str) -> str:
    return f" %p.{name} = getelementptr double, ptr @sine_{name}, i64 %part64\n %{name} = load double, ptr %p.{name}"


SINES = (
    _array("sine_values", _VALUES, _VALUE_UNIT)
    + _array("sine_slopes", _SLOPES)
    + _array("sine_curves", _CURVES)
    + f"""
define internal double @cut_to_float(double %x) alwaysinline {{
 %b = bitcast double %x to i64
 %m = and i64 %b, -536870912
 %r = bitcast i64 %m to double
 ret double %r
}}
; the sine of an argument and some quarters of a turn, without the argument's sign
define internal float @sine_of(float %argument, i32 %quarters, i32 %sign) alwaysinline {{
 %size = call float @llvm.fabs.f32(float %argument)
 %wide = fpext float %size to double
 %product = fmul double %wide, {float(np.float32(0.15915494))!r}
 %turns = call double @cut_to_float(double %product)
 %whole = call double @llvm.floor.f64(double %turns)
 %rest = fsub double %turns, %whole
 %finite = fcmp olt float %size, 0x7FF0000000000000
 %known = select i1 %finite, double %rest, double 0.0
 %scaled = fmul double %known, {2.0**25}
 %steps = fptosi double %scaled to i32
 %turned = add i32 %steps, %quarters
 %odd = shl i32 %turned, 8
 %inverted = ashr i32 %odd, 31
 %mirrored = xor i32 %turned, %inverted
 %phase = and i32 %mirrored, 8388607
 %part = lshr i32 %phase, 17
 %part64 = zext i32 %part to i64
 %x = and i32 %phase, 131071
 %place = sitofp i32 %x to double
{_square()}
{_coefficient("values")}
{_coefficient("slopes")}
{_coefficient("curves")}
 %rise = fmul double %slopes, %place
 %bend = fmul double %curves, %square
 %line = fadd double %values, %rise
 %sum = fsub double %line, %bend
 %cut = call double @cut_to_float(double %sum)
 %value = fmul double %cut, {_UNIT}
 %short = fptrunc double %value to float
 %c = bitcast float %short to i32
 %half = shl i32 %turned, 7
 %minus = xor i32 %half, %sign
 %bit = and i32 %minus, -2147483648
 %signed = or i32 %c, %bit
 %chosen = select i1 %finite, i32 %signed, i32 2147483647
 %r = bitcast i32 %chosen to float
 ret float %r
}}
"""
)
# by NVVM's name: the argument, and the body
SINE_DEFINITIONS = {
    "sin.approx.f": ("x", " %c = bitcast float %x to i32\n %r = call float @sine_of(float %x, i32 0, i32 %c)"),
    "cos.approx.f": ("x", " %r = call float @sine_of(float %x, i32 8388608, i32 0)"),
}
