"""Quantisation in exact integers, one element at a time: the definitions, typed independently of the package's tables and kernels.

OCP Microscaling Formats 1.0, 5.3 (formats) and 6.3 (conversion); PTX's cvt.rp.satfinite.ue8m0x2.f32; the operations of TransformerEngine's
core_nvfp4.cuh, of torchao 0.18's nvfp4_quantize and of DeepGEMM's math.py.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from reference.ieee import rounded

NAN = float("nan")
INF = float("inf")


class Element(NamedTuple):
    """Bits of exponent and mantissa, bias, the largest number, the code of NaN (0 where the format has none)."""

    exponent: int
    mantissa: int
    bias: int
    largest: Fraction
    nan: int

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def top(self) -> int:
        """The exponent of the largest number."""
        return power_below(self.largest)


ELEMENTS = {
    "e4m3": Element(4, 3, 7, Fraction(448), 0x7F),
    "e5m2": Element(5, 2, 15, Fraction(57344), 0x7E),
    "e3m2": Element(3, 2, 3, Fraction(28), 0),
    "e2m3": Element(2, 3, 1, Fraction(15, 2), 0),
    "e2m1": Element(2, 1, 1, Fraction(6), 0),
    "e4m3fnuz": Element(4, 3, 8, Fraction(240), 0x80),
    "e5m2fnuz": Element(5, 2, 16, Fraction(57344), 0x80),
}


def power_below(value: Fraction) -> int:
    """floor(log2(value))."""
    power = value.numerator.bit_length() - value.denominator.bit_length()
    return power if Fraction(2) ** power <= value else power - 1


def power_above(value: Fraction) -> int:
    """ceil(log2(value))."""
    power = power_below(value)
    return power if Fraction(2) ** power == value else power + 1


@cache
def magnitudes(name: str) -> list[Fraction]:
    """The numbers of the codes from 0 on, without sign."""
    if name == "s8":
        return [Fraction(code) for code in range(128)]
    e = ELEMENTS[name]
    values = []
    for code in range(e.sign):
        field, fraction = divmod(code, 1 << e.mantissa)
        significand = Fraction(fraction, 1 << e.mantissa) + (field > 0)
        values.append(significand * Fraction(2) ** (max(field, 1) - e.bias))
    return [value for value in values if value <= e.largest]


@cache
def _whole_magnitudes(name: str) -> tuple[list[int], int]:
    """The same numbers as integers of a power of two, and that power."""
    last = min(-(value.denominator.bit_length() - 1) for value in magnitudes(name))
    return [int(value * Fraction(2) ** -last) for value in magnitudes(name)], last


def code_of(value: float, name: str, rounding: str = "nearest", random: int = 0, power: int = 0) -> int:
    """The code of ``value * 2**-power``; `random` in [0, 2**64) decides the stochastic rounding."""
    if math.isnan(value):
        return 0 if name == "s8" else ELEMENTS[name].nan
    negative = math.copysign(1, value) < 0
    grid, last = _whole_magnitudes(name)
    code = len(grid) - 1
    if not math.isinf(value):
        numerator, denominator = ratio(abs(value), -power - last)
        code = bisect_right(grid, numerator // denominator) - 1
        if code < len(grid) - 1:
            above, gap = numerator - grid[code] * denominator, (grid[code + 1] - grid[code]) * denominator
            code += {
                "nearest": 2 * above > gap or (2 * above == gap and code % 2 == 1),
                "zero": False,
                "stochastic": (above << 64) + random * gap >= gap << 64,
            }[rounding]
    if name == "s8":
        return -code & 0xFF if negative else code
    has_negative_zero = ELEMENTS[name].nan != ELEMENTS[name].sign
    return code | (ELEMENTS[name].sign if negative and (code or has_negative_zero) else 0)


def ratio(value: float, power: int = 0) -> tuple[int, int]:
    """A finite ``value * 2**power`` as a fraction, not reduced."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << max(power, 0), denominator << max(-power, 0)


def splitmix64(seed: int, index: int) -> int:
    """Output number `index` (from 0) of the generator of Steele, Lea and Flood with this seed."""
    mask = (1 << 64) - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def rounded_up_to_mantissa(value: Fraction, bits: int) -> Fraction:
    """A number rounded to so many mantissa bits, ties up."""
    unit = Fraction(2) ** (power_below(value) - bits)
    return (value / unit + Fraction(1, 2)).__floor__() * unit


MX_RULES: dict[str, Callable[[Fraction, Element], int]] = {
    "floor": lambda amax, e: power_below(amax) - e.top,
    "ceil": lambda amax, e: power_above(amax) - e.top,
    "rceil": lambda amax, e: power_above(amax / e.largest),
    "even": lambda amax, e: power_below(rounded_up_to_mantissa(amax, e.mantissa)) - e.top,
}


def mx_scale(block: list[float], name: str, rule: str) -> int:
    """The e8m0 code of the scale of a block."""
    if any(math.isnan(x) for x in block):
        return 0xFF
    if any(math.isinf(x) for x in block):
        return 0xFE if rule == "rceil" else 0xFF
    amax = Fraction(max(abs(x) for x in block))
    return 0 if amax == 0 else min(max(MX_RULES[rule](amax, ELEMENTS[name]) + 127, 0), 254)


def mx_element(x: float, scale: int, name: str, rounding: str = "nearest", random: int = 0) -> int:
    """The code of an element in a block of this scale."""
    if scale == 0xFF or math.isnan(x):
        return ELEMENTS[name].nan
    return code_of(x, name, rounding, random, scale - 127)


class Float:
    """IEEE arithmetic of a precision, round to nearest even, on Python floats; subnormals and overflow included."""

    def __init__(self, mantissa: int, lowest: int, highest: int) -> None:
        self.mantissa, self.lowest, self.highest = mantissa, lowest, highest

    def round(self, numerator: int, denominator: int) -> float:
        """The number next to a fraction, whose denominator is positive; zero is positive if the fraction is zero."""
        return rounded(numerator, denominator, (self.mantissa, self.lowest, self.highest))

    def mul(self, a: float, b: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)) or 0 in (a, b):
            return a * b
        (x, below_x), (y, below_y) = ratio(a), ratio(b)
        return self.round(x * y, below_x * below_y)

    def div(self, a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
            return NAN
        sign = math.copysign(1, a) * math.copysign(1, b)
        if b == 0 or math.isinf(a):
            return sign * INF
        if a == 0 or math.isinf(b):
            return sign * 0.0
        (x, below_x), (y, below_y) = ratio(abs(a)), ratio(abs(b))
        return self.round(int(sign) * x * below_y, below_x * y)


F32 = Float(23, -126, 127)
F64 = Float(52, -1022, 1023)
TOP = 3.4028234663852886e38
TINY = 2.0**-149


def to_f32(value: float) -> float:
    return value if value == 0 or not math.isfinite(value) else F32.round(*ratio(value))


def amax_of(block: list[float]) -> float:
    return NAN if any(math.isnan(x) for x in block) else max(abs(x) for x in block)


def held(scale: float, amax: float) -> float:
    """A float32 scale that is not 0 and not infinite unless amax is; 1 for zeros."""
    if amax == 0:
        return 1.0
    return scale if not math.isfinite(amax) else min(max(scale, TINY), TOP)


def float_block(block: list[float], name: str, rule: str, p: Float) -> tuple[float, Callable[[float], float]]:
    """The float32 scale of a block, and what its elements are before they are rounded."""
    largest = 127.0 if name == "s8" else float(ELEMENTS[name].largest)
    amax = amax_of(block)
    if rule == "amax":
        scale = held(to_f32(p.div(amax, largest)), amax)
        return scale, lambda x: p.div(x, scale)
    if rule == "deepgemm":
        amax = amax if math.isnan(amax) else max(amax, float.fromhex("0x1.a36e2ep-14"))  # 1e-4 in float32
        scale = held(to_f32(p.div(amax, largest)), amax)
        factor = p.div(1.0, scale)
        return scale, lambda x: p.mul(x, factor)
    if not math.isfinite(amax) or amax == 0:
        return 1.0, lambda x: x
    encode = min(p.div(largest, amax), TOP)
    return held(to_f32(p.div(1.0, encode)), amax), lambda x: p.mul(x, encode)


def nvfp4_global(values: list[float], rule: str, p: Float) -> float:
    """The global scale ("te": the encoding one)."""
    amax = amax_of(values)
    if rule != "te":
        return held(to_f32(p.div(amax, 6 * 448.0)), amax)
    encode = p.div(6 * 448.0, amax)
    encode = encode if math.isnan(encode) else min(encode, TOP)
    return 1.0 if amax == 0 or encode == 0 else encode


def nvfp4_block(block: list[float], overall: float, rule: str, p: Float) -> tuple[int, Callable[[float], float]]:
    """The e4m3 code of the scale of a block, and what its elements are before they are rounded."""
    amax = amax_of(block)
    if rule == "te":
        wanted = p.mul(amax, p.mul(overall, p.div(1.0, 6.0)))
        code = code_of(wanted, "e4m3")
        divisor = p.mul(number(code), p.div(1.0, overall))
        factor = p.div(1.0, divisor)
        factor = factor if math.isnan(factor) else min(factor, TOP)
        return code, lambda x: p.mul(x, factor)
    wanted = p.div(p.div(amax, 6.0), overall)
    if rule == "torchao":
        code = code_of(wanted if math.isnan(wanted) else max(wanted, 2.0**-6), "e4m3")
        factor = p.div(p.div(1.0, overall), number(code))
        return code, lambda x: p.mul(x, factor)
    code = code_of(wanted, "e4m3")
    product = p.mul(number(code), overall)
    return code, lambda x: math.copysign(0.0, x) if code == 0 else p.div(x, product if math.isnan(product) else max(product, TINY))


def number(code: int) -> float:
    """The number of a code of e4m3 without sign."""
    return NAN if code == 0x7F else float(magnitudes("e4m3")[code])
