"""Operands of the general kernels: significands and exponents of codes, scales multiplied in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.decode.tables import NAN, ZERO, table_of
from fastmma.kernels.params import Element, Specials

Codes = NDArray[np.unsignedinteger]


class DecodedLines(NamedTuple):
    """Decoded elements: ``significand * 2**(exponent - offset)``, or of a `fixed` one ``significand * 2**base``.

    Zeros have the exponent `ZERO`; what is not finite has a significand of zero, and its kind.
    """

    significands: NDArray[np.int32]
    exponents: NDArray[np.int32]
    bases: NDArray[np.int32]
    kinds: NDArray[np.uint8]


def decoded(element: Element, codes: Codes, fixed: bool) -> DecodedLines:
    """Elements without scales; `fixed`: with one base for all."""
    width = element.exponent_bits + element.mantissa_bits + 1
    significands, exponents, kinds = table_of(element)
    places = (codes >> np.uint8(element.shift)) & codes.dtype.type((1 << min(width, 8 * codes.itemsize)) - 1)
    found = DecodedLines(significands.take(places), exponents.take(places), np.zeros((1, 1, 1), np.int32), kinds.take(places))
    if not fixed:
        return found
    lowest = 1 - element.bias
    wide = found.significands << np.maximum(found.exponents - lowest, 0)
    return found._replace(significands=wide, bases=np.full(codes.shape, lowest - element.mantissa_bits, np.int32))


def scaled(lines: DecodedLines, scale: Element, codes: Codes, by_scales: bool) -> DecodedLines:
    """The same times scales, one code an element; `by_scales`: with the exponents of these alone."""
    found, exponents, kinds = table_of(scale)
    significands = np.abs(found)  # scales have no sign
    at = codes & np.uint8((1 << (scale.exponent_bits + scale.mantissa_bits)) - 1 if scale.specials != Specials.POWERS_OF_TWO else 0xFF)
    nan, zero = kinds.take(at) == NAN, significands.take(at) == 0
    exponent = np.where(zero, 0, exponents.take(at))
    own = np.where((lines.exponents == ZERO) | zero | nan, ZERO, exponent if by_scales else lines.exponents + exponent)
    bases = lines.bases + exponent - scale.mantissa_bits if lines.bases.size == lines.exponents.size else lines.bases
    values = lines.significands * significands.take(at)
    return DecodedLines(
        np.where(nan, 0, values).astype(np.int32),
        own.astype(np.int32),
        bases.astype(np.int32),
        np.where(nan, NAN, lines.kinds).astype(np.uint8),
    )
