"""Floats are computed in the default mode of IEEE 754, whatever mode the caller's thread is in.

The mode is in the control register of a thread: how results are rounded, and whether subnormal numbers count as zero (FTZ and DAZ of
MXCSR, FZ of FPCR). Libraries change it, and a new thread inherits it from the one that started it.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fastmma.host.errors import BackendError

P = ParamSpec("P")
R = TypeVar("R")

# made without rounding, and without arithmetic on subnormals: the module may be compiled and imported in any mode
_SUBNORMAL: float = struct.unpack("=d", (1).to_bytes(8, sys.byteorder))[0]
_LEAST_NORMAL = math.ldexp(1.0, -1022)
_ZERO, _ONE = 0.0, 1.0
_MORE_THAN_HALF = math.ldexp((1 << 52) + 1, -53)  # of the least normal number: subnormal, and not exact
_QUARTER_OF_UNIT, _MOST_OF_UNIT = math.ldexp(1.0, -54), math.ldexp(3.0, -54)


class _Control(NamedTuple):
    """The functions by which a platform reads and writes the whole mode of a thread, into and out of memory that `new` makes."""

    new: Callable[[], Any]
    read: Callable[[Any], object]
    write: Callable[[Any], object]
    default: Any


def _of_c_library(library: ctypes.CDLL) -> _Control:
    """``<fenv.h>``; its ``FE_DFL_ENV`` is an object where the library exports one, and the address -1 in glibc and musl."""
    environment = ctypes.c_uint64 * 32  # room for any platform's
    default: Any = ctypes.c_void_p(-1)
    for name in ("_FE_DFL_ENV", "__fe_dfl_env"):  # macOS; FreeBSD and Android
        if hasattr(library, name):
            default = ctypes.byref(ctypes.c_char.in_dll(library, name))
    return _Control(environment, library.fegetenv, library.fesetenv, default)


def _of_windows(library: ctypes.CDLL) -> _Control:
    """``_controlfp_s``, whose default rounding and treatment of subnormals are both 0."""
    mask, unused = 0x03000300, ctypes.c_uint()  # _MCW_DN | _MCW_RC
    return _Control(
        ctypes.c_uint,
        lambda mode: library._controlfp_s(ctypes.byref(mode), 0, 0),
        lambda mode: library._controlfp_s(ctypes.byref(unused), mode, mask),
        ctypes.c_uint(0),
    )


@cache
def _control() -> _Control | None:
    """Return what this platform has, or None. `PyDLL` keeps the GIL: a hand-over between threads would cost more than the calls."""
    if sys.platform == "win32":
        return _of_windows(ctypes.PyDLL("ucrtbase"))
    for name in (None, "libm.so.6"):
        try:
            library = ctypes.PyDLL(name)
        except OSError:
            continue
        if hasattr(library, "fegetenv") and hasattr(library, "fesetenv"):
            return _of_c_library(library)
    return None


def is_default() -> bool:
    """Tell whether this thread rounds to nearest and keeps subnormal numbers: its arithmetic tells, sooner than its control register."""
    keeps_subnormals = _SUBNORMAL > _ZERO and _LEAST_NORMAL * _MORE_THAN_HALF > _ZERO
    return keeps_subnormals and _ONE + _QUARTER_OF_UNIT == _ONE and _ONE + _MOST_OF_UNIT > _ONE


def in_default_mode(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in the default mode, and leave the mode as it was found, with its flags of exceptions.

    Raises
    ------
    BackendError
        If the mode is another one, and this platform does not show how to change it.
    """
    if is_default():
        return function(*args, **kwargs)
    control = _control()
    if control is None:
        raise BackendError("this thread's floating-point mode is not the default one, and this platform does not show how to change it")
    new, read, write, default = control
    found = new()
    read(found)
    try:
        write(default)
        if not is_default():
            raise BackendError("this thread's floating-point mode is not the default one, and cannot be set to it")
        return function(*args, **kwargs)
    finally:
        write(found)


def default_floats(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function compute in the default mode."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return in_default_mode(function, *args, **kwargs)

    return run
