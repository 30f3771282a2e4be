"""Conversions of what users pass as an integer, a truth value or a string, without NumPy."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

from fastmma.host.errors import OperandError, OperandTypeError


def flag(value: Any, what: str) -> bool:
    """A truth value of Python or NumPy, or one of the integers 0 and 1, as a bool.

    Raises
    ------
    OperandError
        If it is anything else; arrays of one element too.
    """
    if isinstance(value, bool) or _is_bool_of_numpy(value):
        return bool(value)
    number = whole(value)
    if number not in (0, 1):
        raise OperandError(f"{what} must be True or False, not {value!r}")
    return number == 1


def _is_bool_of_numpy(value: Any) -> bool:
    """Recognize NumPy's truth values by their names: NumPy itself takes longer to import than a command may."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


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
