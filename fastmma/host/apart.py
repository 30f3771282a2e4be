"""Functions on threads of their own, which signal handlers never run on."""

from __future__ import annotations

import _thread
import atexit
import mmap
import os
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from fastmma.host.forks import is_forking

R = TypeVar("R")
_FIRST_STEPS = 1 << 21  # bytes of address space, more than a thread takes before it can catch its own MemoryError
_PATIENCE = 0.0625  # seconds between two looks at whether anybody still waits for the result, and whether the thread is still there
_LONGEST = 60  # seconds that the end of the process waits for functions
_under_way: set[object] = set()  # what tells the end of each function that runs apart


def start_thread(function: Callable[[], None]) -> None:
    """Start a thread that has the memory of its first steps; if there is none, or Python is shutting down, raise MemoryError."""
    try:
        with mmap.mmap(-1, _FIRST_STEPS):  # given back before the thread gets the interpreter's lock, so it finds the room
            _thread.start_new_thread(function, ())
    except (RuntimeError, OSError) as error:
        raise MemoryError(str(error)) from None


def call_apart(function: Callable[[], R], meanwhile: Callable[[], None]) -> R:
    """Call a function on a thread of its own, and another one again and again until it has ended.

    A signal handler, or what is called meanwhile, may raise here: the function goes on by itself, and its result is lost. A forked child
    has no such thread, and calls the function anew. A thread that forks calls it itself, since it holds locks that another would wait for.
    """
    if is_forking():
        return function()
    context, ended, process = copy_context(), _thread.allocate_lock(), os.getpid()
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        _under_way.add(ended)
        try:
            results.append(context.run(function))
        except BaseException as error:
            errors.append(error)
        finally:
            _under_way.discard(ended)
            ended.release()

    ended.acquire()
    try:
        start_thread(run)
    except MemoryError:
        return function()
    while not ended.acquire(timeout=_PATIENCE) and not (results or errors):
        if os.getpid() != process:
            return call_apart(function, meanwhile)
        meanwhile()
    if errors:
        raise errors.pop()
    return results.pop()


def _wait_at_exit() -> None:
    """Wait until no function runs apart: the end of the process destroys what a compiler works with, which then crashes."""
    last = time.monotonic() + _LONGEST
    while _under_way and time.monotonic() < last:
        try:
            time.sleep(_PATIENCE)
        except KeyboardInterrupt:
            continue  # the process is ending


atexit.register(_wait_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)  # threads exist only in the parent
