"""Attributes of modules that other values take the place of for a while."""

from __future__ import annotations

from contextlib import ExitStack
from types import ModuleType
from typing import Any


def replace(stack: ExitStack, module: ModuleType, name: str, value: Any) -> None:
    """Put a value in the place of an attribute until a stack is closed, sooner than `unittest.mock` does.

    Examples
    --------
    >>> import math
    >>> with ExitStack() as stack:
    ...     replace(stack, math, "pi", 3)
    ...     math.pi
    3
    >>> math.pi > 3
    True
    """
    stack.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, value)
