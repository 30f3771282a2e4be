"""Numbers of f32 in parts of narrower formats, of which dots of ``input_precision="tf32x3"`` and its kin are made."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.numbers import converted

Floats = NDArray[np.float32]

_LAST = np.uint32(0x1000)  # half of the last bit of tf32
_KEPT = np.uint32(0xFFFFE000)
_INFINITY = np.uint32(0x7F800000)
_NAN = np.uint32(0x7FFFFFFF)


def round_to_tf32(values: Floats) -> Floats:
    """Round to nearest, ties away from zero, as ``cvt.rna.tf32.f32`` does.

    Examples
    --------
    >>> round_to_tf32(np.float32([1 + 2**-11, 1 + 2**-12, -np.inf])).tolist()
    [1.0009765625, 1.0, -inf]
    """
    codes = np.ascontiguousarray(values).view(np.uint32)
    magnitudes = codes & _NAN
    rounded = np.where(magnitudes >= _INFINITY, codes, (codes + _LAST) & _KEPT)
    return np.where(magnitudes > _INFINITY, _NAN, rounded).view(np.float32)


def split_into_parts(values: Floats, kind: str, number: int) -> list[NDArray[Any]]:
    """Split numbers into so many parts of a format; what is left of tf32 is cut off where it is multiplied.

    Examples
    --------
    >>> [part.tolist() for part in split_into_parts(np.float32([1.00390625]), "bf16", 2)]
    [[1.0], [0.00390625]]
    """
    if kind == "tf32":
        first = round_to_tf32(values)
        return [first, values - first]
    found: list[NDArray[Any]] = []
    for _ in range(number):
        found.append(converted(values, "f32", kind))
        values = values - converted(found[-1], kind, "f32")
    return found
