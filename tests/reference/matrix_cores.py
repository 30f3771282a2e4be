"""What publications say that AMD's matrix cores compute, in fractions: one step of one element, written from their prose.

MI100: an exact sum, rounded to nearest. MI250X: products and pairwise sums in float32 without subnormals. MI300X: products truncated at 24
bits below the largest exponent, their sum and c cut at 32 and 24 bits below the larger exponent of both, at 31 bits of their sum, and
rounded to nearest; of 8-bit floats those of even and odd k apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

_F32 = -126  # its smallest normal exponent


def _exponent(value: Fraction) -> int:
    """That of the leading bit."""
    magnitude = abs(value)
    found = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return found if magnitude >= Fraction(2) ** found else found - 1


def _nearest(value: Fraction) -> float:
    """Ties to even; a negative number that is rounded to zero is -0."""
    if value == 0:
        return 0.0
    unit = Fraction(2) ** (max(_exponent(value), _F32) - 23)
    rounded = round(value / unit) * unit
    if abs(rounded) >= 2**128:
        return math.copysign(math.inf, value)
    return math.copysign(float(rounded), value)


def _floor(value: Fraction, unit: Fraction) -> Fraction:
    return math.floor(value / unit) * unit


def _field(value: float, smallest: int) -> int:
    """The exponent of an operand: a subnormal has that of the smallest normal number."""
    return max(_exponent(Fraction(value)), smallest) if value else smallest


def mi100(a: Sequence[float], b: Sequence[float], c: float) -> float:
    """One step of 4 or 2 products."""
    return _nearest(sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(c)))


def mi250x(a: Sequence[float], b: Sequence[float], c: float, smallest: int) -> float:
    """One step of 4 or 2 products, by float32 operations."""

    def result(value: np.float32) -> np.float32:
        return np.float32(math.copysign(0.0, value)) if abs(value) < 2.0**_F32 else value

    def operand(value: float, lowest: int) -> np.float32:
        return np.float32(0 if abs(value) < 2.0**lowest else value)

    values = [result(operand(x, smallest) * operand(y, smallest)) for x, y in zip(a, b, strict=True)]
    while len(values) > 1:
        values = [result(x + y) for x, y in zip(values[::2], values[1::2], strict=True)]
    return float(result(operand(c, _F32) + values[0]))


def _summed(products: Sequence[tuple[Fraction, int]]) -> tuple[Fraction, int]:
    """The sum of truncated products, and their largest exponent."""
    top = max((exponent for value, exponent in products if value), default=-1000)
    unit = Fraction(2) ** (top - 24)
    return sum((math.trunc(value / unit) * unit for value, _ in products), Fraction(0)), top


def mi300x(a: Sequence[float], b: Sequence[float], c: float, smallest: Sequence[int], *, apart: bool = False) -> float:
    """One step of up to 16 products; `smallest` are the exponents of the smallest normal elements of a and b."""
    products = [(Fraction(x) * Fraction(y), _field(x, smallest[0]) + _field(y, smallest[1])) for x, y in zip(a, b, strict=True)]
    if apart:
        (even, first), (odd, second) = _summed(products[::2]), _summed(products[1::2])
        top = max(first, second)
        unit = Fraction(2) ** (top - 24)
        total = _floor(even, unit) + _floor(odd, unit)
    else:
        total, top = _summed(products)
    own = _field(c, _F32)
    larger = max(top, own)
    kept = _floor(Fraction(c), Fraction(2) ** (larger - 24)) if not apart or own >= larger - 25 else Fraction(0)
    both = _floor(total, Fraction(2) ** (larger - 32)) + kept
    return _nearest(_floor(both, Fraction(2) ** (max(_exponent(both), _F32) - 31))) if both else 0.0
