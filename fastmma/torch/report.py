"""What was emulated, and what was not."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fastmma.host.errors import NotEmulatedError

EMULATED, ASSUMED, PASSED = "emulated", "assumed", "passed"


@dataclass(frozen=True)
class Line:
    """One kind of call.

    Attributes
    ----------
    operator : str
        As torch names it, for example ``"aten.mm.default"``.
    status : {"emulated", "assumed", "passed"}
        With the GPU's bits; with the bits of a tensor core, but in an order of k, or with an epilogue, that is not known to be the
        library's; or computed by torch.
    operands : str
        Dtypes and shapes.
    how : str
        By which instruction and plan, or why not.
    known : str
        How well the instruction's arithmetic is known: measured, recorded or reported; empty where torch computed.
    """

    operator: str
    status: str
    operands: str
    how: str
    known: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.operator, self.status, self.operands, self.how, self.known))

    def __hash__(self) -> int:
        return self._hash


class Report:
    """What calls became of, counted.

    Attributes
    ----------
    target : str

    Examples
    --------
    >>> report = Report("sm_90a")
    >>> report.count(Line("aten.mm.default", EMULATED, "bf16 (8, 8) x (8, 8)", "wgmma", "measured"))
    >>> report.assert_all_emulated()
    >>> print(report)
    emulated on sm_90a: 1 call emulated, 0 assumed, 0 passed
      emulated      1  aten.mm.default  bf16 (8, 8) x (8, 8): wgmma, measured
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._counts: Counter[Line] = Counter()
        self._lock = threading.Lock()

    def count(self, line: Line) -> None:
        """One call more."""
        with self._lock:
            self._counts[line] += 1

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._counts.clear()

    def lines(self, *statuses: str) -> list[tuple[Line, int]]:
        """Kinds of calls and how often they were made, in the order of their first calls; all, or those of some statuses."""
        with self._lock:
            found = list(self._counts.items())
        return [(line, number) for line, number in found if not statuses or line.status in statuses]

    def total(self, status: str) -> int:
        """How many calls have a status."""
        return sum(number for _, number in self.lines(status))

    @property
    def emulated(self) -> int:
        """How many calls were computed with the GPU's bits."""
        return self.total(EMULATED)

    @property
    def assumed(self) -> int:
        """How many calls took an order or an epilogue that is not known to be the library's."""
        return self.total(ASSUMED)

    @property
    def passed(self) -> int:
        """How many products and attentions torch computed."""
        return self.total(PASSED)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "target": self.target,
            **{status: self.total(status) for status in (EMULATED, ASSUMED, PASSED)},
            "calls": [{**asdict(line), "count": number} for line, number in self.lines()],
        }

    def assert_all_emulated(self, *, assumed: bool = True) -> None:
        """Raise unless products were emulated, and none was passed to torch.

        Parameters
        ----------
        assumed : bool
            Whether products count that took an order of k which is not known to be the library's.

        Raises
        ------
        NotEmulatedError
            It is an AssertionError, too, and names the calls.
        """
        wrong = self.lines(PASSED) if assumed else self.lines(PASSED, ASSUMED)
        if wrong:
            raise NotAllEmulatedError("not emulated:\n" + "\n".join(_text(line, number) for line, number in wrong))
        if not self.lines():
            raise NotAllEmulatedError("nothing was emulated: there was no product")

    def __str__(self) -> str:
        calls = "call" if self.emulated == 1 else "calls"
        head = f"emulated on {self.target}: {self.emulated} {calls} emulated, {self.assumed} assumed, {self.passed} passed"
        return "\n".join([head, *(_text(line, number) for line, number in self.lines())])

    def __repr__(self) -> str:
        return f"<Report of {self.target}: {self.emulated} emulated, {self.assumed} assumed, {self.passed} passed>"


class NotAllEmulatedError(NotEmulatedError, AssertionError):
    """Calls were passed to torch that were to be emulated."""


def _text(line: Line, number: int) -> str:
    known = f", {line.known}" if line.known else ""
    return f"  {line.status:<8} {number:>6}  {line.operator}  {line.operands}: {line.how}{known}"
