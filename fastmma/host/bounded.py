"""A dict that forgets its oldest entry when it is full."""

from __future__ import annotations

from typing import TypeVar

from fastmma.host import forks

Key = TypeVar("Key")
Value = TypeVar("Value")
FULL = 4096
_LOCK = forks.shared_lock()


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

    def keep(self, key: Key, value: Value) -> None:
        """Add an entry."""
        with _LOCK:
            if len(self) >= self._full and key not in self:
                del self[next(iter(self))]
            self[key] = value
