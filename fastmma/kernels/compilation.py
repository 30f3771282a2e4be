"""How kernels are compiled, and found again on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit


@cache
def _state() -> str:
    """A digest of the sources of all kernels, which compile each other in."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel, compiled when it is first called and kept in Numba's cache.

    Numba names the cache's files after the function, does not see an edit in another file, and cannot read an index of classes that have
    gone; so the name carries the state of the sources.
    """
    function.__qualname__ = f"{function.__qualname__}.{_state()}"
    return njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)
