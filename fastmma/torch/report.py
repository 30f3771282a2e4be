"""Reports of torch's programs: calls with lines of their own, and tallies of neutral operators, which are many and cost little."""

from __future__ import annotations

from typing import Protocol

from fastmma.products import report as shared
from fastmma.products.report import ASSUMED, EMULATED, LOCK, NEUTRAL, PASSED, UNSEEN, Line, NotAllEmulatedError

__all__ = ["ASSUMED", "EMULATED", "NEUTRAL", "PASSED", "UNSEEN", "Line", "NotAllEmulatedError", "Report", "Tally"]


class Told(Protocol):
    """An operator with the line that its calls have in a report."""

    line: Line


Tally = dict[Told, int]  # of one thread, which adds to it without a lock


class Report(shared.Report):
    """Counts of operations by their status.

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
    >>> print(report)
    emulated on sm_90a: 1 call emulated, 0 assumed, 0 passed
      emulated      1  aten.mm.default  bf16 (8, 8) x (8, 8): wgmma, measured
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._tallies: list[Tally] = []

    def tally(self) -> Tally:
        """Open a tally for one thread."""
        opened: Tally = {}
        with LOCK:
            self._tallies.append(opened)
        return opened

    def settle(self, tally: Tally) -> None:
        """Close a tally: its counts become the report's."""
        with LOCK:
            self._tallies = [each for each in self._tallies if each is not tally]
        for told, number in tally.items():
            self.count(told.line, number=number)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        for tally in list(self._tallies):
            tally.clear()

    def lines(self, *statuses: str) -> list[tuple[Line, int]]:
        """List kinds of calls and how often each was made, in the order of first calls. Given statuses, list only those."""
        found = dict(super().lines(*statuses))
        for tally in list(self._tallies):
            for told, number in list(tally.items()):
                if not statuses or told.line.status in statuses:
                    found[told.line] = found.get(told.line, 0) + number
        return list(found.items())
