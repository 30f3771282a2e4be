"""Forks wait for threads and hold locks: a child has no other thread of its parent, but their locks, and all that they had begun.

So imports are finished before a fork, and compilation too; the locks of compilers are held across it, and given back in both processes.
"""

from __future__ import annotations

import logging  # noqa: F401 - hooks run in reverse order before a fork: its lock, which imports take, is to be taken after the wait for them
import os
import sys
import time
from _thread import RLock, get_ident
from functools import cached_property
from importlib import _bootstrap
from types import ModuleType
from typing import Any, Protocol

# what calls need: their modules are imported when they are first used, which a child can neither wait for nor repeat
_NEEDED = frozenset({"fastmma", "llvmlite", "ml_dtypes", "numba", "numpy"})
_PAUSE = 0.0009765625  # seconds between two looks at what is imported


class Lock(Protocol):
    """A reentrant lock."""

    def acquire(self) -> object:
        """Wait for it, and take it."""

    def release(self) -> object:
        """Give it back once."""


# of modules that are imported now, by name; Python says nowhere else whether another thread imports one
_modules: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
_locks: list[Lock] = []  # in the order in which they are taken
_forking: dict[int, list[Lock]] = {}  # the threads that fork, and what they hold


def hold_across_forks(lock: Lock, around: Lock | None = None) -> None:
    """Have forks wait for a lock, and hold it. It is taken within those that came before, but around one that is named."""
    _locks.insert(len(_locks) if around is None else _locks.index(around), lock)


def shared_lock(*, outermost: bool = False) -> RLock:
    """Make a reentrant lock that forks hold; who has an outermost one may wait for all others."""
    lock = RLock()
    _locks.insert(0, lock) if outermost else _locks.append(lock)
    return lock


def is_forking() -> bool:
    """Tell whether this thread is amid a fork: it may hold locks that another one would wait for."""
    return get_ident() in _forking


def _module_locks() -> list[tuple[str, Any]]:
    """The locks of needed modules that are imported now, by name."""
    return [(name, lock) for name, known in list(_modules.items()) if name.partition(".")[0] in _NEEDED and (lock := known()) is not None]


def _others_import() -> bool:
    """Tell whether another thread imports what calls need, and can finish that without this one."""
    me = get_ident()
    return any(lock.owner not in (None, me) and not lock.has_deadlock() for _, lock in _module_locks())


def _wait_for_imports() -> None:
    while True:
        time.sleep(0)  # whoever waits for the interpreter runs now, and not between the look and the fork
        if not _others_import():
            return
        time.sleep(_PAUSE)


def _prepare() -> None:
    """Wait for imports and compilation; hold the compilers' locks."""
    held = _forking[get_ident()] = []
    while True:
        _wait_for_imports()
        for lock in _locks:
            lock.acquire()
            held.append(lock)
        if not _others_import():
            return
        _release(held)  # an import may need them


def _release(held: list[Lock]) -> None:
    while held:
        held.pop().release()


def _go_on() -> None:
    """Give back what was held."""
    held = _forking.get(get_ident(), [])
    _release(held)
    _forking.pop(get_ident(), None)


def _begin() -> None:
    """Free a child of what its parent's other threads held."""
    held = _forking.get(get_ident(), [])
    _forking.clear()
    _release(held)
    _forget_imports()
    if sys.version_info < (3, 12):
        _renew_properties()


def _forget_imports() -> None:
    """Have imports that other threads began after the last look begin anew."""
    for name, lock in _module_locks():
        if lock.owner == get_ident():
            continue
        _modules.pop(name, None)
        module = sys.modules.get(name)
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            del sys.modules[name]


def _renew_properties() -> None:
    """Replace the locks of cached properties, which Python 3.11 has for each class."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fastmma."):
            for value in _own_classes(module):
                for member in vars(value).values():
                    if isinstance(member, cached_property):
                        member.lock = RLock()  # type: ignore[attr-defined]


def _own_classes(module: ModuleType) -> list[type]:
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_prepare, after_in_parent=_go_on, after_in_child=_begin)
