"""Numbers as PTX's instructions compute them: in one rounding, in other formats, the larger of two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter

from fastmma.isa.codes import encode
from fastmma.isa.formats import format_of
from fastmma.triton.formats import BF16

_FUSED = {np.dtype(np.float32): "fma_fp32", np.dtype(np.float64): "fma_fp64"}
_SATURATED = ("e4m3", "e5m2")
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}  # all ones, positive (seen on an H100)


def fused(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> NDArray[Any]:
    """``x * y + z`` in one rounding."""
    x, y, z = np.broadcast_arrays(x, y, z)
    if z.dtype in _FUSED:
        return np.asarray(getattr(interpreter._interpreter, _FUSED[z.dtype])(*(np.ascontiguousarray(v) for v in (x, y, z))))
    product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)  # exact
    total = product + addend
    total = join_lost(total, find_lost(product, addend, total))
    return encode(total, "bf16").view(BF16) if z.dtype == BF16 else total.astype(z.dtype)


def find_lost(x: NDArray[Any], y: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
    """Return what the rounding of a sum of f64 lost, exactly."""
    part = total - x
    return np.asarray((x - (total - part)) + (y - part))


def join_lost(total: NDArray[Any], lost: NDArray[Any]) -> NDArray[Any]:
    """Join what a rounding to f64 lost to the last bit, so that the next rounding is the only one; its sign and its being zero matter.

    Examples
    --------
    >>> join_lost(np.float64([1, 1, 2]), np.float64([1e-30, -1e-30, 0])).tolist()
    [1.0000000000000002, 0.9999999999999999, 2.0]
    """
    bits = total.view(np.int64)
    away = (lost > 0) == (total > 0)
    odd = np.where((lost != 0) & (bits & 1 == 0), np.where(away, bits + 1, bits - 1), bits)
    return np.where(np.isfinite(total), odd.view(np.float64), total)


def round_in_direction(values: NDArray[Any], fmt: str, direction: str) -> NDArray[Any]:
    """Round numbers to a format toward zero, down or up, by PTX's names of these.

    Examples
    --------
    >>> [round_in_direction(np.float64([1.0001, -1.0001]), "bf16", direction).tolist() for direction in ("rz", "rm", "rp")]
    [[1.0, -1.0], [1.0, -1.0078125], [1.0078125, -1.0]]
    """
    row = format_of(fmt)
    codes = np.asarray(encode(values, row, rounding="rz")).astype(row.code_dtype)
    cut = codes.view(row.dtype)
    away = (values < 0) if direction == "rm" else (values > 0)
    lost = np.isfinite(values) & (np.abs(cut.astype(values.dtype)) < np.abs(values))
    return np.where(away & lost & (direction != "rz"), codes + codes.dtype.type(1), codes).view(row.dtype)


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


def round_integers(values: NDArray[Any], fmt: str, direction: str = "rn") -> NDArray[Any]:
    """Round integers to a float format, once: to nearest, or in a direction.

    Examples
    --------
    >>> import numpy as np
    >>> round_integers(np.array([2**60 + 2**52 + 1]), "bf16").tolist()  # above a tie
    [1.161928703861588e+18]
    """
    dtype = format_of(fmt).dtype
    if direction == "rn" and fmt in ("f32", "f64"):
        return values.astype(dtype)
    exact = values
    if values.dtype.itemsize == 8:  # what f64 cannot hold is joined to one bit, far below those of the format
        rest, one = values & values.dtype.type(0xFFF), values.dtype.type(0x800)
        exact = np.where(np.abs(values.astype(np.float64)) < 2.0**53, values, values - rest + np.where(rest != 0, one, one - one))
    if direction != "rn":
        return round_in_direction(exact.astype(np.float64), fmt, direction)
    return np.asarray(encode(exact.astype(np.float64), fmt)).astype(format_of(fmt).code_dtype).view(dtype)


def take_extremum(x: NDArray[Any], y: NDArray[Any], *, largest: bool, keeps_nan: bool) -> NDArray[Any]:
    """Return the larger or the smaller numbers of two arrays, as PTX's ``max`` and ``min`` do.

    Examples
    --------
    >>> import numpy as np
    >>> zeros = np.float32([-0.0, 0.0])
    >>> take_extremum(zeros, zeros[::-1], largest=True, keeps_nan=False).tolist()
    [0.0, 0.0]
    """
    x, y = np.broadcast_arrays(x, y)
    choose = {(True, True): np.maximum, (True, False): np.fmax, (False, True): np.minimum, (False, False): np.fmin}
    result = np.asarray(choose[largest, keeps_nan](x, y))
    zeros = result == 0
    if zeros.any():
        kind = np.dtype(f"u{result.itemsize}")
        codes = [np.ascontiguousarray(one).view(kind) for one in (x, y)]
        joined = np.where(zeros & (x == y), (np.bitwise_and if largest else np.bitwise_or)(*codes), np.ascontiguousarray(result).view(kind))
        result = joined.view(result.dtype)
    return result
