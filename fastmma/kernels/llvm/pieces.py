"""Pieces of a product that threads take without the interpreter: compiled code hands them out, phase after phase.

A thread that has run out of pieces of a phase waits until the others have done theirs, so a product wakes its threads once. Helpers sleep
in compiled code, too, where they need not wait for the interpreter's lock one after another.
"""

from __future__ import annotations

import _thread
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.apart import start_thread
from fastmma.host.latches import make_latch, take
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.llvm.piece_loops import END, LINES_OF_PHASE, OFFER, SERVE, TAKE, WORD, Loop, SystemFunctions
from fastmma.kernels.matrices.memory import LINE, AlignedMemory

_WORDS = LINE // WORD
_LOOKS = 1 << 12  # of a caller at pieces of others, before it looks for signals


class Phase(NamedTuple):
    """Calls of a phase: pieces by calls by numbers, the first of which is the address of a function that takes that of the others.

    The number at the place `scratch` becomes the address of the memory of the worker that does the call.
    """

    records: NDArray[np.int64]
    scratch: int


def _bound(loop: MicroKernel, *numbers: int) -> Callable[[], None]:
    """A loop with its arguments, which is a function of C."""
    given = struct.pack(f"={len(numbers)}q", *numbers)
    return partial(loop.function(Loop()), given)  # type: ignore[arg-type]  # ctypes takes the address of bytes


class _Helper:
    """A thread that helps with one product at a time, and sleeps otherwise."""

    def __init__(self) -> None:
        lock = make_latch()
        take(lock)
        self._line = AlignedMemory(LINE, zeroed=True)
        self._words = self._line.array((_WORDS,), np.int64)
        self._words[4] = lock.value
        self._memory = AlignedMemory(0)
        self.address, self._size = self._line.address, -1
        start_thread(_bound(SERVE, self.address, SystemFunctions.acquire, SystemFunctions.other()))

    def prepare(self, size: int) -> None:
        """Have memory of so many bytes."""
        if size > self._size:
            self._memory, self._size = AlignedMemory(size), size
            self._words[3] = self._memory.address


class _Crew:
    """The helpers of this process, for as long as it lives: a product borrows those that are idle."""

    def __init__(self) -> None:
        self._count = 0
        self._starting = _thread.RLock()  # a signal handler may come while threads are started, and start more
        self.idle: deque[_Helper] = deque()

    def lend(self, wanted: int, size: int, lent: list[_Helper]) -> None:
        """Lend at most so many, started if there are fewer in all, with memory of so many bytes."""
        if self._count < wanted:
            with self._starting:
                try:
                    while self._count < wanted:
                        self.idle.append(_Helper())
                        self._count += 1
                except MemoryError:
                    pass
        while len(lent) < wanted:
            try:
                lent.append(self.idle.pop())
            except IndexError:
                break
        for each in lent:
            each.prepare(size)


class _Own(threading.local):
    """Of each thread: the helpers of its present products, and what ends their help."""

    def __init__(self) -> None:
        self.products: list[tuple[list[_Helper], Callable[[], None]]] = []


_own = _Own()
_crew = _Crew()


def _go_on_alone() -> None:
    """Before a fork amid products of this thread, end the pieces of their helpers, which a child does not have."""
    for _, end in _own.products:
        end()


def _forget_helpers() -> None:
    """A forked child has none: threads exist only in the parent."""
    global _crew
    _crew = _Crew()
    for lent, _ in _own.products:
        lent.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_go_on_alone, after_in_child=_forget_helpers)


def run_phases(phases: Sequence[Phase], threads: int, scratch: int) -> None:
    """Do the calls of phases on threads, each phase after the one before, each piece by one worker with `scratch` bytes of memory.

    Between the pieces that the caller takes, signal handlers run; an exception of one is raised here after all workers have stopped.
    """
    memory = AlignedMemory(LINE * (1 + LINES_OF_PHASE * len(phases)), scratch, zeroed=True)
    words = memory.array((1 + LINES_OF_PHASE * len(phases), _WORDS), np.int64)
    for number, phase in enumerate(phases):
        words[1 + LINES_OF_PHASE * number, :5] = phase.records.ctypes.data, *phase.records.shape, phase.scratch
    product, own = memory.addresses
    lent: list[_Helper] = []
    try:
        _crew.lend(min(threads, max(len(phase.records) for phase in phases)) - 1, scratch, lent)
        addresses = np.array([each.address for each in lent], np.int64)
        given = addresses.ctypes.data, product, len(lent), len(phases)
        end, offer = _bound(END, *given, SystemFunctions.other()), _bound(OFFER, *given, SystemFunctions.release)
        run = _bound(TAKE, product, own, len(phases), _LOOKS, SystemFunctions.other())
        taken, last = words[-2], len(phases[-1].records)
        _own.products.append((lent, end))
        try:
            offer()
            while taken[0] < last:
                run()
        finally:
            end()  # of C: no signal handler runs in it, nor before it after an exception
    finally:
        if _own.products and _own.products[-1][0] is lent:
            _own.products.pop()
        _crew.idle.extend(lent)
