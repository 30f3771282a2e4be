"""How far a command is: a bar with the time left on a terminal, and a line every few seconds where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Show = Callable[[int, int, str], None]
_EVERY = 5.0  # seconds between lines
_COLUMNS = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())


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


class Lines:
    """Progress as lines, for a log.

    Parameters
    ----------
    what : str
        The command.
    write : callable
        Takes a line.
    now : callable
        The time in seconds.
    """

    def __init__(self, what: str, write: Callable[[str], object], now: Callable[[], float] = time.monotonic) -> None:
        self._what, self._write, self._now = what, write, now
        self._begin = self._last = now()

    def show(self, done: int, total: int, text: str) -> None:
        """Write a line, if the last one was long enough ago."""
        now = self._now()
        if now - self._last < _EVERY:
            return
        self._last = now
        spent = now - self._begin
        left = f", about {duration(spent / done * (total - done))} left" if done else ""
        self._write(f"{self._what}: {done} of {total}, {duration(spent)}{left}: {text}\n")


@contextmanager
def watched(what: str) -> Iterator[Show]:
    """Show on standard error how far a command is; what is shown takes the number of finished parts, that of all, and a text."""
    console = Console(stderr=True)
    if not console.is_terminal:

        def write(line: str) -> None:
            sys.stderr.write(line)
            sys.stderr.flush()

        yield Lines(what, write).show
        return
    with Progress(*_COLUMNS, TextColumn("{task.description}", markup=False), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
