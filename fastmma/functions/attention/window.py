"""Keys that each query of flash attention sees: all, those up to its own place, or those in a window around it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_ROWS = 16  # of an instruction


class Window(NamedTuple):
    """Query i sees keys from i + first to i + last, where these are not None."""

    first: int | None = None
    last: int | None = None

    def rows(self, queries: int, start: int, stop: int) -> slice:
        """Return which queries, in whole instructions, see keys from `start` to `stop`; others may be left out."""
        low = 0 if self.last is None else min(max(start - self.last, 0), queries) // _ROWS * _ROWS
        high = queries if self.first is None else min(-(-max(stop - self.first, 0) // _ROWS) * _ROWS, queries)
        return slice(low, max(low, high))

    def ends(self, places: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
        """Count the keys from `start` up to the last, before `stop`, that queries at these places see."""
        whole = np.full(places.shape, stop - start, np.int64)
        return whole if self.last is None else np.clip(places + (1 + self.last - start), 0, stop - start)

    def hides(self, places: NDArray[np.int64], start: int, stop: int) -> NDArray[np.bool_]:
        """Tell which keys from `start` to `stop` queries at these places do not see: (query, key)."""
        columns = np.arange(stop - start)
        hidden = columns >= self.ends(places, start, stop)[:, None]
        return hidden if self.first is None else hidden | (columns < (places + (self.first - start))[:, None])

    def blocks_of(self, queries: int, keys: int, columns: int) -> int:
        """Count the blocks of so many keys that a query sees at most.

        Examples
        --------
        >>> Window().blocks_of(300, 300, 128), Window(-60, 0).blocks_of(300, 300, 128)
        (3, 2)
        """
        places = np.arange(queries)
        first = np.zeros(queries, np.int64) if self.first is None else np.clip(places + self.first, 0, keys)
        last = np.full(queries, keys - 1) if self.last is None else np.clip(places + self.last, -1, keys - 1)
        return int(np.max(np.where(last >= first, last // columns - first // columns + 1, 0), initial=0))


def place_window(queries: int, keys: int, causal: bool, window: tuple[int, int], longest: int | None = None) -> Window:
    """Return what queries see, as torch reads its arguments.

    Parameters
    ----------
    queries, keys : int
        Of a sequence.
    causal : bool
        A query sees no key after its own place, counted from the end of both.
    window : tuple of int
        How many keys before and after its own place a query sees; -1, or as many as there are keys: all.
    longest : int, optional
        The number of keys of the longest sequence of a call.

    Examples
    --------
    >>> place_window(5, 7, True, (-1, -1)), place_window(5, 7, False, (3, 1)), place_window(5, 7, False, (7, -1))
    (Window(first=None, last=2), Window(first=-1, last=3), Window(first=None, last=None))
    """
    longest = keys if longest is None else longest
    left, right = (size if 0 <= size < longest else None for size in window)
    if causal:
        right = 0
    elif left is not None and right is None:
        right = longest  # the kernel's limit is a number: queries far before the first key see none
    return Window(None if left is None else keys - queries - left, None if right is None else keys - queries + right)
