"""A lock on an open file, which the system forgets when the process ends, however it ends."""

from __future__ import annotations

import os
from typing import IO

_FAR = (1 << 31) - 2  # Windows locks bytes, which nobody else may read or write then: the last that it can, behind the end of the file


def lock(file: IO[bytes]) -> bool:
    """Keep other processes from locking the file for as long as it is open; False where another has locked it."""
    try:
        import fcntl
    except ImportError:
        return _lock_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _lock_on_windows(file: IO[bytes]) -> bool:
    from importlib import import_module

    msvcrt = import_module("msvcrt")
    here = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    try:
        os.lseek(file.fileno(), _FAR, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(file.fileno(), here, os.SEEK_SET)
    return True
