"""Bits of arrays: where they differ, and how far apart the numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.isa.formats import Format, format_of
from fastmma.testing.arrays import host_array

_FAR = np.uint64(2**64 - 1)


def codes_of(array: NDArray[Any]) -> NDArray[np.uint64]:
    """The bits of each element."""
    if array.dtype.kind in "cSU" or array.itemsize > 8:
        raise OperandTypeError(f"bits of {array.dtype} are not compared")
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").reshape(array.shape).astype(np.uint64)


def known_format(dtype: np.dtype[Any]) -> Format | None:
    """The format of a dtype, if it is one of fastmma's."""
    try:
        return format_of(dtype)
    except InstructionError:
        return None


def is_nan(codes: NDArray[np.uint64], fmt: Format | None) -> NDArray[np.bool_]:
    """Return which codes are NaNs."""
    if fmt is None or fmt.nan is None:
        return np.zeros(codes.shape, np.bool_)
    return np.asarray(fmt.is_special(codes) & (fmt.infinity is None or _magnitude(codes, fmt) > np.uint64(fmt.infinity)))


def is_zero(codes: NDArray[np.uint64], fmt: Format | None) -> NDArray[np.bool_]:
    """Return which codes are zeros, of either sign."""
    if fmt is None or fmt.kind != "float":
        return np.asarray(codes == 0)
    return np.asarray((_magnitude(codes, fmt) == 0) & fmt.has_zero & ~is_nan(codes, fmt))


def _magnitude(codes: NDArray[np.uint64], fmt: Format) -> NDArray[np.uint64]:
    return codes & np.uint64((1 << fmt.magnitude_bits) - 1)


def distances(x: NDArray[np.uint64], y: NDArray[np.uint64], fmt: Format) -> NDArray[np.uint64]:
    """Count the numbers of a format between codes, the second counted; NaN is as far as can be from all but NaN."""
    first, second = (_ascending(codes, fmt) for codes in (x, y))
    apart = np.maximum(first, second) - np.minimum(first, second)
    nans = is_nan(x, fmt), is_nan(y, fmt)
    return np.where(nans[0] | nans[1], np.where(nans[0] & nans[1], np.uint64(0), _FAR), apart)


def _ascending(codes: NDArray[np.uint64], fmt: Format) -> NDArray[np.uint64]:
    """Codes as integers in the order of their numbers; both zeros are one."""
    if fmt.kind in ("unsigned", "bit") or not fmt.signed:
        return codes
    sign = np.uint64(1 << (fmt.bits - 1))
    if fmt.kind == "signed":
        return (codes & np.uint64((1 << fmt.bits) - 1)) ^ sign
    return np.where(codes & sign != 0, sign - _magnitude(codes, fmt), sign + _magnitude(codes, fmt))


@public_call
def ulp_distance(x: Any, y: Any) -> NDArray[np.uint64]:
    """Count the units in the last place between two arrays: neighbouring numbers are 1 apart.

    Parameters
    ----------
    x, y : arrays of one shape and dtype
        Of NumPy (with the dtypes of ml_dtypes), torch, JAX or CuPy.

    Returns
    -------
    array of uint64
        Both zeros are one number, and so are all NaNs; infinity comes after the largest number. NaN is 2**64 - 1 from anything else.

    Raises
    ------
    OperandError, OperandTypeError
        If shapes or dtypes differ, or the dtype is none of fastmma's formats.

    Examples
    --------
    >>> x = np.array([1, -1, 0, np.inf], np.float16)
    >>> ulp_distance(x, np.array([1 + 2**-10, 1, -0.0, 65504], np.float16)).tolist()
    [1, 30720, 0, 1]
    """
    first, second = host_array(x, "ulp_distance: x"), host_array(y, "ulp_distance: y")
    fmt = known_format(first.dtype)
    if fmt is None:
        raise OperandTypeError(f"ulp_distance: {first.dtype} is no format of fastmma")
    if first.dtype != second.dtype or first.shape != second.shape:
        raise OperandError(f"ulp_distance: x is {first.dtype} {first.shape}, but y is {second.dtype} {second.shape}")
    return distances(codes_of(first), codes_of(second), fmt)
