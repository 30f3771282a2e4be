"""Exact matrix products in float64: how many slices they take, and when one float64 product is exact as it is.

A float64 sum of products is exact, whatever the order in which BLAS adds, when every product and every partial sum is a multiple of one
power of two and below 2**53 times it. Elements with few significand bits make it so, unless their exponents are spread too wide: then the
operands are cut into slices of fewer bits (Ozaki, Ogita, Oishi and Rump, 2012), every product of two slices is exact, and their sum is
rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
_BITS = 53
_MOST_PRODUCTS = 9
_LOWEST, _HIGHEST = -1074, 1023  # exponents of the least subnormal and of the largest power of two of float64


class ExactProduct(NamedTuple):
    """A product and whether it is exact up to one rounding to float64 (within 2**-52 of each result, relatively)."""

    values: Values
    exact: bool


class Span(NamedTuple):
    """All finite values are multiples of ``2 ** low`` and below ``2 ** high`` in magnitude."""

    low: int
    high: int

    @property
    def bits(self) -> int:
        """Bits of the integers that the values are, in units of ``2 ** low``."""
        return self.high - self.low


def span(values: Values, significand_bits: int) -> Span | None:
    """Return where the bits of the values lie; None if one is infinite or NaN.

    Parameters
    ----------
    values : float64 array
    significand_bits : int
        That every value fits into (53 always holds).

    Examples
    --------
    >>> span(np.array([0.0, 1.5, -8.0]), 2)
    Span(low=-1, high=4)
    """
    magnitude = np.abs(values)
    largest = float(magnitude.max(initial=0.0))
    if not np.isfinite(largest):
        return None
    smallest = float(magnitude.min(initial=np.inf, where=magnitude > 0))
    if largest == 0.0:
        return Span(0, 0)
    high, low = int(np.frexp(largest)[1]), int(np.frexp(smallest)[1]) - significand_bits
    return Span(low, high)


def _slices(values: Values, where: Span, count: int) -> list[Values]:
    """The values cut into that many summands, each of ``ceil(bits / count)`` bits at most."""
    width = max(1, -(-where.bits // count))
    rest, parts = values, []
    for low in range(where.high - width, where.low, -width):
        unit = np.ldexp(1.0, low)
        high = np.trunc(rest / unit) * unit
        parts.append(high)
        rest = rest - high
    return [*parts, rest]


def _cuts(a: Span, b: Span, depth: int) -> tuple[int, int] | None:
    """The fewest slices of A and of B whose products are exact sums; None if that takes too many products."""
    carry = max(depth - 1, 0).bit_length()
    if a.low + b.low < _LOWEST or a.high + b.high + carry > _HIGHEST:
        return None
    options = [
        (i * j, i, j)
        for i in range(1, _MOST_PRODUCTS + 1)
        for j in range(1, _MOST_PRODUCTS // i + 1)
        if -(-a.bits // i) + -(-b.bits // j) + carry <= _BITS
    ]
    return min(options)[1:] if options else None


def _total(terms: list[Values]) -> Values:
    """Their sum, as if added with twice the precision and rounded once."""
    total, error = terms[0], np.zeros_like(terms[0])
    for term in terms[1:]:
        new = total + term
        back = new - total
        error += (total - (new - back)) + (term - back)
        total = new
    return np.asarray(total + error)


def product(a: Values, b: Values, significand_bits: tuple[int, int] = (_BITS, _BITS)) -> ExactProduct:
    """``a @ b``, exact up to one rounding where at most nine float64 products make it so, else one float64 product.

    Parameters
    ----------
    a, b : float64 arrays (M, K) and (K, N)
    significand_bits : (int, int)
        That every element of A, and of B, fits into.

    Returns
    -------
    ExactProduct
        If it is not exact, its error is below ``K * 2**-53`` times the product of the magnitudes. It is not exact if an operand holds
        infinities or NaN, which then spread as IEEE says.

    Examples
    --------
    >>> tiny = product(np.array([[2.0**60, 1.0, -(2.0**60)]]), np.ones((3, 1)), (1, 1))
    >>> tiny.values.item(), tiny.exact
    (1.0, True)
    """
    spans = span(a, significand_bits[0]), span(b, significand_bits[1])
    cuts = None if spans[0] is None or spans[1] is None else _cuts(spans[0], spans[1], a.shape[1])
    if cuts is None or spans[0] is None or spans[1] is None:
        with np.errstate(all="ignore"):
            return ExactProduct(a @ b, exact=False)
    left, right = _slices(a, spans[0], cuts[0]), _slices(b, spans[1], cuts[1])
    return ExactProduct(_total([x @ y for x in left for y in right]), exact=True)
