"""The caller's place in the source: the first line on the stack that belongs to no library."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from fastmma.host.bounded import Bounded

_OWN = f"{Path(__file__).parents[1]}{os.sep}"


class Caller(NamedTuple):
    """A line of a caller's code.

    Attributes
    ----------
    file : str
    line : int
    level : int
        The ``stacklevel`` with which `warnings.warn`, called where `find_caller` is, points to this line.
    """

    file: str
    line: int
    level: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@lru_cache(1024)
def folders_of(*packages: str) -> tuple[str, ...]:
    """Return the beginnings of the names of files that belong to fastmma, to some packages, or to Python's own machinery.

    Examples
    --------
    >>> import numpy as np
    >>> np.__file__.startswith(folders_of("numpy"))
    True
    """
    found = [_OWN, contextlib.__file__, "<frozen ", "<__array_function__"]
    for package in packages:
        spec = find_spec(package)
        found += [f"{folder}{os.sep}" for folder in (spec.submodule_search_locations or () if spec else ())]
    return tuple(found)


class Libraries(Bounded[str, bool]):
    """Which files are a library's, by name, found out once: those in one of some folders.

    Examples
    --------
    >>> import numpy as np
    >>> Libraries(folders_of("numpy"))[np.__file__]
    True
    """

    def __init__(self, folders: tuple[str, ...]) -> None:
        super().__init__()
        self._folders = folders

    def __missing__(self, file: str) -> bool:
        found = file.startswith(self._folders)
        self.keep(file, found)
        return found


def find_frame(libraries: Libraries) -> tuple[FrameType, int] | None:
    """Find the innermost frame beyond its caller's that is no library's, and how far out it is; None where there is none."""
    frame, level = sys._getframe(2), 2
    while libraries[frame.f_code.co_filename]:
        if frame.f_back is None:
            return None
        frame, level = frame.f_back, level + 1
    return frame, level


def find_caller(libraries: Libraries) -> Caller | None:
    """Find the innermost line on the stack that is no library's; None on a thread that no such line started.

    Examples
    --------
    >>> find_caller(Libraries(folders_of())).line
    1
    """
    found = find_frame(libraries)
    return None if found is None else Caller(found[0].f_code.co_filename, found[0].f_lineno, found[1] - 1)
