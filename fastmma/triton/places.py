"""The line of a kernel that runs: the innermost on the stack that is neither Triton's nor fastmma's."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from fastmma.host.caller import Libraries, folders_of

_MOST_DECORATED = 64  # lines of decorators
_LIBRARIES = Libraries(folders_of("triton", "numpy", "ml_dtypes"))


def find_running_line() -> FrameType:
    """Find the frame of the innermost line on the stack that belongs to a kernel, or else to who launched it."""
    frame = sys._getframe(2)
    while _LIBRARIES[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame


def find_innermost(lines: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    """Find the last of some lines, each a file and a number, that belongs to a kernel; None where there is none."""
    return next((one for one in reversed(lines) if not _LIBRARIES[one[0]]), None)


@lru_cache(maxsize=1 << 10)
def find_definition(code: CodeType) -> tuple[str, int]:
    """Find the file and the line where a function begins, below its decorators."""
    first, file = code.co_firstlineno, code.co_filename
    lines = range(first, first + _MOST_DECORATED)
    return file, next((one for one in lines if linecache.getline(file, one).lstrip().startswith("def ")), first)


@lru_cache(maxsize=1 << 14)
def find_line(code: CodeType, offset: int) -> int:
    """Return the line of an instruction."""
    return next(islice(code.co_positions(), offset // 2, None))[0] or code.co_firstlineno
