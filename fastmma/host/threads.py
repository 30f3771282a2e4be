"""Work in pieces on a few threads; results never depend on how many there are."""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from math import isqrt
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from fastmma.host.apart import call_apart, start_thread
from fastmma.host.environment import of_call, variable
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import in_default_mode
from fastmma.host.latches import Latch, make_latch, put_away, release, take, take_all

P = ParamSpec("P")
R = TypeVar("R")
_MAX_THREADS = 1024
_PAUSE = 0.0009765625  # seconds between two looks at whether helpers are busy


class _Allowed(threading.local):
    """Of each thread: how many its calls may take that do not say."""

    threads: int | None = None


_allowed = _Allowed()


def with_threads(threads: int | None, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, within which ``threads=None`` means `threads`."""
    before = _allowed.threads
    _allowed.threads = threads
    try:
        return function(*args, **kwargs)
    finally:
        _allowed.threads = before


def thread_count(threads: int | None = None) -> int:
    """Resolve a ``threads=`` argument: itself, else that of `with_threads`, ``FASTMMA_NUM_THREADS``, or the usable cores.

    Raises
    ------
    OperandError
        If the number is not an integer from 1 to 1024.
    """
    threads = _allowed.threads if threads is None else threads
    source: object = threads
    name = "threads"
    if threads is None:
        source = variable("FASTMMA_NUM_THREADS") or None
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


def worth_waking(threads: int, wakings: int) -> int:
    """Return how many of the threads pay for work that takes one of them so many times as long as to wake another.

    The caller wakes one after another, and they take turns: n threads pay from n**2 wakings on.
    """
    return min(threads, max(isqrt(wakings), 1))


class _Work:
    """Pieces of a range, which several workers take one after the other."""

    __slots__ = ("_ticket", "alone", "busy", "count", "error", "function", "grain", "pieces", "used")

    def __init__(self, function: Callable[[int, int, int], None], count: int, grain: int) -> None:
        self.function, self.count, self.grain = function, count, grain
        self.pieces = -(-count // grain)
        self.error: BaseException | None = None  # the first one; no piece begins after it
        self.used: list[Latch] = []  # those that a helper took
        self.alone = False  # whether helpers are to take no more pieces
        self.busy: list[int] = []  # helpers with a piece
        self._ticket = itertools.count()  # next() on it is atomic

    def do(self, worker: int) -> None:
        """Take pieces until there are none, or until one has failed."""
        try:
            in_default_mode(self._help if worker else self._finish, worker)
        except BaseException as error:
            self.fail(error)

    def _finish(self, worker: int) -> None:
        while self._take(worker):
            pass

    def _help(self, worker: int) -> None:
        taken = True
        while taken:
            self.busy.append(worker)  # before it looks: whoever has it alone sees a helper busy, or the helper sees that
            try:
                taken = not self.alone and self._take(worker)
            finally:
                self.busy.remove(worker)

    def _take(self, worker: int) -> bool:
        """Take the next piece, if there is one."""
        piece = next(self._ticket)
        if self.error is not None or piece >= self.pieces:
            return False
        start = piece * self.grain
        self.function(start, min(start + self.grain, self.count), worker)
        return True

    def fail(self, error: BaseException) -> None:
        """Have the call given up, and keep the first reason."""
        if self.error is None:
            self.error = error


class _Helpers:
    """Threads that wait for calls to help with, for as long as the process lives.

    A thread that cannot be started, for want of memory or because Python is shutting down, means that calls have fewer helpers.
    """

    def __init__(self) -> None:
        self._count = 0
        self._starting = _thread.RLock()  # a signal handler may come while threads are started, and start more
        self._calls: SimpleQueue[tuple[_Work, int, Latch]] = SimpleQueue()

    def available(self, wanted: int) -> int:
        """Start the wanted helpers that are missing, and return how many there are. A long queue: all are busy, or have ended."""
        if self._calls.qsize() > _MAX_THREADS:
            return 0
        if self._count < wanted:
            with self._starting:
                try:
                    while self._count < wanted:
                        start_thread(self._serve)
                        self._count += 1
                except MemoryError:
                    pass
        return min(wanted, self._count)

    def call(self, work: _Work, worker: int, latch: Latch) -> None:
        """Ask one of them to take the latch and take part."""
        self._calls.put((work, worker, latch))

    def _serve(self) -> None:
        while True:
            try:
                self._help(*self._calls.get())
            except MemoryError:
                continue  # the call has one helper less

    @staticmethod
    def _help(work: _Work, worker: int, latch: Latch) -> None:
        if not take(latch):
            put_away(latch)
            return
        try:
            work.used.append(latch)
            _helped.work = work
            work.do(worker)
        finally:
            _helped.work = None
            release(latch)


class _Helped(threading.local):
    """Of each thread: what it helps with."""

    work: _Work | None = None


_helped = _Helped()
_helpers = _Helpers()


def _own_calls() -> Iterator[tuple[_Work, list[Latch]]]:
    """Find the calls that this thread is amid: they stand on its stack."""
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        if frame.f_code is parallel_for.__code__ and "close" in frame.f_locals:
            yield frame.f_locals["work"], frame.f_locals["latches"]


def _go_on_alone() -> None:
    """Before a fork amid calls of this thread, end the pieces of their helpers, which a child does not have."""
    for work, _ in _own_calls():
        work.alone = True
        while work.busy:
            time.sleep(_PAUSE)


def _forget_helpers() -> None:
    """A forked child has none: threads exist only in the parent."""
    global _helpers
    _helpers = _Helpers()
    for work, latches in _own_calls():
        work.used.clear()
        for latch in latches:  # nobody has it any more, whoever took it
            take(latch)
            release(latch)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_go_on_alone, after_in_child=_forget_helpers)


def _in_turn(function: Callable[[int, int, int], None], count: int, grain: int) -> None:
    """Take all pieces, on this thread alone."""
    for start in range(0, count, grain):
        function(start, min(start + grain, count), 0)


def parallel_for(function: Callable[[int, int, int], None], count: int, threads: int, grain: int = 1) -> None:
    """Call ``function(start, stop, worker)`` over ``range(count)`` in pieces of `grain`.

    Workers (numbered from 0, at most `threads`) pull pieces one at a time, so that a busy core delays only its own piece.
    The function must release the GIL, and different pieces must write to different places.

    The first exception, be it of a piece or of a signal handler, is raised here after all workers have stopped: nothing writes into the
    caller's memory afterwards. A piece that has begun is finished, so pieces are to be short: Ctrl-C is answered after the present ones.
    """
    if count <= 0:
        return
    if threads == 1 or count <= grain:
        if count <= grain:
            in_default_mode(function, 0, count, 0)
        else:
            in_default_mode(_in_turn, function, count, grain)
        return
    work = _Work(function, count, grain)
    latches: list[Latch] = []
    close = take_all(latches)
    try:
        # Python runs signal handlers when a call has ended or a loop goes on: between an exception and the last latch taken nothing does
        try:
            for worker in range(1, 1 + _helpers.available(min(threads, work.pieces) - 1)):
                latches.append(make_latch())
                _helpers.call(work, worker, latches[-1])
            work.do(0)  # by the caller's own thread
        except BaseException as error:
            if work.error is None:
                work.error = error
        finally:
            all(close)
    except BaseException as error:
        work.fail(error)
    del work.function  # a helper that has not noticed the call yet keeps no operands alive
    for latch in work.used:
        put_away(latch)
    if work.error is not None:
        try:
            raise work.error
        finally:
            work.error = None  # its traceback knows this frame


def give_way() -> None:
    """Leave a long piece of a call that has been given up meanwhile.

    Raises
    ------
    InterruptedError
        Nobody sees it: the call raises its first exception.
    """
    work = _helped.work
    if work is not None and work.error is not None:
        raise InterruptedError("the call has been given up")


def call_uninterrupted(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that must not be interrupted halfway on a thread of its own, which signal handlers never run on.

    A signal handler may raise here meanwhile: the function goes on by itself, and its result is lost.
    """
    read = of_call.found

    def run() -> R:
        of_call.found = read
        return in_default_mode(function, *args, **kwargs)

    return call_apart(run, give_way)
