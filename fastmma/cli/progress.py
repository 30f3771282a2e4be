"""The progress of a command: a bar with the time left on a terminal, and a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from fastmma.cli.terminal import columns_of
from fastmma.host import notice

_EVERY = 5.0  # seconds between lines
_STATES = 10  # of a bar in a second, at most
_LENGTH = 24  # characters of a bar


class Show(Protocol):
    """Tell the number of finished parts, that of all, and perhaps which one was the last."""

    def __call__(self, done: int, total: int, text: str = "", /) -> None: ...


def duration(seconds: float) -> str:
    """Seconds for people.

    Examples
    --------
    >>> duration(4.2), duration(75), duration(4000)
    ('4 s', '1 min 15 s', '1 h 6 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Clock:
    """The time that a command has run, and the time that it will take.

    Parameters
    ----------
    now : callable
        The time in seconds.
    compiled : callable
        The seconds of it in which kernels were compiled: later parts find them compiled.
    work : sequence of float
        What each part takes beside the others; empty where they take alike.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, compiled: Callable[[], float] = notice.spent, work: Sequence[float] = ()
    ) -> None:
        self._now, self._compiled, self._work = now, compiled, work
        self._begin, self._before = now(), compiled()

    def spent(self) -> float:
        """Seconds since the command began."""
        return self._now() - self._begin

    def _left(self, spent: float, done: int, total: int) -> str:
        """The time left where parts are done, and nothing where none is."""
        working = max(spent - (self._compiled() - self._before), 0.0)
        behind, ahead = (sum(self._work[:done]), sum(self._work[done:])) if self._work else (done, total - done)
        return f"about {duration(working / behind * ahead)} left" if behind else ""

    def told(self, spent: float, done: int, total: int) -> str:
        """Tell how much is done, in what time, and how long the rest will take."""
        return ", ".join(filter(None, (f"{done} of {total}", duration(spent), self._left(spent, done, total))))


class Lines:
    """Progress as lines, for a log.

    Parameters
    ----------
    what : str
        The command.
    write : callable
        Takes a line.
    clock : Clock
        Which begins with the command.
    """

    def __init__(self, what: str, write: Callable[[str], object], clock: Clock) -> None:
        self._what, self._write, self._clock = what, write, clock
        self._last = 0.0

    def show(self, done: int, total: int, text: str = "") -> None:
        """Write a line, if the last one was long enough ago and something is left."""
        spent = self._clock.spent()
        if done == total or spent - self._last < _EVERY:
            return
        self._last = spent
        self._write(f"{self._what}: {self._clock.told(spent, done, total)}{text and f': {text}'}\n")


class Bar:
    """Progress as a line of a terminal, which is written again where it stands, and taken away at the end.

    Parameters
    ----------
    label : str
        What is done.
    write : callable
        Takes text.
    clock : Clock
        Which begins with the command.
    """

    def __init__(self, label: str, write: Callable[[str], object], clock: Clock) -> None:
        self._label, self._write, self._clock = label, write, clock
        self._next = 0.0

    def show(self, done: int, total: int, text: str = "") -> None:
        """Draw the bar, if that was long enough ago."""
        spent = self._clock.spent()
        if spent < self._next:
            return
        self._next = spent + 1 / _STATES
        full = _LENGTH * done // total if total else 0
        self._draw(f"{self._label} {'#' * full:-<{_LENGTH}} {self._clock.told(spent, done, total)}{text and f'  {text}'}")

    def take_away(self) -> None:
        """Leave an empty line where the bar was."""
        if self._next:
            self._draw("")

    def _draw(self, line: str) -> None:
        columns = columns_of(sys.stderr) - 1  # in the last one some terminals begin a new line
        self._write(f"\r{line[:columns]:<{columns}}\r")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def on_terminal() -> bool:
    """Tell whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def bar(label: str, work: Sequence[float] = ()) -> Iterator[Show]:
    """Show on standard error how far a command is, if that is a terminal."""
    if not on_terminal():
        yield lambda *_: None
        return
    drawn = Bar(label, _write, Clock(work=work))
    try:
        yield drawn.show
    finally:
        drawn.take_away()


@contextmanager
def watched(what: str, work: Sequence[float] = ()) -> Iterator[Show]:
    """Show on standard error how far a command is: as a bar on a terminal, and a line every few seconds elsewhere."""
    if on_terminal():
        with bar(what, work) as show:
            yield show
    elif sys.stderr is None:
        yield lambda *_: None
    else:
        yield Lines(what, _write, Clock(work=work)).show
