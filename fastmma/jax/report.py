"""What was emulated, and what was not."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from fastmma.host.errors import NotEmulatedError

EMULATED, PASSED = "emulated", "passed"


@dataclass(frozen=True)
class Line:
    """One kind of call.

    Attributes
    ----------
    primitive : str
        ``"dot_general"`` or ``"scaled_matmul"``.
    status : {"emulated", "passed"}
        With the GPU's bits, or compiled by XLA for the CPU.
    operands : str
        Dtypes and shapes.
    how : str
        By which instruction and plan, or why not.
    """

    primitive: str
    status: str
    operands: str
    how: str


class Report:
    """What products became: emulated ones count each time they run, passed ones each time XLA compiles them.

    JAX runs calls later than it returns from them; ``jax.block_until_ready`` waits for what is to be counted.

    Attributes
    ----------
    target : str

    Examples
    --------
    >>> report = Report("sm_90a")
    >>> report.count(Line("dot_general", PASSED, "float32 (8, 8) x float32 (8, 8)", "not a product of tensor cores"))
    >>> print(report)
    on sm_90a: 0 products emulated, 1 passed
      passed        1  dot_general of float32 (8, 8) x float32 (8, 8): not a product of tensor cores
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._counts: Counter[Line] = Counter()
        self._lock = threading.Lock()

    def count(self, line: Line) -> None:
        """One call more."""
        with self._lock:
            self._counts[line] += 1

    def lines(self, status: str = "") -> list[tuple[Line, int]]:
        """Kinds of calls with their numbers, in the order of their first calls; all, or those of a status."""
        with self._lock:
            return [(line, number) for line, number in self._counts.items() if status in ("", line.status)]

    @property
    def emulated(self) -> int:
        """How many products ran with the GPU's bits."""
        return sum(number for _, number in self.lines(EMULATED))

    @property
    def passed(self) -> int:
        """How many products XLA compiled."""
        return sum(number for _, number in self.lines(PASSED))

    def assert_all_emulated(self) -> None:
        """Raise unless products were emulated, and none was passed to XLA.

        Raises
        ------
        NotEmulatedError
        """
        if self.passed or not self.emulated:
            raise NotEmulatedError(f"not all products were emulated\n{self}" if self.passed else "no product was emulated")

    def __str__(self) -> str:
        lines = [f"on {self.target}: {self.emulated} products emulated, {self.passed} passed"]
        lines += [f"  {line.status:<8} {number:6}  {line.primitive} of {line.operands}: {line.how}" for line, number in self.lines()]
        return "\n".join(lines)
