"""Casts between float formats, rounded as the GPU's instructions do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.isa.codes import encode
from fastmma.isa.formats import format_of
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import FLOATS, elements

_SATURATED = ("e4m3", "e5m2")
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}  # all ones, positive (seen on an H100)


def converted(values: NDArray[Any], source: str, target: str, rounding: str = "rn") -> NDArray[Any]:
    """Values of one format in another, in its dtype, rounded once.

    8-bit formats take their largest number for what is beyond it, infinities too, but under ``"rz"`` infinities stay. NaN has all bits set
    but the sign. bf16 becomes f32 bit by bit, and e5m2 becomes bf16 as if it had no infinities and NaN: Triton only moves the bits.

    Examples
    --------
    >>> import numpy as np
    >>> converted(np.float32([1.1, 1e9, -np.inf, np.nan]), "f32", "e4m3").tolist()
    [1.125, 448.0, -448.0, nan]
    """
    fmt = format_of(target)
    if (source, target) == ("bf16", "f32"):
        return np.asarray(values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if (source, target) == ("e5m2", "bf16"):
        codes = values.view(np.uint8)
        finite = np.ldexp((codes & 3) + np.where(codes & 0x7C, 4.0, 0.0), np.maximum(codes >> 2 & 31, 1).astype(np.int32) - 17)
        return np.asarray(np.where(codes & 0x80, -finite, finite).astype(fmt.dtype))
    if fmt.holds(format_of(source)):
        result = values.astype(fmt.dtype)
    else:
        codes = encode(values, fmt, rounding="rz" if rounding == "rz" else "rn", saturate=target in _SATURATED and rounding == "rn")
        result = np.asarray(codes).astype(fmt.code_dtype).view(fmt.dtype)
    if target in _NAN:
        np.putmask(result.view(fmt.code_dtype), np.isnan(values), np.asarray(_NAN[target], fmt.code_dtype))
    return result


def cut_to_integers(values: NDArray[Any], bits: int, *, signed: bool) -> NDArray[Any]:
    """Cut numbers to integers and saturate, as ``cvt.rzi`` does; of 8 bits, to 16, of which the lower 8 are taken.

    NaN becomes 0, and the highest bit alone where the numbers are f64 or the integers have 64 bits (PTX ISA, ``cvt``).

    Examples
    --------
    >>> import numpy as np
    >>> cut_to_integers(np.float32([-1.5, 300, 7e4, np.nan]), 8, signed=False).tolist()
    [0, 44, 255, 0]
    """
    width = max(16, bits)
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    wide = np.trunc(values.astype(np.float64))
    inside = (wide >= low) & (wide < high + 1.0)
    result = np.where(inside, wide, 0).astype(kind)
    result = np.where(wide >= high + 1.0, kind.type(high), np.where(wide < low, kind.type(low), result))
    if values.dtype == np.float64 or width == 64:
        result = np.where(np.isnan(wide), np.array(1 << (width - 1), f"u{width // 8}").view(kind), result)
    return result.astype(f"{'i' if signed else 'u'}{bits // 8}")


def _cut_to_integer(run: Emulation, _original: Operation, value: Any, kind: Any) -> Any:
    source, target = value.dtype.scalar, kind.scalar
    bits, signed = target.primitive_bitwidth, target.is_int_signed()
    run.report.did("cast", f"{FLOATS[source.name]} to {'s' if signed else 'u'}{bits}, cvt.rzi{'' if bits > 8 else ' to 16 bits, cut to 8'}")
    return TensorHandle(cut_to_integers(elements(value), bits, signed=signed).reshape(value.data.shape), target)


def round_integers(values: NDArray[Any], fmt: str) -> NDArray[Any]:
    """Round integers to a float format, once.

    Examples
    --------
    >>> import numpy as np
    >>> round_integers(np.array([2**60 + 2**52 + 1]), "bf16").tolist()  # above a tie
    [1.161928703861588e+18]
    """
    dtype = format_of(fmt).dtype
    if fmt in ("f32", "f64"):
        return values.astype(dtype)
    exact = values
    if values.dtype.itemsize == 8:  # what f64 cannot hold is joined to one bit, far below those of the format
        rest, one = values & values.dtype.type(0xFFF), values.dtype.type(0x800)
        exact = np.where(np.abs(values.astype(np.float64)) < 2.0**53, values, values - rest + np.where(rest != 0, one, one - one))
    return np.asarray(encode(exact.astype(np.float64), fmt)).astype(format_of(fmt).code_dtype).view(dtype)


def _round_integer(run: Emulation, _original: Operation, value: Any, kind: Any) -> Any:
    """Convert; before Hopper, integers become bf16 by way of f32."""
    fmt = FLOATS[kind.scalar.name]
    data = value.data
    if fmt == "bf16" and run.capability < 90:
        result = converted(data.astype(np.float32), "f32", "bf16")
    else:
        result = round_integers(data.astype(np.uint8) if data.dtype == np.bool_ else data, fmt)
    return TensorHandle(result, kind.scalar)


def _cast(run: Emulation, original: Operation, value: Any, kind: Any, *rounding: Any) -> Any:
    source, target = (FLOATS.get(dtype.scalar.name) for dtype in (value.dtype, kind))
    if source is None or target is None:
        run.report.passes("cast", f"{value.dtype.scalar} to {kind.scalar}: how it rounds is not modelled")
    if source is None or target is None or source == target:
        return original(value, kind, *rounding)
    mode = "rz" if "RTZ" in str(rounding) else "rn"
    data = converted(elements(value), source, target, mode)
    run.report.did("cast", f"{source} to {target}, {mode}")
    return TensorHandle(data.reshape(value.data.shape).view(interpreter._get_np_dtype(kind)), kind.scalar)


OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(("create_fp_to_fp", "create_fp_ext", "create_fp_trunc"), _cast),
    **dict.fromkeys(("create_fp_to_si", "create_fp_to_ui"), _cut_to_integer),
    **dict.fromkeys(("create_si_to_fp", "create_ui_to_fp"), _round_integer),
}
