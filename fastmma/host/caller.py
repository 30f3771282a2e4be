"""The caller's place in the source: the first line on the stack that belongs to no library."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

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


def find_caller(folders: tuple[str, ...]) -> Caller | None:
    """Find the innermost line on the stack that lies in none of some folders; None on a thread that no such line started.

    Examples
    --------
    >>> find_caller(folders_of()).line
    1
    """
    frame, level = sys._getframe(1), 1
    while frame.f_code.co_filename.startswith(folders):
        if frame.f_back is None:
            return None
        frame, level = frame.f_back, level + 1
    return Caller(frame.f_code.co_filename, frame.f_lineno, level)
