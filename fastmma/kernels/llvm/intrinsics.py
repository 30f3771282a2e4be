"""Functions that emit LLVM code, called by kernels like any other."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


class Intrinsic:
    """A function of a context and the kinds of arguments; it returns a signature, and what emits the code. Kernels alone can call it."""

    def __init__(self, define: Callable[..., Any], prefer_literal: bool) -> None:
        update_wrapper(self, define)
        self.define, self.prefer_literal = define, prefer_literal
        self.jitted: Any = None  # what Numba calls, where it does

    def __call__(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} is called by kernels alone")  # type: ignore[attr-defined]


def intrinsic(define: Callable[..., Any] | None = None, *, prefer_literal: bool = False) -> Any:
    """Make an intrinsic; one that prefers literals is told numbers that are known."""
    if define is None:
        return lambda function: Intrinsic(function, prefer_literal)
    return Intrinsic(define, prefer_literal)
