"""Reports of programs: what every operation became, and which of them have not a GPU's bits or are not known to have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from fastmma.host import forks
from fastmma.host.errors import NotEmulatedError

EMULATED, ASSUMED, PASSED, NEUTRAL, UNSEEN = "emulated", "assumed", "passed", "neutral", "unseen"
STATUSES = {
    EMULATED: "has the GPU's bits",
    ASSUMED: "has the GPU's arithmetic, in an order of k or with an epilogue that is not known to be the library's",
    PASSED: "was computed by the library on this machine; a GPU's bits differ, or nobody compared them",
    NEUTRAL: "moves data, computes with integers, or has only results that IEEE 754 fixes: the bits are those of any machine",
    UNSEEN: "ran, and is in no list of fastmma: nothing is known of its bits",
}


LOCK = forks.shared_lock()  # of all reports: nothing is waited for under it


@dataclass(frozen=True)
class Line:
    """A kind of call.

    Attributes
    ----------
    operator : str
        The library's name for it, for example ``"aten.mm.default"``.
    status : {"emulated", "assumed", "passed", "neutral", "unseen"}
        `STATUSES` says what each one means.
    operands : str
        Dtypes and shapes.
    how : str
        The instruction and the plan, or the reason why it is not emulated.
    known : str
        How well the instruction's arithmetic is known: by definition, measured, recorded or reported; empty if there is no instruction.
    where : str
        The caller's file and line, if they are known.
    """

    operator: str
    status: str
    operands: str
    how: str
    known: str = ""
    where: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.operator, self.status, self.operands, self.how, self.known, self.where))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        parts = (self.operands, f": {self.how}" if self.how else "", f", {self.known}" if self.known else "")
        between = "  " if self.operands else ""
        return f"{self.operator}{between}{''.join(parts)}" + (f"  ({self.where})" if self.where else "")


Mark = Mapping[tuple[Line, str], int]


def line_at(line: Line, where: str) -> Line:
    """Say where a call was made, if that is known."""
    return replace(line, where=where) if where else line


class ClosedReport:
    """Counts of all operations of a program, each with one of five statuses.

    Attributes
    ----------
    target : str
    """

    wants_product = True  # nothing is proved by a program without a product

    def __init__(self, target: str) -> None:
        self.target = target
        self._counts: Counter[tuple[Line, str]] = Counter()

    def count(self, line: Line, where: str = "", number: int = 1) -> None:
        """Count calls of a kind that a line of the caller's made."""
        with LOCK:
            self._counts[line, where] += number

    def clear(self) -> None:
        """Forget everything."""
        with LOCK:
            self._counts.clear()

    def mark(self) -> Mark:
        """Remember what is counted now, for `between`."""
        with LOCK:
            return Counter(self._counts)

    def between(self, first: Mark | None, last: Mark) -> list[Line]:
        """List the kinds of calls that were counted from one mark, or from the beginning, to another."""
        before = first or {}
        return [line_at(line, where) for (line, where), n in last.items() if n > before.get((line, where), 0)]

    def lines(self, *statuses: str) -> list[tuple[Line, int]]:
        """List kinds of calls and how often they were made, in the order of their first calls; all, or those of some statuses."""
        with LOCK:
            found = list(self._counts.items())
        return [(line_at(line, where), number) for (line, where), number in found if not statuses or line.status in statuses]

    def total(self, status: str) -> int:
        """Count the calls of a status."""
        return sum(number for _, number in self.lines(status))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "target": self.target,
            **{status: self.total(status) for status in STATUSES},
            "calls": [{**asdict(line), "count": number} for line, number in self.lines()],
        }

    def assert_all_emulated(self, *, assumed: bool = False) -> None:
        """Raise unless every operation is emulated or neutral.

        Parameters
        ----------
        assumed : bool
            Tolerate products that took an order of k, or an epilogue, which is not known to be the library's.

        Raises
        ------
        NotEmulatedError
            It is an AssertionError, too, and names the calls that were assumed, passed or unseen. A program without any product raises
            as well, since it shows nothing.
        """
        wrong = self.lines(*(status for status in (ASSUMED, PASSED, UNSEEN) if not (assumed and status == ASSUMED)))
        if wrong:
            raise NotAllEmulatedError("not emulated:\n" + "\n".join(_text(line, number) for line, number in wrong))
        if not self.lines(EMULATED, *(() if self.wants_product else (NEUTRAL,)), *((ASSUMED,) if assumed else ())):
            raise NotAllEmulatedError(f"nothing was emulated: there was no {'product' if self.wants_product else 'operation'}")

    def _summary(self) -> str:
        numbers = {status: self.total(status) for status in STATUSES}
        calls = "call" if numbers[EMULATED] == 1 else "calls"
        rest = [
            f"{numbers[status]} {status}" for status in STATUSES if status != EMULATED and (numbers[status] or status in (ASSUMED, PASSED))
        ]
        return ", ".join([f"{numbers[EMULATED]} {calls} emulated", *rest])

    def __str__(self) -> str:
        shown = [_text(line, number) for line, number in self.lines(EMULATED, ASSUMED, PASSED, UNSEEN)]
        return "\n".join([f"emulated on {self.target}: {self._summary()}", *shown])

    def __repr__(self) -> str:
        return f"<Report of {self.target}: {self._summary()}>"


class Report(ClosedReport):
    """A count of what calls became.

    Attributes
    ----------
    target : str
    emulated, assumed, passed, neutral, unseen : int
        How many calls have each status.

    Examples
    --------
    >>> report = Report("sm_90a")
    >>> report.count(Line("aten.mm.default", EMULATED, "bf16 (8, 8) x (8, 8)", "wgmma", "measured"))
    >>> report.assert_all_emulated()
    >>> report.count(Line("aten.gelu.default", PASSED, "bf16 (8, 8)", "a GPU approximates it"), "model.py:12")
    >>> print(report)
    emulated on sm_90a: 1 call emulated, 0 assumed, 1 passed
      emulated      1  aten.mm.default  bf16 (8, 8) x (8, 8): wgmma, measured
      passed        1  aten.gelu.default  bf16 (8, 8): a GPU approximates it  (model.py:12)
    """

    @property
    def emulated(self) -> int:
        """Count the calls that have the GPU's bits."""
        return self.total(EMULATED)

    @property
    def assumed(self) -> int:
        """Count the calls whose order or epilogue is not known to be the library's."""
        return self.total(ASSUMED)

    @property
    def passed(self) -> int:
        """Count the calls that the library on this machine computed."""
        return self.total(PASSED)

    @property
    def neutral(self) -> int:
        """Count the calls that have the same bits on any machine."""
        return self.total(NEUTRAL)

    @property
    def unseen(self) -> int:
        """Count the calls that are in no list."""
        return self.total(UNSEEN)


class NotAllEmulatedError(NotEmulatedError, AssertionError):
    """Calls have not a GPU's bits, or are not known to have them."""


def _text(line: Line, number: int) -> str:
    return f"  {line.status:<8} {number:>6}  {line}"
