"""IEEE operations by definition: the exact result as a fraction, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

# fraction bits, exponents of normal numbers
FORMATS = {"f64": (52, -1022, 1023), "f32": (23, -126, 127), "bf16": (7, -126, 127), "f16": (10, -14, 15)}


def rounded(numerator: int, denominator: int, fmt: tuple[int, int, int], rounding: str = "rn") -> float:
    """A fraction, whose denominator is positive, as a number of a format; zero is +0, and overflow what the rounding makes of it."""
    if numerator == 0:
        return 0.0
    bits, emin, emax = fmt
    size, sign = abs(numerator), 1.0 if numerator > 0 else -1.0
    binade = size.bit_length() - denominator.bit_length()
    binade -= size << max(-binade, 0) < denominator << max(binade, 0)
    last = max(binade, emin) - bits
    unit = denominator << max(last, 0)
    steps, rest = divmod(size << max(-last, 0), unit)
    away = {"rz": False, "rm": sign < 0, "rp": sign > 0}.get(rounding, 2 * rest > unit or (2 * rest == unit and steps % 2 == 1))
    steps += away and rest > 0
    if steps.bit_length() + last <= emax + 1:
        return sign * math.ldexp(steps, last)
    return sign * (math.inf if away or rounding == "rn" else math.ldexp((2 << bits) - 1, emax - bits))


def nearest(value: Fraction | float, fmt: str = "f32") -> float:
    """A finite value rounded to a format, ties to even."""
    return rounded(*value.as_integer_ratio(), FORMATS[fmt])


def times(x: float, y: float, fmt: str = "f32") -> float:
    """The product, rounded."""
    return nearest(Fraction(x) * Fraction(y), fmt)


def plus(x: float, y: float, fmt: str = "f32") -> float:
    """The sum, rounded."""
    return nearest(Fraction(x) + Fraction(y), fmt)


def fused(x: float, y: float, z: float) -> float:
    """``x * y + z``, rounded once to f32."""
    return nearest(Fraction(x) * Fraction(y) + Fraction(z))
