"""Results are those of round to nearest, whatever mode the caller's thread is in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_NEAREST = 0  # FE_TONEAREST of x86 and Arm


@cache
def _environment() -> ctypes.CDLL | None:
    """The C library with fegetround and fesetround, or None where Python's process does not show it."""
    try:
        library = ctypes.CDLL(None)
        return library if library.fegetround and library.fesetround else None
    except (OSError, TypeError, AttributeError):
        return None


def start_nearest() -> None:
    """Put this thread into round to nearest: a new thread inherits the mode of the one that started it."""
    library = _environment()
    if library is not None:
        library.fesetround(_NEAREST)


def to_nearest(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` in round to nearest, and leave the mode as the caller had it."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        library = _environment()
        before = _NEAREST if library is None else library.fegetround()
        if library is None or before == _NEAREST:
            return function(*args, **kwargs)
        library.fesetround(_NEAREST)
        try:
            return function(*args, **kwargs)
        finally:
            library.fesetround(before)

    return run
