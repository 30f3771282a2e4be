"""Tables on a terminal, in Markdown and in JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastmma.isa.targets import NO_PTX

Rows = Iterable[Sequence[str]]
Choices = tuple[str, ...]
_ENDLESS = 100_000  # a pipe or a file gets lines as long as they need to be


def merged(rows: list[tuple[Choices, ...]], column: int) -> list[tuple[Choices, ...]]:
    """Join the rows that differ in one column only."""
    groups: defaultdict[tuple[Choices, ...], list[str]] = defaultdict(list)
    for row in rows:
        groups[row[:column] + row[column + 1 :]] += row[column]
    return [(*rest[:column], tuple(choices), *rest[column:]) for rest, choices in groups.items()]


def _console() -> Console:
    """Return standard output; without a terminal it is as wide as COLUMNS says, or takes lines of any length."""
    console = Console(highlight=False)
    told = os.environ.get("COLUMNS", "").isdecimal()
    return console if console.is_terminal or told else Console(highlight=False, width=_ENDLESS)


def print_table(headings: Sequence[str], rows: Rows, title: str = "") -> None:
    """Print a table to standard output; on a terminal that is too narrow for it, the cells of a row one below the other."""
    listed = [list(row) for row in rows]
    console = _console()
    natural = sum(max(map(len, column)) + 1 for column in zip(headings, *listed, strict=True)) - 1
    if natural <= console.width:
        table = Table(*headings, title=Text(title, "bold") if title else None, title_justify="left", box=None, pad_edge=False)
        for row in listed:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        console.print(table)
        return
    if title:
        console.print(Text(_wrapped(title, console.width, ""), "bold"))
    names = max(map(len, headings[1:]))
    for first, *others in listed:
        console.print(Text(_wrapped(first, console.width, ""), "bold"))
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell:
                console.print(Text(f"  {heading.ljust(names)}  {_wrapped(cell, console.width, ' ' * (names + 4))}"))


def print_wrapped(text: str, indent: str = "") -> None:
    """Print a text to standard output; lines break between words, and all but the first are indented."""
    console = _console()
    console.print(Text("\n".join(_lines(text, console.width, indent))))


def print_text(text: str) -> None:
    """Print lines to standard output; those that are wider than the terminal go on two columns further in."""
    console = _console()
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        console.print(Text("\n".join(_lines(line, console.width, indent))))


def _lines(text: str, width: int, indent: str) -> list[str]:
    """The lines of a text that is wider than a terminal, all but the first indented."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(20, width), subsequent_indent=indent, break_on_hyphens=False)


def _wrapped(text: str, width: int, indent: str) -> str:
    """Lines that end where the terminal does, all but the first indented."""
    return f"\n{indent}".join(textwrap.wrap(text, max(20, width - len(indent)), break_on_hyphens=False) or [""])


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
