"""How kernels are compiled, and found again on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

_KERNELS = Path(__file__).parents[1]


@cache
def sources() -> str:
    """A digest of the sources of all kernels, which compile each other in; Numba's cache notices an edit of one file only."""
    digest = hashlib.sha256()
    for source in sorted(_KERNELS.rglob("*.py")):
        digest.update(source.relative_to(_KERNELS).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel, compiled when it is first called and kept in Numba's cache.

    Numba names the cache's files after the function, does not see an edit in another file, and cannot read an index of classes that have
    gone; so the name carries the state of the sources.
    """
    function.__qualname__ = f"{function.__qualname__}.{sources()}"
    return njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)
