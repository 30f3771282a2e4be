"""Scratch memory that calls take over from earlier ones: to have it cleared and mapped anew takes longer than to fill it."""

from __future__ import annotations

from collections import deque

from fastmma.kernels.matrices.memory import AlignedMemory

_MOST = 1 << 28  # bytes that are kept at most: the packed operand of one large product, and what its threads had
_Kept = tuple[tuple[int, ...], AlignedMemory]  # with the sizes of its parts

_kept: deque[_Kept] = deque(maxlen=64)  # the last one was given back last


class Loan:
    """The memory of a call, until its end; that of a call that fails is freed."""

    def __init__(self) -> None:
        self._lent: list[_Kept] = []

    def memory(self, *sizes: int) -> AlignedMemory:
        """Lend memory in parts of these sizes in bytes, holding anything; threads may ask at the same time."""
        found = _take(sizes) or (sizes, AlignedMemory(*sizes))
        self._lent.append(found)
        return found[1]

    def end(self) -> None:
        """Keep the memory for others."""
        _kept.extend(self._lent)
        size = 0
        for each in reversed(list(_kept)):
            size += sum(each[0])
            if size > _MOST:
                _remove(each)


def _take(sizes: tuple[int, ...]) -> _Kept | None:
    """Take memory of just these sizes, if some is kept."""
    return next((each for each in reversed(list(_kept)) if each[0] == sizes and _remove(each)), None)


def _remove(each: _Kept) -> bool:
    """Keep memory no longer; False where another thread was sooner."""
    try:
        _kept.remove(each)
    except ValueError:
        return False
    return True
