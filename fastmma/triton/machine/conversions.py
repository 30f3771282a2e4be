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
from fastmma.triton.machine.floats import flush, saturate
from fastmma.triton.machine.values import KINDS, PAIRS, resize
from fastmma.triton.numbers import converted, cut_to_integers, round_in_direction, round_integers

Array = NDArray[Any]
_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLOATS = ("f16", "bf16", "f32", "f64")
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m1x2": "e2m1", "ue8m0x2": "ue8m0"}
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_INFINITY, _BELOW_TF32, _HALF_OF_TF32 = np.uint32(0x7F800000), np.uint32(0x1FFF), np.uint32(0x1000)


def _to_float(values: Array, source: str, target: str, options: set[str]) -> Array:
    whole = next((mode for mode in _WHOLE if mode in options), None)
    if source == "f32" and "ftz" in options:
        values = flush(values)
    if whole is not None and source == target:
        result = canonicalise_nan(_WHOLE[whole](values.astype(np.float32) if values.dtype.itemsize == 2 else values).astype(values.dtype))
    elif source == target:
        result = values
    else:
        direction = next((one for one in _ROUNDINGS if one in options), "rn")
        if direction in ("rm", "rp"):
            result = canonicalise_nan(round_in_direction(values.astype(np.float64), target, direction))
        else:
            result = converted(values, source, target, direction)
    return flush(result) if target == "f32" and "ftz" in options else result


def clamp_negative(codes: Array) -> Array:
    """Return zeros for codes with a sign, as ``.relu`` does; a NaN has none, since it is canonical."""
    return np.where(codes >> codes.dtype.type(8 * codes.itemsize - 1), codes.dtype.type(0), codes)


def _keep_finite(values: Array) -> Array:
    """Return the largest number of 16 bits for an infinity, as ``.satfinite`` does: the code below."""
    codes = values.view(np.uint16)
    return np.where(np.isinf(values), codes - np.uint16(1), codes).view(values.dtype)


def _limit(values: Array, options: set[str]) -> Array:
    """Apply ``.satfinite`` and ``.relu`` to numbers of 16 bits."""
    if "satfinite" in options:
        values = _keep_finite(values)
    return clamp_negative(values.view(np.uint16)).view(values.dtype) if "relu" in options else values


def convert(values: Array, source: str, target: str, options: set[str]) -> Array:
    """Convert values of one type.

    Raises
    ------
    NotEmulatedError
        If it is a conversion that nothing here does.
    """
    if target == "tf32":
        return _to_tf32(values, options)
    limits = options & {"relu", "satfinite"}
    if "rs" in options or (limits and (source != "f32" or target not in ("f16", "bf16"))) or ("sat" in options and target not in _FLOATS):
        raise NotEmulatedError(f"cvt to {target}")
    if source in _FLOATS and target in _FLOATS:
        found = _limit(_to_float(values, source, target, options), options)
        if "sat" in options:
            found = saturate(found)
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
            raise NotEmulatedError(f"cvt to {target}")
        return round_integers(values, target, *options)
    if options:
        raise NotEmulatedError(f"cvt to {target}")
    return resize(values, KINDS[target])


def _to_tf32(values: Array, options: set[str]) -> Array:
    """Round to tf32, in registers of 32 bits."""
    rounding = options - {"relu", "satfinite"}
    if len(rounding) != 1 or not rounding <= {"rna", "rn", "rz"} or ("satfinite" in options and rounding != {"rna"}):
        raise NotEmulatedError("cvt to tf32")
    if rounding == {"rna"}:
        codes = values.view(np.uint32)
        codes = np.where(codes & _INFINITY == _INFINITY, codes, codes + _HALF_OF_TF32) & ~_BELOW_TF32  # a NaN is cut off
    else:
        codes = np.asarray(encode(values, "tf32", rounding="rz" if rounding == {"rz"} else "rn")).astype(np.uint32)
        codes = np.where(np.isnan(values), np.uint32(0x7FFFFFFF) & ~_BELOW_TF32, codes)
    if "satfinite" in options:  # of a NaN, too
        codes = np.where(codes & _INFINITY == _INFINITY, codes - _BELOW_TF32 - np.uint32(1), codes)
    return clamp_negative(codes) if "relu" in options else codes


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
    if options - {"satfinite", "relu", *_ROUNDINGS} or len(roundings) != 1 or ("satfinite" not in options and target not in PAIRS):
        raise NotEmulatedError(f"cvt to {target}")
    bits = format_of(fmt).bits
    wide = np.dtype(f"u{max(1, 2 * bits // 8)}")
    codes = [_codes(one, source, fmt, *roundings) for one in (high, low)]
    if target in PAIRS and "satfinite" in options:
        codes = [_keep_finite(one.view(format_of(fmt).dtype)).view(one.dtype) for one in codes]
    if "relu" in options:
        codes = [np.where(one >> one.dtype.type(bits - 1), one.dtype.type(0), one) for one in codes]
    return np.asarray(codes[0].astype(wide) << wide.type(bits) | codes[1])


def unpack(values: Array, source: str, target: str, *, relu: bool = False) -> Array:
    """Convert two narrow numbers to two of 16 bits, ``cvt.rn.f16x2.e4m3x2``."""
    fmt = format_of(PACKED[source])
    mask = values.dtype.type((1 << fmt.bits) - 1)
    halves = [np.asarray(values >> values.dtype.type(fmt.bits * index) & mask).astype(np.uint8) for index in (0, 1)]
    wide = [np.asarray(decode(one, fmt)).astype(PAIRS[target]).view(np.uint16) for one in halves]
    wide = [np.where(np.isnan(one.view(PAIRS[target])), np.uint16(0x7FFF), one) for one in wide]
    if relu:
        wide = [clamp_negative(one) for one in wide]
    return wide[0].astype(np.uint32) | wide[1].astype(np.uint32) << np.uint32(16)
