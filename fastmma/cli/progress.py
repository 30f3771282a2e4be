"""The progress of a command: a bar with the time left on a terminal, and a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fastmma.host import notice

Show = Callable[[int, int, str], None]
_EVERY = 5.0  # seconds between lines
_COLUMNS = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))


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
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, compiled: Callable[[], float] = notice.spent) -> None:
        self._now, self._compiled = now, compiled
        self._begin, self._before = now(), compiled()

    def spent(self) -> float:
        """Seconds since the command began."""
        return self._now() - self._begin

    def left(self, spent: float, done: int, total: int) -> str:
        """The time left where parts are done, and nothing where none is."""
        working = max(spent - (self._compiled() - self._before), 0.0)
        return f"about {duration(working / done * (total - done))} left" if done else ""


class Bar(Progress):
    """A bar that is shown, or is not: before Rich 14.3, one that is not shown ended with an empty line."""

    def stop(self) -> None:
        """Take the bar away, if it is there."""
        if not self.disable:
            super().stop()


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

    def show(self, done: int, total: int, text: str) -> None:
        """Write a line, if the last one was long enough ago."""
        spent = self._clock.spent()
        if spent - self._last < _EVERY:
            return
        self._last = spent
        told = (f"{done} of {total}", duration(spent), self._clock.left(spent, done, total))
        self._write(f"{self._what}: {', '.join(filter(None, told))}: {text}\n")


@contextmanager
def watched(what: str) -> Iterator[Show]:
    """Show on standard error how far a command is; what is shown takes the number of finished parts, that of all, and a text."""
    console, clock = Console(stderr=True), Clock()
    if not console.is_terminal:

        def write(line: str) -> None:
            sys.stderr.write(line)
            sys.stderr.flush()

        yield Lines(what, write, clock).show
        return
    with Progress(*_COLUMNS, TextColumn("{task.description}", markup=False), console=console, transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text, left=clock.left(clock.spent(), done, total))

        yield show


def counting_bar(label: str) -> tuple[Bar, TaskID]:
    """Make a bar on standard error that counts, where that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
    return bar, bar.add_task(label, total=None)
