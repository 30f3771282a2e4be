"""Reports of torch's programs: calls with lines of their own, and tallies of those that are many and cost little."""

from __future__ import annotations

from collections import Counter
from types import CodeType
from typing import Protocol

from fastmma.products import report as shared
from fastmma.products.report import ASSUMED, EMULATED, LOCK, NEUTRAL, PASSED, UNSEEN, Line, Mark, NotAllEmulatedError, line_at
from fastmma.torch.places import find_code, place_of

__all__ = ["ASSUMED", "EMULATED", "NEUTRAL", "PASSED", "UNSEEN", "Line", "NotAllEmulatedError", "Report", "Tally"]


class Told(Protocol):
    """An operator, or what computes calls of one form, with the line that its calls have in a report; its identity is its key."""

    @property
    def line(self) -> Line:
        """Name the line."""


class _Calls:
    """Calls like an earlier one that an instruction of a caller made; its code is held, for its identity is a key."""

    __slots__ = ("code", "line", "number", "where")

    def __init__(self, line: Line, where: str, code: CodeType | None) -> None:
        self.line, self.where, self.number, self.code = line, where, 0, code


class Tally:
    """Calls of one thread, which adds to it without a lock: of neutral operators, wherever they are, and of calls like earlier ones."""

    def __init__(self) -> None:
        self.neutral: dict[Told, int] = {}
        self._calls: dict[tuple[Told, int | str, int], _Calls] = {}

    def count(self, told: Told, report: Report) -> None:
        """Count a call; the first of each place in the report, which lists calls in the order of their first ones.

        It is called by what torch's mode calls.
        """
        code, instruction, said = find_code()
        calls = self._calls.get((told, said or id(code), instruction))
        if calls is None:
            where = place_of(code, instruction) if code else said
            self._calls[told, said or id(code), instruction] = _Calls(told.line, where, code)
            report.count(told.line, where)
        else:
            calls.number += 1

    def calls(self) -> list[tuple[Line, str, int]]:
        """List lines, where their calls were made, and how many are not in the report."""
        return [(each.line, each.where, each.number) for each in list(self._calls.values())]

    def clear(self) -> None:
        """Forget everything."""
        self.neutral.clear()
        self._calls.clear()


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
        opened = Tally()
        with LOCK:
            self._tallies.append(opened)
        return opened

    def settle(self, tally: Tally) -> None:
        """Close a tally: its counts become the report's."""
        with LOCK:
            self._tallies = [each for each in self._tallies if each is not tally]
        for told, number in tally.neutral.items():
            self.count(told.line, number=number)
        for line, where, number in tally.calls():
            self.count(line, where, number)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        for tally in list(self._tallies):
            tally.clear()

    def mark(self) -> Mark:
        """Remember what is counted now, for `between`: all but neutral operators."""
        found = Counter(super().mark())
        for tally in list(self._tallies):
            for line, where, number in tally.calls():
                found[line, where] += number
        return found

    def lines(self, *statuses: str) -> list[tuple[Line, int]]:
        """List kinds of calls and how often each was made, in the order of first calls. Given statuses, list only those."""
        found = dict(super().lines(*statuses))
        for tally in list(self._tallies):
            calls = [(told.line, number) for told, number in list(tally.neutral.items())]
            calls += [(line_at(line, where), number) for line, where, number in tally.calls()]
            for line, number in calls:
                if not statuses or line.status in statuses:
                    found[line] = found.get(line, 0) + number
        return list(found.items())
