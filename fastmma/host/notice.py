"""A line for whoever waits at a terminal while kernels are compiled, once a process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

_PATIENCE = 0.5  # seconds of compiling before anything is said
_LINE = "fastmma compiles kernels once; `fastmma warm` does it ahead\n"  # of less than 60 columns
_said = Lock()  # taken for good by the thread that says it
_spent = 0.0


@contextmanager
def compiling() -> Iterator[None]:
    """While a kernel is compiled: where that has taken long already, tell a terminal what it waits for."""
    global _spent
    if _spent >= _PATIENCE and sys.stderr is not None and sys.stderr.isatty() and _said.acquire(blocking=False):
        with suppress(OSError, ValueError):  # a terminal that is gone
            sys.stderr.write(_LINE)
            sys.stderr.flush()
    began, before = time.monotonic(), _spent
    try:
        yield
    finally:
        _spent = before + time.monotonic() - began  # a kernel that is compiled for another one is a part of it


def spent() -> float:
    """Seconds that this process has compiled kernels for."""
    return _spent
