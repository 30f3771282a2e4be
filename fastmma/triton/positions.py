"""The position of an operation in a kernel, and whether a value reached it without passing around a loop.

The compiler joins a product with the addition that uses it (a fused multiply-add, a dot that starts from its addend) where both lie in
the same stretch of code. A value that a loop carries to its next iteration, or out of it, is not joined. The interpreter runs kernels as
Python code, whose frames say where each operation stands.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import triton
from triton.runtime.interpreter import GridExecutor

_TRITON = str(Path(triton.__file__).parent)
_OURS = str(Path(__file__).parent)
_LIBRARY = (str(Path(_TRITON, "language", "standard.py")), str(Path(_TRITON, "language", "random.py")))  # kernels' code, too
_LAUNCH = GridExecutor.__call__.__code__


class Place(NamedTuple):
    """A function call that is running, and how far it has come."""

    frame: int
    code: CodeType
    offset: int


Position = tuple[Place, ...]


@lru_cache(maxsize=1 << 12)
def _is_kernel(name: str) -> bool:
    return name in _LIBRARY or not name.startswith((_TRITON, _OURS))


@lru_cache(maxsize=1 << 10)
def _loops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """First and last offset of every loop."""
    return tuple((step.argval, step.offset) for step in dis.get_instructions(code) if "JUMP_BACKWARD" in step.opname)


@lru_cache(maxsize=1 << 14)
def _loops_around(code: CodeType, offset: int) -> frozenset[tuple[int, int]]:
    return frozenset(loop for loop in _loops(code) if loop[0] <= offset <= loop[1])


def position() -> Position:
    """Return where the kernel stands that runs in this thread, outermost call first."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None and frame.f_code is not _LAUNCH:
        if _is_kernel(frame.f_code.co_filename):
            found.append(Place(id(frame), frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(reversed(found))


@lru_cache(maxsize=1 << 14)
def _line_and_column(code: CodeType, offset: int) -> tuple[int, int]:
    """Counted as the compiler counts them; codes of the same text in two files are equal, and so have the same."""
    first, _, column, _ = next(islice(code.co_positions(), offset // 2, None))
    return first or 0, (column or 0) + 1


def _site(place: Place) -> tuple[str, int, int]:
    return place.code.co_filename, *_line_and_column(place.code, place.offset)


def site(where: Position) -> tuple[str, int, int]:
    """File, line and column of a position."""
    return _site(where[-1])


def sites(where: Position) -> tuple[tuple[str, int, int], ...]:
    """The sites of all calls that lead to a position, outermost first."""
    return tuple(map(_site, where))


def straight(start: Position, end: Position) -> bool:
    """Tell whether code runs from one position to the other without the end of an iteration between them."""
    for index, (first, last) in enumerate(zip(start, end, strict=False)):
        if first.frame != last.frame:
            return False
        if first.offset != last.offset:
            inner = (*start[index + 1 :], *end[index + 1 :])
            same = _loops_around(first.code, first.offset) == _loops_around(last.code, last.offset)
            return first.offset < last.offset and same and not any(_loops_around(place.code, place.offset) for place in inner)
    return True
