"""Tables on a terminal, in Markdown and in JSON."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Rows = Iterable[Sequence[str]]
Choices = tuple[str, ...]
_ENDLESS = 100_000  # a pipe or a file gets lines as long as they need to be


def merged(rows: list[tuple[Choices, ...]], column: int) -> list[tuple[Choices, ...]]:
    """Join the rows that differ in one column only."""
    groups: defaultdict[tuple[Choices, ...], list[str]] = defaultdict(list)
    for row in rows:
        groups[row[:column] + row[column + 1 :]] += row[column]
    return [(*rest[:column], tuple(choices), *rest[column:]) for rest, choices in groups.items()]


def print_table(headings: Sequence[str], rows: Rows, title: str = "") -> None:
    """Print to standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_ENDLESS)
    table = Table(*headings, title=Text(title, "bold") if title else None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    console.print(table)


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


def spans(targets: Sequence[str], known: Sequence[str]) -> str:
    """Targets in short: a run that reaches the last known one is written ``sm_80 and later``."""
    if len(targets) > 1 and tuple(targets) == tuple(known[known.index(targets[0]) :]):
        return f"{targets[0]} and later"
    return ", ".join(targets)
