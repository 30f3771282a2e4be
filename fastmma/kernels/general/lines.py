"""Operands of the general kernels: significands and exponents of codes, scales multiplied in."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.params import Element, Specials

Codes = NDArray[np.unsignedinteger]

ZERO = -4096  # exponent of a zero: below every floor
FINITE, PLUS, MINUS, NAN = range(4)  # kinds of elements: finite, either infinity, NaN


class Lines(NamedTuple):
    """Decoded elements: ``significand * 2**(exponent - offset)``, or of a `fixed` one ``significand * 2**base``.

    Zeros have the exponent `ZERO`; what is not finite has a significand of zero, and its kind.
    """

    significands: NDArray[np.int32]
    exponents: NDArray[np.int32]
    bases: NDArray[np.int32]
    kinds: NDArray[np.uint8]


@lru_cache(256)
def _tables(element: Element) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Significands, exponents and kinds of all codes, without padding."""
    codes = np.arange(1 << (element.exponent_bits + element.mantissa_bits + 1))
    if element.specials == Specials.POWERS_OF_TWO:
        codes = np.arange(256)
        return np.ones(256, np.int32), (codes - element.bias).astype(np.int32), np.where(codes == 255, NAN, FINITE).astype(np.uint8)
    width = element.exponent_bits + element.mantissa_bits
    magnitude, negative = codes & ((1 << width) - 1), codes >> width & 1
    field = magnitude >> element.mantissa_bits
    significand = (magnitude & ((1 << element.mantissa_bits) - 1)) + (np.minimum(field, 1) << element.mantissa_bits)
    exponent = np.where(magnitude == 0, ZERO, np.maximum(field, 1) - element.bias)
    special = magnitude >= element.first_special
    infinite = special & (element.specials == Specials.IEEE) & (magnitude == element.first_special)
    kind = np.where(infinite, PLUS + negative, np.where(special, NAN, FINITE))
    significand = np.where(special, 0, np.where(negative, -significand, significand))
    return significand.astype(np.int32), np.where(special, ZERO, exponent).astype(np.int32), kind.astype(np.uint8)


def decoded(element: Element, codes: Codes, fixed: bool) -> Lines:
    """Elements without scales; `fixed`: with one base for all."""
    width = element.exponent_bits + element.mantissa_bits + 1
    significands, exponents, kinds = _tables(element)
    places = (codes >> np.uint8(element.shift)) & codes.dtype.type((1 << min(width, 8 * codes.itemsize)) - 1)
    found = Lines(significands.take(places), exponents.take(places), np.zeros((1, 1, 1), np.int32), kinds.take(places))
    if not fixed:
        return found
    lowest = 1 - element.bias
    wide = found.significands << np.maximum(found.exponents - lowest, 0)
    return found._replace(significands=wide, bases=np.full(codes.shape, lowest - element.mantissa_bits, np.int32))


def scaled(lines: Lines, scale: Element, codes: Codes, by_scales: bool) -> Lines:
    """The same times scales, one code an element; `by_scales`: with the exponents of these alone."""
    _, exponents, kinds = _tables(scale)
    significands = np.abs(_tables(scale)[0])  # scales have no sign
    at = codes & np.uint8((1 << (scale.exponent_bits + scale.mantissa_bits)) - 1 if scale.specials != Specials.POWERS_OF_TWO else 0xFF)
    nan, zero = kinds.take(at) == NAN, significands.take(at) == 0
    exponent = np.where(zero, 0, exponents.take(at))
    own = np.where((lines.exponents == ZERO) | zero | nan, ZERO, exponent if by_scales else lines.exponents + exponent)
    bases = lines.bases + exponent - scale.mantissa_bits if lines.bases.size == lines.exponents.size else lines.bases
    values = lines.significands * significands.take(at)
    return Lines(
        np.where(nan, 0, values).astype(np.int32),
        own.astype(np.int32),
        bases.astype(np.int32),
        np.where(nan, NAN, lines.kinds).astype(np.uint8),
    )
