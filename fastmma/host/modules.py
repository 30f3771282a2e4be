"""Modules that are imported when they are needed: fastmma's own, on threads of their own, and libraries that are not always there."""

from __future__ import annotations

import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from fastmma.host.apart import call_apart
from fastmma.host.errors import BackendError


def import_apart(name: str) -> ModuleType:
    """Import one of fastmma's modules where no signal handler runs amid it, which would find a half of it.

    A handler that wants the same module waits for it, as another thread does.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return module
    if get_ident() != threading.main_thread().ident:  # handlers run on the main one alone
        return import_module(name)
    return call_apart(partial(_import_in_default_mode, name), _do_nothing)


def _import_in_default_mode(name: str) -> ModuleType:
    from fastmma.host.float_mode import in_default_mode

    return in_default_mode(import_module, name)


def import_at_end() -> None:
    """Have what Numba may need imported when main ends, if other threads go on: afterwards it cannot be, and now it takes milliseconds."""
    threading._register_atexit(_import_executors)  # type: ignore[attr-defined]


def _import_executors() -> None:
    """Import executors of threads amid the end of main: what they register for that moment is called at once."""
    if "concurrent.futures.thread" not in sys.modules and threading.active_count() > 1:
        register = threading._register_atexit  # type: ignore[attr-defined]
        threading._register_atexit = lambda function: function()  # type: ignore[attr-defined]
        try:
            import_module("concurrent.futures.thread")
        finally:
            threading._register_atexit = register  # type: ignore[attr-defined]


def _do_nothing() -> None:
    """Wait."""


def submodule_getter(package: str) -> Callable[[str], ModuleType]:
    """Make the ``__getattr__`` of a package, by which ``from package import module`` imports a module apart."""

    def get_submodule(name: str) -> ModuleType:
        full = f"{package}.{name}"
        if full not in sys.modules and (name.startswith("__") or find_spec(full) is None):
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        return import_apart(full)

    return get_submodule


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
