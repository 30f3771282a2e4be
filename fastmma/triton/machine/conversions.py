"""Conversions between types, ``cvt``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.codes import decode
from fastmma.isa.formats import format_of
from fastmma.triton.machine.floats import flush
from fastmma.triton.machine.values import KINDS, resize
from fastmma.triton.numbers import converted, cut_to_integers, round_integers
from fastmma.triton.parts import round_to_tf32

Array = NDArray[Any]
_WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLOATS = ("f16", "bf16", "f32", "f64")
_PACKED = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}


def _to_float(values: Array, source: str, target: str, options: set[str]) -> Array:
    whole = next((mode for mode in _WHOLE if mode in options), None)
    if source == "f32" and "ftz" in options:
        values = flush(values)
    if whole is not None and source == target:
        result = _WHOLE[whole](values.astype(np.float32) if values.dtype.itemsize == 2 else values).astype(values.dtype)
    elif source == target:
        result = values
    else:
        result = converted(values, source, target, "rz" if "rz" in options else "rn")
    return flush(result) if target == "f32" and "ftz" in options else result


def convert(values: Array, source: str, target: str, options: set[str]) -> Array:
    """Convert values of one type.

    Raises
    ------
    NotEmulatedError
        If it is a conversion that nothing here does.
    """
    if target == "tf32":
        if "rna" not in options:
            raise NotEmulatedError(f"cvt to tf32 by {', '.join(sorted(options))}")
        return round_to_tf32(values).view(np.uint32)
    if options & {"rm", "rp", "rs", "relu"} or ("sat" in options and source in _FLOATS):
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    if source in _FLOATS and target in _FLOATS:
        return _to_float(values, source, target, options)
    if source in _FLOATS:
        mode = next((mode for mode in _WHOLE if mode in options), "rzi")
        if source == "f32" and "ftz" in options:
            values = flush(values)
        wide = values if source == "f64" else values.astype(np.float32)
        bits, signed = _size(target)
        rounded = _WHOLE[mode](wide)
        return cut_to_integers(rounded, bits, signed=signed)
    if target in _FLOATS:
        if not options <= {"rn"}:
            raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
        return round_integers(values, target)
    if options:
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    return resize(values, KINDS[target])


def _size(kind: str) -> tuple[int, bool]:
    return int(kind[1:]), kind[0] == "s"


def pack(high: Array, low: Array, source: str, target: str, options: set[str]) -> Array:
    """Convert two values into one register, the first operand above the second."""
    fmt = _PACKED[target]
    if options - {"rn", "rz", "satfinite"}:
        raise NotEmulatedError(f"cvt.{'.'.join(sorted(options))}.{target}.{source}")
    if fmt in ("f16", "bf16") and "satfinite" in options:
        raise NotEmulatedError(f"cvt.satfinite.{target}.{source}")
    bits = format_of(fmt).bits
    wide = np.dtype(f"u{2 * bits // 8}")
    codes = [
        converted(np.asarray(one), source, fmt, "rz" if "rz" in options else "rn").view(np.dtype(f"u{bits // 8}")).astype(wide)
        for one in (high, low)
    ]
    return np.asarray(codes[0] << wide.type(bits) | codes[1])


def unpack_bytes(values: Array, source: str) -> Array:
    """Convert two numbers of 8 bits to two of f16, ``cvt.rn.f16x2.e4m3x2``."""
    fmt = _PACKED[source]
    halves = [np.asarray(values >> np.uint16(8 * index) & np.uint16(255)).astype(np.uint8) for index in (0, 1)]
    parts = [np.asarray(decode(one, fmt)).astype(np.float16).view(np.uint16) for one in halves]
    parts = [np.where(np.isnan(one.view(np.float16)), np.uint16(0x7FFF), one) for one in parts]
    return parts[0].astype(np.uint32) | parts[1].astype(np.uint32) << np.uint32(16)
