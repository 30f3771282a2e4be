"""Floating-point modes of the caller's thread: rounding, and subnormal numbers that count as zero, in MXCSR of x86."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from drivers.cases import Generator, one_of

AVAILABLE = sys.platform == "linux" and platform.machine() == "x86_64"
_MXCSR = 28  # bytes of the x87 part of fenv_t
_FLAGS = 0x3F  # exceptions that were raised
ROUNDING, FTZ, DAZ = (0x2000, 0x4000, 0x6000), 0x8000, 0x40
MODES = (*ROUNDING, FTZ, DAZ, FTZ | DAZ, FTZ | DAZ | 0x2000, FTZ | DAZ | 0x6000)


def _read() -> ctypes.Array[ctypes.c_uint8]:
    environment = (ctypes.c_uint8 * 32)()
    ctypes.PyDLL(None).fegetenv(environment)
    return environment


def mode() -> int:
    """The control bits of MXCSR."""
    return int.from_bytes(_read()[_MXCSR:], "little") & ~_FLAGS


@contextmanager
def changed(bits: int) -> Iterator[None]:
    """These bits set in MXCSR; they must be left so."""
    before = _read()
    value = int.from_bytes(before[_MXCSR:], "little") | bits
    written = (ctypes.c_uint8 * 32)(*before[:_MXCSR], *value.to_bytes(4, "little"))
    library = ctypes.PyDLL(None)
    library.fesetenv(written)
    try:
        yield
        left = mode()
    finally:
        library.fesetenv(before)
    assert left == value & ~_FLAGS, "the caller's floating-point mode was changed"


def drawn(rng: Generator) -> int:
    """A mode; three quarters of all are the default."""
    return int(one_of(rng, MODES)) if AVAILABLE and rng.random() < 0.25 else 0
