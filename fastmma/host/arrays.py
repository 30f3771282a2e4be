"""Conversions of what users pass as an array."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandTypeError


class RawCodes(np.ndarray[Any, Any]):
    """An array from a library without the dtypes of ml_dtypes: its uint8 and uint16 may be codes of narrow floats."""


def as_array(value: Any, what: str) -> NDArray[Any]:
    """`numpy.asarray`, its failures, arrays of Python objects and masked arrays being errors that name the operand.

    Raises
    ------
    OperandTypeError
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # the last one is torch's
        raise OperandTypeError(f"{what} must be an array: {str(error).rstrip('.')}{_of_torch(value)}") from None
    if is_masked(value):
        raise OperandTypeError(f"{what} must be an array without a mask, not a masked array")
    if array.dtype.kind in "OT":
        raise OperandTypeError(f"{what} must be an array of numbers, not {_class_of(value) or _kind_of(value, array)}")
    return array


def is_masked(value: object) -> bool:
    """Tell whether a value is an array with a mask; only who imported `numpy.ma` has one, and its import takes as long as a product."""
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def _of_torch(value: Any) -> str:
    """Say how a tensor of torch becomes an array, if it is one; else say nothing."""
    return "; fastmma.torch.to_numpy(tensor) makes an array of it" if type(value).__module__.partition(".")[0] == "torch" else ""


def _kind_of(value: Any, array: NDArray[Any]) -> str:
    """Name what is no array of numbers: the elements of an array, or the class of a single object."""
    if array.ndim:
        return "of Python objects" if array.dtype == object else "of strings"
    return "None" if value is None else "a class" if isinstance(value, type) else f"a {type(value).__name__}"


def _class_of(value: Any) -> str:
    """Name the class of a block-scaled array, and what multiplies it; the empty text for others."""
    scaled = type(value).__module__.startswith("fastmma.scaling")
    return f"a {type(value).__name__}; fastmma.scaled_matmul multiplies block-scaled arrays" if scaled else ""
