"""Doors: a worker goes through once, and who waits for it closes the door in one step of C, which no signal handler interrupts.

Python runs signal handlers between two bytecodes, and `threading.Lock.acquire` runs them while it waits: a Ctrl-C can leave any wait that
is written in Python. Taken directly, the locks of CPython's C code run none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import filterfalse

Door = ctypes.c_void_p

_python = ctypes.pythonapi  # calls through it keep the interpreter's lock
_letting_go = ctypes.CDLL(_python._name, handle=_python._handle)  # calls through it let go of that lock
_allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", _python))
_signature = ctypes.c_int, Door, ctypes.c_int
_IN, _WAIT = 1, 1
_try = ctypes.PYFUNCTYPE(*_signature)(("PyThread_acquire_lock", _python), ((_IN, "lock"), (_IN, "wait", 0)))
_wait = ctypes.CFUNCTYPE(*_signature)(("PyThread_acquire_lock", _letting_go), ((_IN, "lock"), (_IN, "wait", _WAIT)))
_release = ctypes.PYFUNCTYPE(None, Door)(("PyThread_release_lock", _python))
_spare: list[Door] = []


def open_door() -> Door:
    """A door that nobody has gone through.

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
    return Door(address)


def enter(door: Door) -> bool:
    """Go through, if the door is open."""
    return bool(_try(door))


def leave(door: Door) -> None:
    """Come back, whatever happens: somebody may wait for it."""
    while True:
        try:
            _release(door)
        except MemoryError:  # of the call, which has not begun
            continue
        return


def closing(doors: list[Door]) -> Iterator[int]:
    """An iterator that closes doors, each as soon as nobody is behind it; ``all()`` of it is one step of C."""
    return map(_wait, filterfalse(_try, doors))


def put_away(door: Door) -> None:
    """Keep a closed door, of which nobody else knows any more, for another time."""
    leave(door)
    _spare.append(door)
