"""The caller's line that an operation belongs to: the one that is told, as for a graph, or else the innermost on the stack."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FrameType

from fastmma.host.caller import Libraries, find_frame, folders_of

_GENERATED = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "torchinductor_")
LIBRARIES = Libraries((*folders_of("torch"), "<eval_with_key>", _GENERATED))
_told: ContextVar[str] = ContextVar("told", default="")
_OWN = 4  # frames


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


def find_code() -> tuple[CodeType | None, int, str]:
    """Find the caller's code and the place of its running instruction, or what is told: `where` in a third of the time.

    The innermost frames, which are not looked at, are those of `Tally.count`, of what calls it, and of torch's mode.
    """
    told = _told.get()
    if told:
        return None, 0, told
    try:
        frame: FrameType | None = sys._getframe(_OWN)
    except ValueError:  # the mode was not called from Python
        return None, 0, ""
    while frame is not None:
        code = frame.f_code
        if not LIBRARIES[code.co_filename]:
            return code, frame.f_lasti, ""
        frame = frame.f_back
    return None, 0, ""


def place_of(code: CodeType, instruction: int) -> str:
    """Name the file and line of an instruction.

    Examples
    --------
    >>> place_of(compile("x = 1", "model.py", "exec"), 2)
    'model.py:1'
    """
    line = next((line for start, stop, line in code.co_lines() if start <= instruction < stop), None)
    return f"{code.co_filename}:{line}"


@contextmanager
def belong_to(place: str) -> Iterator[None]:
    """Let operations belong to a line; an empty one tells nothing."""
    token = _told.set(place)
    try:
        yield
    finally:
        _told.reset(token)
