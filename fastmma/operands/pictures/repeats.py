"""Repeats in a layout: the smallest block of a matrix whose copies, moved by whole lanes and registers, make up the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# of rows and columns; a smaller block shows too little
_SMALLEST = 8


@dataclass(frozen=True)
class Repeat:
    """A block and its copies along one axis: each is `size` rows, columns or matrices on, in lanes and registers so much higher."""

    axis: str
    size: int
    count: int
    lanes: int
    registers: int


def repeat(
    axis: str, lane: NDArray[np.intp], register: NDArray[np.intp], bit: NDArray[np.intp], smallest: int = _SMALLEST
) -> Repeat | None:
    """Return what repeats along the first dimension; None where nothing does.

    Parameters
    ----------
    axis : str
        What the result calls the dimension.
    lane, register, bit : (n, ...) array of int
        Where each element is held.
    smallest : int
        Of the size of a block.
    """
    length = len(lane)
    for size in range(smallest, length // 2 + 1):
        if length % size == 0 and (bit[size:] == bit[:-size]).all():
            steps = [places[size:] - places[:-size] for places in (lane, register)]
            if all((step == step.flat[0]).all() for step in steps):
                return Repeat(axis, size, length // size, int(steps[0].flat[0]), int(steps[1].flat[0]))
    return None


def told(found: Repeat, variable: str, held: str = "registers") -> str:
    """A repeat in words: ``columns + 8 p: registers + 4 p, p < 32``."""
    moved = ((found.lanes, "lanes"), (found.registers, held))
    steps = ", ".join(f"{name} {'+' if step > 0 else '-'} {_times(abs(step), variable)}" for step, name in moved if step)
    return f"{found.axis} + {_times(found.size, variable)}: {steps or 'the same'}, {variable} < {found.count}"


def _times(step: int, variable: str) -> str:
    return variable if step == 1 else f"{step} {variable}"
