"""Codes of elements: from bits to values and back, and between arrays of elements and arrays of codes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import flag
from fastmma.isa.formats import FORMATS, Format, format_of

Rounding = Literal["rn", "rz"]


def _decode_float(codes: NDArray[np.uint64], fmt: Format) -> NDArray[np.float64]:
    codes = codes >> np.uint64(fmt.padding)
    mantissa = (codes & np.uint64((1 << fmt.mantissa_bits) - 1)).astype(np.float64)
    field = ((codes >> np.uint64(fmt.mantissa_bits)) & np.uint64((1 << fmt.exponent_bits) - 1)).astype(np.int64)
    has_hidden_bit = field > 0 if fmt.has_zero else np.ones_like(field, dtype=bool)
    significand = mantissa + np.where(has_hidden_bit, float(1 << fmt.mantissa_bits), 0.0)
    exponent = np.where(has_hidden_bit, field, 1) - fmt.bias - fmt.mantissa_bits
    value = np.ldexp(significand, exponent)
    value = np.where(fmt.is_special(codes), np.nan, value)
    if fmt.infinity is not None:
        value = np.where(codes & np.uint64((1 << fmt.magnitude_bits) - 1) == np.uint64(fmt.first_special), np.inf, value)
    if fmt.signed:
        negative = (codes >> np.uint64(fmt.magnitude_bits)) & np.uint64(1)
        value = np.where(negative == 1, -value, value)
    return np.asarray(value, dtype=np.float64)


@public_call
def decode(codes: ArrayLike, fmt: str | Format) -> NDArray[Any]:
    """Return the values of codes: float64 for float formats (exact), int64 for the others.

    Parameters
    ----------
    codes : array_like of unsigned integers
        Bit patterns; bits above the format's width are ignored, as hardware ignores a container's padding.
    fmt : str or Format

    Raises
    ------
    InstructionError, OperandTypeError
        If there is no such format, or the codes are not integers.

    Examples
    --------
    >>> decode([0x38, 0x7e, 0xff], "e4m3").tolist()
    [1.0, 448.0, nan]
    """
    fmt = format_of(fmt)
    bits = as_array(codes, f"codes of {fmt}")
    if bits.dtype.kind not in "ui":
        raise OperandTypeError(f"codes of {fmt} must be integers, not {bits.dtype}")
    unsigned = bits.astype(np.uint64) & np.uint64((1 << fmt.bits) - 1)
    if fmt.kind == "float":
        if fmt.name == "f64":
            return unsigned.view(np.float64) if unsigned.ndim else np.asarray(unsigned).view(np.float64)
        return _decode_float(unsigned, fmt)
    value = unsigned.astype(np.int64)
    if fmt.kind == "signed":
        value = value - ((value >> np.int64(fmt.bits - 1)) << np.int64(fmt.bits))
    return np.asarray(value)


def _as_f64(array: NDArray[Any], rounding: Literal["rn", "rz", "odd"]) -> NDArray[np.float64]:
    """Numbers as float64: to nearest, toward zero, or to odd.

    A number between two neighbours in float64 is rounded to odd by taking the neighbour whose last bit is 1. Rounding that to a format with
    at least two bits less gives the same result as rounding the number itself.
    """
    with np.errstate(all="ignore"):
        nearest = array.astype(np.float64)
        if rounding == "rn" or array.dtype.kind not in "iuf" or array.itemsize < (16 if array.dtype.kind == "f" else 8):
            return nearest
        if array.dtype.kind == "f":
            toward_zero = np.where(np.abs(nearest) > np.abs(array), np.nextafter(nearest, 0.0), nearest)
            inexact = (nearest != array) & ~np.isnan(array)
        else:
            negative = array < 0
            magnitude = np.where(negative, -array.astype(np.uint64), array.astype(np.uint64))
            _, bits_of_the_upper = np.frexp((magnitude >> np.uint64(11)).astype(np.float64))
            lost = np.maximum(bits_of_the_upper + 11 - 53, 0).astype(np.uint64)
            kept = magnitude >> lost << lost
            toward_zero = np.where(negative, -kept.astype(np.float64), kept.astype(np.float64))
            inexact = kept != magnitude
    if rounding == "rz":
        return toward_zero
    return np.asarray(toward_zero.view(np.uint64) | inexact).view(np.float64)


def _round_to_grid(magnitude: NDArray[np.float64], fmt: Format, rounding: Rounding) -> NDArray[np.float64]:
    """Round finite magnitudes to the format's grid, its exponent range unbounded above."""
    _, exponent = np.frexp(magnitude)
    quantum = np.maximum(exponent - 1, fmt.emin) - fmt.mantissa_bits
    # two exact scalings keep the factor itself in the range of float64
    half = quantum // 2
    steps = np.ldexp(np.ldexp(magnitude, -half), half - quantum)
    steps = np.rint(steps) if rounding == "rn" else np.floor(steps)
    with np.errstate(over="ignore"):  # what rounds up beyond float64 is infinite
        return np.asarray(np.ldexp(np.ldexp(steps, half), quantum - half), dtype=np.float64)


@public_call
def encode(values: ArrayLike, fmt: str | Format, *, rounding: Rounding = "rn", saturate: bool = False) -> NDArray[Any]:
    """Round values to a format and return the codes.

    Parameters
    ----------
    values : array_like
        Real numbers of any dtype, longdouble and 64-bit integers among them; there is one rounding.
    fmt : str or Format
    rounding : {"rn", "rz"}
        To nearest, ties to even; or toward zero.
    saturate : bool
        Whether what is beyond the largest finite value (infinities too) becomes that value. If not: infinity where the format has one
        (under ``"rz"`` only infinities do, finite values stop at the largest), NaN where it has only NaN, an error where it has neither.

    Returns
    -------
    ndarray of ``fmt.code_dtype``

    Raises
    ------
    OperandError
        If a value has no code: NaN in e2m1, a negative ue8m0, an integer out of range without `saturate`.

    Notes
    -----
    NaN becomes the positive quiet NaN with no payload (all ones in formats whose only NaN that is). Zero and what is below the
    range of ue8m0 become its smallest code.

    Examples
    --------
    >>> [hex(code) for code in encode([1.0, 1e9, -0.0], "e4m3", saturate=True)]
    ['0x38', '0x7e', '0x80']
    """
    fmt = format_of(fmt)
    saturate = flag(saturate, "saturate")
    if not isinstance(rounding, str) or rounding not in ("rn", "rz"):
        raise OperandError(f"rounding must be 'rn' or 'rz', not {rounding!r}")
    array = as_array(values, f"values for {fmt}")
    if array.dtype.kind not in "fiub" and array.dtype.name not in {row.dtype_name for row in FORMATS.values()}:
        raise OperandTypeError(f"values for {fmt} must be real numbers, not {array.dtype}")
    return encode_array(array, fmt, rounding, saturate)


def encode_array(array: NDArray[Any], fmt: Format, rounding: Rounding, saturate: bool) -> NDArray[Any]:
    """Round real numbers as `encode` does.

    Raises
    ------
    OperandError
        If a value has no code.
    """
    if fmt.kind != "float":
        return _encode_integer(array, fmt, rounding, saturate)
    value = _as_f64(array, rounding if fmt.name == "f64" else "odd")
    if fmt.name == "f64":
        value = np.clip(value, -fmt.max, fmt.max) if saturate else value
        return np.where(np.isnan(value), np.uint64(fmt.nan or 0), np.asarray(value).view(np.uint64))
    negative = np.signbit(value) & ~np.isnan(value)
    if not fmt.signed and bool(np.any(negative & (value != 0))):
        raise OperandError(f"{fmt} has no negative numbers, but the least value is {np.min(value)}")
    magnitude = np.abs(value)
    finite = np.isfinite(magnitude)
    rounded = _round_to_grid(np.where(finite, magnitude, 0.0), fmt, rounding)
    if not fmt.has_zero:
        rounded = np.maximum(rounded, fmt.min_subnormal)
    overflow = (rounded > fmt.max) | np.isinf(magnitude)
    clamp = overflow if saturate else overflow & finite if rounding == "rz" else np.zeros_like(overflow)
    rounded = np.where(clamp, fmt.max, rounded)
    nan = np.isnan(value)
    if fmt.nan is None and bool(np.any(nan | (overflow & ~clamp))):
        raise OperandError(f"{fmt} has neither NaN nor infinity; values must lie in [-{fmt.max}, {fmt.max}] or be saturated")
    codes = _finite_codes(np.where(overflow & ~clamp, 0.0, rounded), fmt) << np.uint64(fmt.padding)
    if fmt.nan is not None:
        codes = np.where(overflow & ~clamp, np.uint64(fmt.nan if fmt.infinity is None else fmt.infinity), codes)
        codes = np.where(nan, np.uint64(fmt.nan), codes)
    if fmt.signed:
        negative &= fmt.has_negative_zero | (codes != 0)
        codes = codes | (negative.astype(np.uint64) << np.uint64(fmt.magnitude_bits + fmt.padding))
    return np.asarray(codes.astype(fmt.code_dtype))


def _finite_codes(magnitude: NDArray[np.float64], fmt: Format) -> NDArray[np.uint64]:
    """Codes of magnitudes that lie on the format's grid."""
    _, exponent = np.frexp(magnitude)
    exponent = np.maximum(exponent - 1, fmt.emin)
    half = (fmt.mantissa_bits - exponent) // 2
    significand = np.ldexp(np.ldexp(magnitude, half), fmt.mantissa_bits - exponent - half).astype(np.uint64)
    hidden = np.uint64(1 << fmt.mantissa_bits)
    field = np.where(significand >= hidden, exponent + fmt.bias, 0).astype(np.uint64)
    return np.asarray((field << np.uint64(fmt.mantissa_bits)) | (significand & (hidden - np.uint64(1))))


def _encode_integer(array: NDArray[Any], fmt: Format, rounding: Rounding, saturate: bool) -> NDArray[Any]:
    low = -(1 << (fmt.bits - 1)) if fmt.kind == "signed" else 0
    high = int(fmt.max)
    value: NDArray[Any]
    if array.dtype.kind in "iub":
        # every value of an integer format fits into int64
        value = (np.minimum(array, np.uint64(np.iinfo(np.int64).max)) if array.dtype == np.uint64 else array).astype(np.int64)
    else:
        real = _as_f64(array, "odd")
        if bool(np.any(np.isnan(real))):
            raise OperandError(f"{fmt} has no NaN")
        value = np.rint(real) if rounding == "rn" else np.trunc(real)
    if saturate:
        value = np.clip(value, low, high)
    elif value.size and (value.min() < low or value.max() > high):
        span = array if array.dtype.kind in "iub" else value
        raise OperandError(f"values for {fmt} must lie in [{low}, {high}] or be saturated; they span [{span.min()}, {span.max()}]")
    return np.asarray((value.astype(np.int64) & np.int64((1 << fmt.bits) - 1)).astype(fmt.code_dtype))


@lru_cache(64)
def all_codes(name: str) -> NDArray[Any]:
    """Every code of a format of at most 16 bits, ascending.

    Examples
    --------
    >>> len(all_codes("e2m1"))
    16
    """
    fmt = format_of(name)
    if fmt.bits > 16:
        raise OperandError(f"{fmt} has 2**{fmt.bits} codes, too many to list")
    codes = np.arange(1 << fmt.bits).astype(fmt.code_dtype)
    codes.flags.writeable = False
    return codes


def to_codes(elements: ArrayLike, fmt: str | Format) -> NDArray[Any]:
    """View an array of elements (the format's dtype) as codes, without a copy where NumPy can.

    Raises
    ------
    OperandTypeError
        If the array has another dtype; nothing is cast silently.

    Examples
    --------
    >>> to_codes(np.array([1.5], dtype=np.float16), "f16").tolist()
    [15872]
    """
    fmt = format_of(fmt)
    array = as_array(elements, f"elements of {fmt}")
    if array.dtype.newbyteorder("=") != fmt.dtype:
        raise OperandTypeError(f"elements of {fmt} must have dtype {fmt.dtype}, not {array.dtype}")
    return view_codes(array, fmt)


def view_codes(array: NDArray[Any], fmt: Format) -> NDArray[Any]:
    """View an array of a format's dtype, in any byte order, as codes, without a copy where NumPy can."""
    array = array.astype(fmt.dtype, copy=False)
    if fmt.kind in ("signed", "unsigned") and fmt.bits == 4:
        return np.asarray(array.view(np.uint8) & np.uint8(15))
    return array.view(fmt.code_dtype)


def from_codes(codes: NDArray[Any], fmt: str | Format) -> NDArray[Any]:
    """View codes as elements of the format's dtype; the inverse of `to_codes`."""
    if isinstance(fmt, str):
        fmt = format_of(fmt)
    if fmt.kind == "float" and codes.dtype == fmt.code_dtype and codes.flags.c_contiguous and codes.ndim:
        return codes.view(fmt.dtype)
    if fmt.kind == "signed" and fmt.bits == 4:
        return (((codes.astype(np.int8) & 15) ^ 8) - 8).astype(fmt.dtype)
    if fmt.kind == "bit":
        return (codes & 1).astype(bool)
    return np.ascontiguousarray(codes).astype(fmt.code_dtype, copy=False).view(fmt.dtype)
