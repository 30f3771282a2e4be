"""Conversions of what users pass as an array or an integer."""

from __future__ import annotations

import operator
from collections.abc import Collection
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
        raise OperandTypeError(f"{what} must be an array: {error}{_of_torch(value)}") from None
    if isinstance(value, np.ma.MaskedArray):
        raise OperandTypeError(f"{what} must be an array without a mask, not a masked array")
    if array.dtype.kind in "OT":
        kind = "Python objects" if array.dtype == object else "strings"
        raise OperandTypeError(f"{what} must be an array of numbers, not {_class_of(value) or f'of {kind}'}")
    return array


def _of_torch(value: Any) -> str:
    """Say how a tensor of torch becomes an array, if it is one; else say nothing."""
    return "; fastmma.torch.to_numpy(tensor) makes an array of it" if type(value).__module__.partition(".")[0] == "torch" else ""


def _class_of(value: Any) -> str:
    """Name the class of a block-scaled array, and what multiplies it; the empty text for others."""
    scaled = type(value).__module__.startswith("fastmma.scaling")
    return f"a {type(value).__name__}; fastmma.scaled_matmul multiplies block-scaled arrays" if scaled else ""


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


def integer(value: Any, what: str, least: int, unit: str = "") -> int:
    """An integer of Python or NumPy of at least `least` that fits into 64 bits, as an int.

    Raises
    ------
    OperandError
    """
    found = whole(value)
    if found is None or found < least:
        raise OperandError(f"{what} must be an integer of at least {least}{unit and ' '}{unit}, not {value!r}")
    if found >> 63:
        raise OperandError(f"{what} must be below 2**63, not {value!r}")
    return found


def one_of(value: Any, allowed: Collection[int], what: str) -> int:
    """An integer of Python or NumPy that is one of those allowed, as an int.

    Raises
    ------
    OperandError
    """
    found = whole(value)
    if found is None or found not in allowed:
        raise OperandError(f"{what} must be one of {', '.join(map(str, allowed))}, not {value!r}")
    return found


def axis_of(value: Any, dimensions: int, where: str = "") -> int:
    """An axis of an array, which may count from the end, counted from the start.

    Raises
    ------
    OperandError
    """
    found = whole(value)
    if found is None or not -dimensions <= found < dimensions:
        raise OperandError(f"axis must be an integer from {-dimensions} to {dimensions - 1}{where}, not {value!r}")
    return found % dimensions


def check_string(value: Any, what: str) -> None:
    """Raise OperandTypeError unless a value is a string."""
    if not isinstance(value, str):
        raise OperandTypeError(f"{what} must be a string, not {type(value).__name__}")


def whole(value: Any) -> int | None:
    """An integer of Python or NumPy as an int; None for anything else, truth values among them."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
