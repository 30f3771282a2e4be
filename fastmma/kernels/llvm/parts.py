"""Python functions that kernels are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


class Part:
    """A function that kernels alone call. One that is not `inlined` is too large to be repeated wherever it is called."""

    def __init__(self, function: Callable[..., Any], inlined: bool) -> None:
        update_wrapper(self, function)
        self.function, self.inlined = function, inlined
        self.jitted: Any = None  # what Numba calls, where it does

    def __call__(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{self.function.__qualname__} is called by kernels alone")
