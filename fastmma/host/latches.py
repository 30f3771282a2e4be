"""Latches: a worker takes one once, and who waits for it acquires the lock in one C call, which no signal handler interrupts.

Python runs signal handlers between two bytecodes, and `threading.Lock.acquire` runs them while it waits: a Ctrl-C can leave any wait that
is written in Python. Taken directly, the locks of CPython's C code run none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import filterfalse

Latch = ctypes.c_void_p

_python = ctypes.pythonapi  # calls through it keep the interpreter's lock
_without_interpreter = ctypes.CDLL(_python._name, handle=_python._handle)  # calls through it release that lock
_allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", _python))
_signature = ctypes.c_int, Latch, ctypes.c_int
_IN, _WAIT = 1, 1
_try = ctypes.PYFUNCTYPE(*_signature)(("PyThread_acquire_lock", _python), ((_IN, "lock"), (_IN, "wait", 0)))
_wait = ctypes.CFUNCTYPE(*_signature)(("PyThread_acquire_lock", _without_interpreter), ((_IN, "lock"), (_IN, "wait", _WAIT)))
_release = ctypes.PYFUNCTYPE(None, Latch)(("PyThread_release_lock", _python))
_spare: list[Latch] = []


def make_latch() -> Latch:
    """Return a latch that nobody has taken.

    Raises
    ------
    MemoryError
    """
    if _spare:
        try:
            return _spare.pop()
        except IndexError:  # another thread took it
            pass
    address = _allocate()
    if not address:
        raise MemoryError("no memory for a lock")
    return Latch(address)


def take(latch: Latch) -> bool:
    """Take a latch, unless somebody has it."""
    return bool(_try(latch))


def release(latch: Latch) -> None:
    """Release a latch, whatever happens: somebody may wait for it."""
    while True:
        try:
            _release(latch)
        except MemoryError:  # of the call, which has not begun
            continue
        return


def take_all(latches: list[Latch]) -> Iterator[int]:
    """Iterate over latches and take each as soon as nobody has it; ``all()`` of it is one step of C."""
    return map(_wait, filterfalse(_try, latches))


def put_away(latch: Latch) -> None:
    """Keep a latch, of which nobody else knows any more, for another time."""
    release(latch)
    _spare.append(latch)
