"""Libraries that are not always there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastmma.host.errors import BackendError


def optional(name: str, what: str, install: str) -> Any:
    """A library that something needs.

    Raises
    ------
    BackendError
        If it is not installed: what needs it, and what installs it.
    """
    try:
        return import_module(name)
    except ImportError:
        raise BackendError(f"{what} {name.partition('.')[0]}: pip install {install}") from None
