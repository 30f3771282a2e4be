"""A dict that forgets its oldest entry when it is full."""

from __future__ import annotations

import threading
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
FULL = 4096


class Bounded(dict[Key, Value]):
    """A cache of at most `full` entries, which threads share.

    Examples
    --------
    >>> last = Bounded(full=2)
    >>> for key in "abc":
    ...     last.keep(key, key.upper())
    >>> last
    {'b': 'B', 'c': 'C'}
    """

    def __init__(self, full: int = FULL) -> None:
        super().__init__()
        self._full = full
        self._lock = threading.Lock()

    def keep(self, key: Key, value: Value) -> None:
        """Add an entry."""
        with self._lock:
            if len(self) >= self._full and key not in self:
                del self[next(iter(self))]
            self[key] = value
