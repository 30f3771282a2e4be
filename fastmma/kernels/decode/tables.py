"""The meaning of every code of a format, as tables."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.params import Element, Specials

ZERO = -4096  # exponent of a zero: below every floor
NAN_EXPONENT = 1 << 14  # of a scale: above every other
FINITE, PLUS, MINUS, NAN = range(4)  # kinds of elements: finite, either infinity, NaN
_BYTE = 1 << 8


class Table(NamedTuple):
    """By code, without padding: ``significand * 2**(exponent - mantissa_bits)``.

    Zeros have the exponent `ZERO`; what is not finite has it, too, a significand of zero, and its kind.
    """

    significands: NDArray[np.int32]
    exponents: NDArray[np.int32]
    kinds: NDArray[np.uint8]


class ScaleTable(NamedTuple):
    """By a byte that holds the code of a scale, which has no sign: values, exponents, and 1 for those that are neither zero nor NaN."""

    values: NDArray[np.float64]
    exponents: NDArray[np.int32]
    alive: NDArray[np.uint8]


def parts_of(element: Element, codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Magnitudes of codes without padding, exponent fields from 1 on, and significands without signs; of what is special any."""
    magnitude = codes & ((1 << element.width) - 1)
    field = np.maximum(magnitude >> element.mantissa_bits, 1)
    return magnitude, field, magnitude - (field - 1 << element.mantissa_bits)


@lru_cache(256)
def table_of(element: Element) -> Table:
    """The table of a format of elements."""
    if element.specials == Specials.POWERS_OF_TWO:
        powers = np.arange(_BYTE, dtype=np.int32)
        finite = powers < _BYTE - 1
        exponents = np.where(finite, powers - np.int32(element.bias), np.int32(ZERO))
        return Table(finite.astype(np.int32), exponents, np.where(finite, FINITE, NAN).astype(np.uint8))
    codes = np.arange(2 << element.width)
    negative = codes >> element.width & 1
    magnitude, field, significand = parts_of(element, codes)
    exponent = np.where(magnitude == 0, ZERO, field - element.bias)
    special = magnitude >= element.first_special if element.in_magnitudes else codes == 1 << element.width
    infinite = special & (element.specials == Specials.IEEE) & (magnitude == element.first_special)
    kind = np.where(infinite, PLUS + negative, np.where(special, NAN, FINITE))
    significand = np.where(special, 0, np.where(negative, -significand, significand))
    return Table(significand.astype(np.int32), np.where(special, ZERO, exponent).astype(np.int32), kind.astype(np.uint8))


@lru_cache(256)
def scale_table_of(element: Element) -> ScaleTable:
    """The table of a format of scales."""
    found = table_of(element)
    significands, nan = np.abs(found.significands[:_BYTE]), found.kinds[:_BYTE] == NAN
    values = np.where(nan, np.nan, np.ldexp(significands.astype(np.float64), found.exponents[:_BYTE] - element.mantissa_bits))
    exponents = np.where(nan, NAN_EXPONENT, found.exponents[:_BYTE])
    return ScaleTable(values, exponents.astype(np.int32), ((significands != 0) & ~nan).astype(np.uint8))
