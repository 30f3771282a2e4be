"""What users pass as an array or an integer, made one."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError, OperandTypeError


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
    except (ValueError, TypeError, OverflowError) as error:
        raise OperandTypeError(f"{what} must be an array: {error}") from None
    if isinstance(value, np.ma.MaskedArray):
        raise OperandTypeError(f"{what} must be an array without a mask, not a masked array")
    if array.dtype.kind in "OT":
        raise OperandTypeError(f"{what} must be an array of numbers, not of {'Python objects' if array.dtype == object else 'strings'}")
    return array


def flag(value: Any, what: str) -> bool:
    """A truth value of Python or NumPy, or one of the integers 0 and 1, as a bool.

    Raises
    ------
    OperandError
        If it is anything else; arrays of one element too.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = whole(value)
    if number not in (0, 1):
        raise OperandError(f"{what} must be True or False, not {value!r}")
    return number == 1


def whole(value: Any) -> int | None:
    """An integer of Python or NumPy as an int; None for anything else, truth values among them."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
