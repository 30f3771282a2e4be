"""Versions of libraries that fastmma was tested with."""

from __future__ import annotations

import re
import warnings

from fastmma.host.errors import VersionWarning

# the first and the last, by the numbers that `pyproject.toml` bounds
TESTED = {"numba": ((0, 61), (0, 68))}


def check_version(library: str, version: str) -> None:
    """Warn of a version that is newer than all that were tested: its compiler may make other code, or none.

    Examples
    --------
    >>> check_version("numba", "0.68.1")
    """
    _, last = TESTED[library]
    found = tuple(map(int, re.findall(r"\d+", version)[: len(last)]))
    if found > last:
        newest = ".".join(map(str, last))
        warn_of_version(library, f"{library} {version} is newer than {newest}, the last version that fastmma was tested with")


def warn_of_version(library: str, problem: str) -> None:
    """Warn of a version: what is wrong with it, and what to do."""
    newest = ".".join(map(str, TESTED[library][1]))
    warnings.warn(f"{problem}: compare its results, by `fastmma verify`, or install {library} {newest}", VersionWarning, stacklevel=3)
