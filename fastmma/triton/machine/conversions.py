"""Conversions between types, ``cvt``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.codes import decode, encode
from fastmma.isa.formats import format_of
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.machine.floats import flush
from fastmma.triton.machine.values import KINDS, PAIRS, resize
from fastmma.triton.numbers import converted, cut_to_integers, round_in_direction, round_integers
from fastmma.triton.parts import round_to_tf32

Array = NDArray[Any]
_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLOATS = ("f16", "bf16", "f32", "f64")
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m1x2": "e2m1", "ue8m0x2": "ue8m0"}
_ROUNDINGS = ("rn", "rz", "rm", "rp")


def _to_float(values: Array, source: str, target: str, options: set[str]) -> Array:
    whole = next((mode for mode in _WHOLE if mode in options), None)
    if source == "f32" and "ftz" in options:
        values = flush(values)
    if whole is not None and source == target:
        result = _WHOLE[whole](values.astype(np.float32) if values.dtype.itemsize == 2 else values).astype(values.dtype)
    elif source == target:
        result = values
    else:
        direction = next((one for one in _ROUNDINGS if one in options), "rn")
        if direction in ("rm", "rp"):
            result = canonicalise_nan(round_in_direction(values.astype(np.float64), target, direction))
        else:
            result = converted(values, source, target, direction)
    return flush(result) if target == "f32" and "ftz" in options else result


def convert(values: Array, source: str, target: str, options: set[str]) -> Array:
    """Convert values of one type.

    Raises
    ------
    NotEmulatedError
        If it is a conversion that nothing here does.
    """
    if target == "tf32":
        if options == {"rna"}:
            return round_to_tf32(values).view(np.uint32)
        if options in ({"rn"}, {"rz"}):
            return _cut_to_tf32(values, *options)
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    if options & {"rs", "relu", "satfinite"} or ("sat" in options and target not in _FLOATS):
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    if source in _FLOATS and target in _FLOATS:
        found = _to_float(values, source, target, options)
        if "sat" in options:
            found = np.where(np.isnan(found), found.dtype.type(0), np.clip(found, 0, 1)).astype(found.dtype)
        return found
    if source in _FLOATS:
        mode = next((mode for mode in _WHOLE if mode in options), "rzi")
        if source == "f32" and "ftz" in options:
            values = flush(values)
        wide = values if source == "f64" else values.astype(np.float32)
        bits, signed = _size(target)
        rounded = _WHOLE[mode](wide)
        return cut_to_integers(rounded, bits, signed=signed)
    if target in _FLOATS:
        if not options <= set(_ROUNDINGS):
            raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
        return round_integers(values, target, *options)
    if options:
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    return resize(values, KINDS[target])


def _cut_to_tf32(values: Array, rounding: str) -> Array:
    """Round to tf32 to nearest even, or toward zero, in registers of 32 bits."""
    codes = np.asarray(encode(values, "tf32", rounding="rz" if rounding == "rz" else "rn"))
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), codes.astype(np.uint32))


def _size(kind: str) -> tuple[int, bool]:
    return int(kind[1:]), kind[0] == "s"


def _codes(values: Array, source: str, fmt: str, rounding: str) -> Array:
    """Return codes of a format of at most 16 bits, under ``satfinite`` where it has 8 bits or fewer.

    Raises
    ------
    NotEmulatedError
        If a number is negative and becomes a power of two.
    """
    if fmt == "e2m1":
        given = np.where(np.isnan(values), np.float32(np.inf), values.astype(np.float32))
        return np.asarray(encode(given, fmt, saturate=True))
    if fmt == "ue8m0":
        if (values < 0).any():
            raise NotEmulatedError("cvt to ue8m0 of negative numbers")
        most = np.float32(float.fromhex("0x1p127"))
        found = round_in_direction(np.where(values > most, most, values.astype(np.float32)), fmt, rounding).view(np.uint8)
        return np.where(np.isnan(values), np.uint8(255), found)
    code = format_of(fmt).code_dtype
    if rounding in ("rm", "rp"):
        return round_in_direction(values, fmt, rounding).view(code)
    return converted(np.asarray(values), source, fmt, rounding).view(code)


def pack(high: Array, low: Array, source: str, target: str, options: set[str]) -> Array:
    """Convert two values into one register, the first operand above the second.

    Raises
    ------
    NotEmulatedError
        If it is a conversion that nothing here does.
    """
    fmt = PACKED[target]
    roundings = options & set(_ROUNDINGS)
    if options - {"satfinite", "relu", *_ROUNDINGS} or len(roundings) != 1 or ("satfinite" in options) == (target in PAIRS):
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    if "relu" in options:
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    bits = format_of(fmt).bits
    wide = np.dtype(f"u{max(1, 2 * bits // 8)}")
    codes = [_codes(one, source, fmt, *roundings).astype(wide) for one in (high, low)]
    return np.asarray(codes[0] << wide.type(bits) | codes[1])


def unpack(values: Array, source: str, target: str) -> Array:
    """Convert two narrow numbers to two of 16 bits, ``cvt.rn.f16x2.e4m3x2``."""
    fmt = format_of(PACKED[source])
    mask = values.dtype.type((1 << fmt.bits) - 1)
    halves = [np.asarray(values >> values.dtype.type(fmt.bits * index) & mask).astype(np.uint8) for index in (0, 1)]
    wide = [np.asarray(decode(one, fmt)).astype(PAIRS[target]).view(np.uint16) for one in halves]
    wide = [np.where(np.isnan(one.view(PAIRS[target])), np.uint16(0x7FFF), one) for one in wide]
    return wide[0].astype(np.uint32) | wide[1].astype(np.uint32) << np.uint32(16)
