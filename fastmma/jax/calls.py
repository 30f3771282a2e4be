"""Calls that fastmma computes within programs of JAX: each counts in a report when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Primitive
from numpy.typing import NDArray

from fastmma.jax.report import Line, Report, find_current
from fastmma.products.report import ASSUMED, EMULATED

own_dot_general_p = Primitive("fastmma_dot_general")

TRITON = "k ascending, as Triton compiles kernels of Pallas"
ONE_ACCUMULATOR = "one accumulator, k ascending: XLA tunes tiles and parts of k by time"


@dataclass(frozen=True)
class Call:
    """A function of arrays in main memory, as a callback of JAX; equal ones are compiled once.

    Attributes
    ----------
    function : callable
    options : tuple of (str, value)
        Its keyword arguments.
    line : Line
    where : str
        The caller's file and line.
    report : Report, optional
        Where it counts; None: in the innermost emulation's, if there is one.
    """

    function: Callable[..., NDArray[Any]]
    options: tuple[tuple[str, Any], ...]
    line: Line
    where: str = ""
    report: Report | None = None

    def __call__(self, *arrays: Any) -> NDArray[Any]:
        """Compute, and count."""
        found = self.function(*arrays, **dict(self.options))
        report = self.report or find_current()
        if report is not None:
            report.count(self.line, self.where)
        return found


def make_line(operator: str, operands: str, plan: Any, how: str, guess: str) -> Line:
    """Make the line of a product that takes a plan; `guess` says what of it is not known, and is empty where nothing is."""
    known = plan.operation.arithmetic.evidence.level
    return Line(operator, ASSUMED if guess else EMULATED, operands, f"{how}; {guess}" if guess else how, known)


def describe(*operands: Any) -> str:
    """Write dtypes and shapes of operands.

    Examples
    --------
    >>> import numpy as np
    >>> describe(np.zeros((2, 3), np.float32), np.int32(1))
    'float32 (2, 3) x int32 ()'
    """
    typed = [each for each in operands if getattr(each, "dtype", None) is not None]
    return " x ".join(f"{getattr(each.dtype, 'name', each.dtype)} {tuple(each.shape)}" for each in typed)


def write_place(place: tuple[str, int] | None) -> str:
    """Write a file and a line; nothing where they are not known."""
    return "" if place is None else f"{place[0]}:{place[1]}"
