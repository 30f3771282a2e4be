"""Integers of 8 and 16 bits, several in a register."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def dot_bytes(x: Array, y: Array, z: Array, *, signed: tuple[bool, bool]) -> Array:
    """Add the products of four bytes to a number, ``dp4a``."""
    total = z.view(np.int32)
    for index in range(4):
        parts = [
            (one >> np.uint32(8 * index)).astype(np.uint8).view(np.int8 if is_signed else np.uint8).astype(np.int32)
            for one, is_signed in zip((x, y), signed, strict=True)
        ]
        total = total + parts[0] * parts[1]
    return total.view(np.uint32)


def dot_halves(x: Array, y: Array, z: Array, *, signed: tuple[bool, bool], first: int) -> Array:
    """Add the products of two halves with two bytes, from one of these on, ``dp2a``."""
    total = z.view(np.int32)
    for index in range(2):
        half = (x >> np.uint32(16 * index)).astype(np.uint16).view(np.int16 if signed[0] else np.uint16).astype(np.int32)
        byte = (y >> np.uint32(8 * (first + index))).astype(np.uint8).view(np.int8 if signed[1] else np.uint8).astype(np.int32)
        total = total + half * byte
    return total.view(np.uint32)


def apply_to_pairs(function: Callable[..., Array], dtype: np.dtype[Any], *, clamps: bool) -> Callable[..., Array]:
    """Return a function of registers that hold two numbers of 16 bits; negative results are zeros where it clamps."""

    def computed(*values: Array) -> Array:
        result = function(*(np.ascontiguousarray(one)[..., None].view(dtype) for one in values))
        result = np.maximum(result, dtype.type(0)) if clamps else result
        return np.ascontiguousarray(result).view(np.uint32)[..., 0]

    return computed


def _pack(x: Array, y: Array, below: Array | None = None, *, dtype: type[Any]) -> Array:
    """Put two numbers side by side, saturated, and what lay below under them, ``cvt.pack.sat``."""
    info = np.iinfo(dtype)
    bits = np.uint32(info.bits)
    high, low = (np.clip(one, info.min, info.max).astype(dtype).view(f"u{info.bits // 8}").astype(np.uint32) for one in (x, y))
    joined = np.asarray(high << bits | low)
    return joined if below is None else np.asarray(below << np.uint32(2 * bits) | joined)


PACKINGS: Mapping[str, Callable[..., Array]] = {
    **{f"cvt.pack.sat.{name}.s32": partial(_pack, dtype=dtype) for name, dtype in (("u16", np.uint16), ("s16", np.int16))},
    **{f"cvt.pack.sat.{name}.s32.b32": partial(_pack, dtype=dtype) for name, dtype in (("u8", np.uint8), ("s8", np.int8))},
}
PAIRS: Mapping[str, np.dtype[Any]] = {"s16x2": np.dtype(np.int16), "u16x2": np.dtype(np.uint16)}
