"""A thread pool for nogil kernels; results never depend on how many threads there are."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fastmma.host.errors import OperandError
from fastmma.host.float_mode import in_default_mode

_MAX_THREADS = 1024
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def _forget_pool() -> None:
    """Drop the pool in a forked child: its threads exist only in the parent."""
    global _pool, _pool_size, _lock
    _pool, _pool_size, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def thread_count(threads: int | None = None) -> int:
    """Resolve a ``threads=`` argument: itself, else ``FASTMMA_NUM_THREADS``, else the usable cores.

    Raises
    ------
    OperandError
        If the number is not an integer from 1 to 1024.
    """
    source: object = threads
    name = "threads"
    if threads is None:
        source = os.environ.get("FASTMMA_NUM_THREADS") or None
        name = "FASTMMA_NUM_THREADS"
    if source is None:
        if hasattr(os, "sched_getaffinity"):
            return min(len(os.sched_getaffinity(0)), _MAX_THREADS)
        return min(os.cpu_count() or 1, _MAX_THREADS)
    try:
        count = int(source) if threads is None else source.__index__()  # type: ignore[attr-defined,call-overload]
    except (ValueError, AttributeError, TypeError):
        count = 0
    if isinstance(source, bool) or not 1 <= count <= _MAX_THREADS:
        raise OperandError(f"{name} must be an integer from 1 to {_MAX_THREADS}, not {source!r}")
    return int(count)


def _executor(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            # an older, smaller pool lets its running work finish and goes away by itself
            _pool, _pool_size = ThreadPoolExecutor(size, "fastmma"), size
        return _pool


def _in_turn(function: Callable[[int, int, int], None], count: int, grain: int) -> None:
    for start in range(0, count, grain):
        function(start, min(start + grain, count), 0)


def parallel_for(function: Callable[[int, int, int], None], count: int, threads: int, grain: int = 1) -> None:
    """Call ``function(start, stop, worker)`` over ``range(count)`` in pieces of `grain`.

    Workers (numbered from 0, at most `threads`) pull pieces one at a time, so that a busy core delays only its own piece.
    The function must release the GIL, and different pieces must write to different places.
    An exception in any piece is raised here after all workers have stopped.
    """
    pieces = -(-count // grain)
    workers = max(1, min(threads, pieces))
    if workers == 1:
        in_default_mode(_in_turn, function, count, grain)
        return
    ticket = itertools.count()  # next() on it is atomic
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            while not errors and (piece := next(ticket)) < pieces:
                start = piece * grain
                function(start, min(start + grain, count), worker)
        except BaseException as error:
            errors.append(error)

    # the caller's own thread is worker 0
    futures = [_executor(workers - 1).submit(in_default_mode, work, worker) for worker in range(1, workers)]
    in_default_mode(work, 0)
    for future in futures:
        future.result()
    if errors:
        raise errors[0]
