"""Many steps in short: a line for each, of one explanation or of two side by side."""

from __future__ import annotations

from fastmma.explanation.derivation import Derivation
from fastmma.explanation.numbers import Table, both, hexadecimal, number_text, span
from fastmma.explanation.steps import Step, sum_of
from fastmma.isa.formats import FORMATS

_MOST = 40  # rows of two explanations; of more, those around the first difference are shown
_BEFORE, _AFTER = 4, 12


def overview(shown: Derivation) -> Table:
    """Return what each step loses in alignment and in rounding, and its result."""
    rows = []
    for number, step in enumerate(shown.steps):
        lost = sum_of([term.lost for term in step.terms])
        cells = [str(number), _where(step), "" if step.emax is None else str(step.emax), both(lost) if lost.significand else ""]
        cells += [both(step.dropped) if step.dropped.significand else "", number_text(step.code, FORMATS[step.format])]
        rows.append(cells)
    return Table(["step", "", "emax", "lost in alignment", "dropped by rounding", "result"], rows)


def _where(step: Step) -> str:
    """The k of a step, or what it is."""
    if step.stage != "instruction":
        return f"{step.stage}, {step.operation}"
    return span(step.k) if step.k[1] > step.k[0] else step.operation


def sums(shown: Derivation) -> Table:
    """The results of the steps of two explanations side by side; the first difference is marked."""
    other, difference = shown.against, shown.difference
    assert other is not None
    headings = ["", shown.label, other.label if other.label != shown.label else "the other"]
    marked = {id(step) for step in ((*difference.steps, *difference.other_steps) if difference else ())}
    columns: list[dict[tuple[str, int, int], tuple[str, bool]]] = []
    for each in (shown, other):
        column: dict[tuple[str, int, int], tuple[str, bool]] = {}
        counts: dict[tuple[str, int], int] = {}
        for step in each.steps:
            reached = step.stage, step.k[1]
            counts[reached] = counts.get(reached, 0) + 1
            column[(*reached, counts[reached])] = f"{hexadecimal(step.code, FORMATS[step.format])} ({step.format})", id(step) in marked
        columns.append(column)
    rows = []
    for key in dict.fromkeys([*columns[0], *columns[1]]):
        found = [column.get(key, ("", False)) for column in columns]
        name = "" if key[0] == "instruction" else f", {key[0]}"
        rows.append((key[1], [f"to k {key[1]}{name}", found[0][0], found[1][0] + (" <" if found[0][1] or found[1][1] else "")]))
    rows.sort(key=lambda row: row[0])
    return Table(headings, _around([cells for _, cells in rows]))


def _around(rows: list[list[str]]) -> list[list[str]]:
    """Rows, or where they are many those around the first that is marked, and the last."""
    marked = [index for index, cells in enumerate(rows) if cells[-1].endswith("<")]
    if len(rows) <= _MOST:
        return rows
    first = max(0, marked[0] - _BEFORE) if marked else 0
    last = min(len(rows) - 1, (marked[-1] if marked else 0) + _AFTER)
    gap = ["..."] * len(rows[0])
    return [*([gap] if first else []), *rows[first:last], *([gap] if last < len(rows) - 1 else []), rows[-1]]
