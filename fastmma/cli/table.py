"""Tables on a terminal, in Markdown and in JSON."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastmma.cli.terminal import bold, folded, show, width
from fastmma.isa.targets import NO_PTX

Rows = Iterable[Sequence[str]]
Choices = tuple[str, ...]
_GAP = "  "  # between columns


def merged(rows: list[tuple[Choices, ...]], column: int) -> list[tuple[Choices, ...]]:
    """Join the rows that differ in one column only."""
    groups: defaultdict[tuple[Choices, ...], list[str]] = defaultdict(list)
    for row in rows:
        groups[row[:column] + row[column + 1 :]] += row[column]
    return [(*rest[:column], tuple(choices), *rest[column:]) for rest, choices in groups.items()]


def print_table(headings: Sequence[str], rows: Rows, title: str = "") -> None:
    """Print a table to standard output; on a terminal that is too narrow for it, the cells of a row one below the other."""
    listed, columns = [list(row) for row in rows], width()
    widths = [max(map(len, column)) for column in zip(headings, *listed, strict=True)]
    if title:
        _print_bold(title, columns)
    if sum(widths) + len(_GAP) * (len(widths) - 1) <= columns:
        show(bold(_row(headings, widths)))
        sys.stdout.writelines(_row(row, widths) + "\n" for row in listed)
        return
    names = max(map(len, headings[1:]))
    for first, *others in listed:
        _print_bold(first, columns)
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell:
                lines = folded(cell, columns - names - 4)
                show(f"  {heading.ljust(names)}  " + f"\n{' ' * (names + 4)}".join(lines))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)).rstrip()


def _print_bold(text: str, columns: int) -> None:
    for line in folded(text, columns):
        show(bold(line))


def print_wrapped(text: str, indent: str = "") -> None:
    """Print a text to standard output; lines break between words, and all but the first are indented."""
    for line in folded(text, width(), indent):
        show(line)


def print_text(text: str) -> None:
    """Print lines to standard output; those that are wider than the terminal go on two columns further in."""
    columns = width()
    for line in text.splitlines():
        for part in folded(line, columns, " " * (len(line) - len(line.lstrip()) + 2)):
            show(part)


def print_markdown(headings: Sequence[str], rows: Rows) -> None:
    """Print a Markdown table to standard output."""
    lines = [headings, ["---"] * len(headings), *rows]
    sys.stdout.writelines(f"| {' | '.join(line)} |\n" for line in lines)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any) -> None:
    """Print standard JSON to standard output, which has no NaN and no infinities: they become null."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, allow_nan=False) + "\n")


def version_text(ptx: tuple[int, int]) -> str:
    """A PTX version; empty for what is none of PTX's."""
    return "" if ptx == NO_PTX else f"{ptx[0]}.{ptx[1]}"


def spans(targets: Sequence[str], known: Sequence[str]) -> str:
    """Targets in short: a run that reaches the last known one is written ``sm_80 and later``."""
    if len(targets) > 1 and targets[0] in known and tuple(targets) == tuple(known[known.index(targets[0]) :]):
        return f"{targets[0]} and later"
    return ", ".join(targets)
