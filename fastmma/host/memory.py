"""Limits of the memory that one array may take."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from fastmma.host.errors import OutOfMemoryError

_USUAL = 16 << 30  # bytes, where the system does not say how many there are
# what a container may use, in the two versions of Linux's control groups
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@cache
def array_bound() -> int:
    """The bytes of the largest array that is read or drawn: half of this machine's memory, since what is made of it takes as much again."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        found = _USUAL
    for limit in _LIMITS:
        try:
            found = min(found, int(limit.read_text()))
        except (OSError, ValueError):  # there is none
            continue
    return found // 2


def amount(size: int) -> str:
    """A number of bytes for people.

    Examples
    --------
    >>> amount(1000), amount(1 << 20), amount(3 << 29)
    ('1,000 bytes', '1 MiB', '1.5 GiB')
    """
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            tenths = size * 10 // unit
            return f"{tenths // 10:,}{f'.{tenths % 10}' if tenths % 10 else ''} {name}"
    return f"{size:,} bytes"


def check_fits(size: int, what: str) -> None:
    """Refuse arrays of that many bytes if they are too large for this machine: the system would end the process when they are filled.

    Raises
    ------
    OutOfMemoryError
    """
    if size > array_bound():
        bound = f"at most {amount(array_bound())}, half of what this machine has, may be taken"
        raise OutOfMemoryError(f"{what} takes {amount(size)} of memory, and {bound}")
