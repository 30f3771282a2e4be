"""IEEE operations by definition: the exact result as a fraction, rounded once to the nearest value of a format, ties to even."""

from __future__ import annotations

from fractions import Fraction

FORMATS = {"f32": (23, -126, 127), "bf16": (7, -126, 127), "f16": (10, -14, 15)}  # fraction bits, exponents of normal numbers


def nearest(value: Fraction | float, fmt: str = "f32") -> float:
    """A finite value rounded to a format; beyond it, infinity. A zero is +0."""
    value = Fraction(value)
    if value == 0:
        return 0.0
    bits, emin, emax = FORMATS[fmt]
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, emin) - bits)
    result = round(magnitude / quantum) * quantum  # Python rounds a tie to even
    size = float("inf") if result >= 2 ** (emax + 1) else float(result)
    return -size if value < 0 else size


def times(x: float, y: float, fmt: str = "f32") -> float:
    """The product, rounded."""
    return nearest(Fraction(x) * Fraction(y), fmt)


def plus(x: float, y: float, fmt: str = "f32") -> float:
    """The sum, rounded."""
    return nearest(Fraction(x) + Fraction(y), fmt)


def fused(x: float, y: float, z: float) -> float:
    """``x * y + z``, rounded once to f32."""
    return nearest(Fraction(x) * Fraction(y) + Fraction(z))
