"""The caller's line that an operation belongs to: the one that is told, as for a graph, or else the innermost on the stack."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fastmma.host.caller import Libraries, find_frame, folders_of

_GENERATED = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "torchinductor_")
LIBRARIES = Libraries((*folders_of("torch"), "<eval_with_key>", _GENERATED))
_told: ContextVar[str] = ContextVar("told", default="")


def where() -> str:
    """Name the caller's file and line; nothing where there is no caller.

    Examples
    --------
    >>> with belong_to("model.py:12"):
    ...     print(where())
    model.py:12
    """
    told = _told.get()
    found = None if told else find_frame(LIBRARIES)
    return f"{found[0].f_code.co_filename}:{found[0].f_lineno}" if found else told


@contextmanager
def belong_to(place: str) -> Iterator[None]:
    """Let operations belong to a line; an empty one tells nothing."""
    token = _told.set(place)
    try:
        yield
    finally:
        _told.reset(token)
