"""The output of a command: standard output or a file, in the format asked for or that the file's name tells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from fastmma.host.figures.files import BINARIES, TEXTS, save
from fastmma.host.figures.style import INK
from fastmma.host.files import write_text
from fastmma.operands.pictures.colours import lane_colour
from fastmma.operands.pictures.grid import Grid
from fastmma.operands.pictures.text import Table, asciidoc, csv_text, grid_table, markdown

if TYPE_CHECKING:
    from fastmma.host.figures.drawing import Drawing

TABLES = {"csv": csv_text, "markdown": markdown, "asciidoc": asciidoc}
PICTURES = (*TEXTS, *BINARIES)
FORMATS = ("text", *TABLES, "json", *PICTURES)
_SUFFIXES = {".txt": "text", ".md": "markdown", ".adoc": "asciidoc", ".tex": "tikz"}
_ENDLESS = 1_000_000  # a pipe or a file gets lines as long as they need to be


def chosen_format(given: str | None, output: Path | None) -> str:
    """The format: as given, else by the suffix of the file, else text."""
    if given is not None and given not in FORMATS:
        raise click.BadParameter(f"there is no format {given!r}; there are {', '.join(FORMATS)}")
    if given is None and output is not None:
        given = _SUFFIXES.get(output.suffix, output.suffix.removeprefix("."))
        if given not in FORMATS:
            raise click.BadParameter(f"{output.name} does not tell the format; give --format: {', '.join(FORMATS)}")
    if given in BINARIES and output is None:
        raise click.BadParameter(f"{given} needs --output FILE")
    return given or "text"


def write(text: str, output: Path | None) -> None:
    """Write text to a file or to standard output."""
    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)


def write_drawing(drawing: Drawing, chosen: str, output: Path | None) -> None:
    """Write a picture: SVG or TikZ, or PNG or PDF to a file."""
    if output is None:
        sys.stdout.write(TEXTS[chosen](drawing))
    else:
        save(drawing, output, chosen)


def text_table(table: Table) -> list[Text]:
    """Aligned columns."""
    headings, rows = table
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in (headings, *rows)]
    return [Text(lines[0], "bold"), *map(Text, lines[1:])]


def _grid_lines(grid: Grid, width: int) -> list[Text]:
    """A coloured grid, its columns in panels where the terminal is too narrow for all."""
    headings, rows = grid_table(grid)
    styles = [
        ["bold", *("" if box is None else f"{INK} on {lane_colour(box.lane)}" if _lit(grid, box.cells) else "dim" for box in boxes)]
        for boxes in grid.boxes
    ]
    first = max(len(row[0]) for row in rows)
    cell = max(len(each) for line in (headings, *rows) for each in line[1:])
    across = max(1, (width - first) // (cell + 1))
    lines = []
    for start in range(1, len(headings), across):
        columns = slice(start, start + across)
        labels = " ".join(heading.rjust(cell) for heading in headings[columns])
        lines += [Text(), Text(" " * (first + 1) + labels, "bold")]
        for row, style in zip(rows, styles, strict=True):
            line = Text().append(row[0].rjust(first), "bold")
            for each, how in zip(row[columns], style[columns], strict=True):
                line.append(" ").append(each.rjust(cell), how)
            lines.append(line)
    return lines


def _lit(grid: Grid, cells: Sequence[Any]) -> bool:
    return grid.highlight is None or not grid.highlight.isdisjoint(cells)


def print_lines(lines: Sequence[Text], output: Path | None) -> None:
    """Lines in colour to a terminal, plain anywhere else."""
    if output is not None:
        write("".join(line.plain + "\n" for line in lines), output)
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_ENDLESS)
    for line in lines:
        console.print(line, soft_wrap=True)


def grids_text(grids: Sequence[Grid], output: Path | None) -> list[Text]:
    """Titles and grids as lines of text, as wide as the terminal where there is one."""
    console = Console()
    width = console.width if output is None and console.is_terminal else _ENDLESS
    lines = []
    for grid in grids:
        lines += [Text(), Text(grid.title, "bold"), *_grid_lines(grid, width)]
    return lines[1:]
