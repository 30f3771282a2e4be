"""Rows of elements as rows of bytes: elements of less than a byte share one, or 16 of them a unit of 16 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.codes import from_codes, to_codes
from fastmma.isa.formats import Format

UNIT = 16  # bytes of a padded unit, and the codes of 4 or 6 bits that it holds
PADDED_BITS = (4, 6)


def unpacked(units: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Units (..., 16) of 16 codes of 4 or 6 bits, packed from the lowest bit up and padded to 16 bytes, as one byte a code."""
    return _split(units[..., : UNIT * bits // 8], bits)


def _split(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Packed codes (..., bytes), the first in the lowest bits, as one byte a code."""
    found = np.unpackbits(packed, axis=-1, bitorder="little")
    values = (found.reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits, bits) << np.arange(bits, dtype=np.uint8)).sum(axis=-1)
    return np.asarray(values, dtype=np.uint8)


def _join(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The inverse of `_split`."""
    each = codes[..., None] >> np.arange(bits, dtype=np.uint8) & np.uint8(1)
    return np.packbits(each.reshape(*codes.shape[:-1], codes.shape[-1] * bits), axis=-1, bitorder="little")


def to_bytes(elements: Any, fmt: Format, padded: bool) -> NDArray[np.uint8]:
    """Elements (..., columns) as bytes (..., bytes of a row)."""
    codes = np.ascontiguousarray(to_codes(elements, fmt))
    if fmt.bits >= 8:
        return codes.view(np.uint8)
    if not padded:
        return _join(codes, fmt.bits)
    units = codes.reshape(*codes.shape[:-1], codes.shape[-1] // UNIT, UNIT)
    held = np.zeros(units.shape, np.uint8)
    held[..., : UNIT * fmt.bits // 8] = _join(units, fmt.bits)
    return held.reshape(codes.shape)


def from_bytes(held: NDArray[np.uint8], fmt: Format, padded: bool) -> NDArray[Any]:
    """The inverse of `to_bytes`."""
    held = np.ascontiguousarray(held)
    if fmt.bits >= 8:
        return from_codes(held.view(fmt.code_dtype), fmt)
    if not padded:
        return from_codes(_split(held, fmt.bits), fmt)
    return from_codes(unpacked(held.reshape(*held.shape[:-1], held.shape[-1] // UNIT, UNIT), fmt.bits).reshape(held.shape), fmt)
