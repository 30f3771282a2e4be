"""The output of a command: standard output or a file, in the format asked for or that the file's name tells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastmma.cli.terminal import ENDLESS, bold, colour, folded, show, styled, width
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


def text_table(table: Table) -> list[str]:
    """Aligned columns."""
    headings, rows = table
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in (headings, *rows)]
    return [bold(lines[0]), *lines[1:]]


def _grid_lines(grid: Grid, columns: int) -> list[str]:
    """A coloured grid, its columns in panels where the terminal is too narrow for all."""
    headings, rows = grid_table(grid)
    styles = [[_style(grid, box) for box in boxes] for boxes in grid.boxes]
    first = max(len(row[0]) for row in rows)
    cell = max(len(each) for line in (headings, *rows) for each in line[1:])
    across = max(1, (columns - first) // (cell + 1))
    lines = []
    for start in range(1, len(headings), across):
        panel = slice(start, start + across)
        lines += ["", bold(" " * (first + 1) + " ".join(heading.rjust(cell) for heading in headings[panel]))]
        for row, style in zip(rows, styles, strict=True):
            cells = (styled(each.rjust(cell), **how) for each, how in zip(row[panel], style[start - 1 : start - 1 + across], strict=True))
            lines.append(" ".join((bold(row[0].rjust(first)), *cells)))
    return lines


def _style(grid: Grid, box: Any) -> dict[str, Any]:
    """Return the colours of a box: of its lane, or dim where other elements are asked for."""
    if box is None:
        return {}
    if grid.highlight is not None and grid.highlight.isdisjoint(box.cells):
        return {"dim": True}
    return {"fg": colour(INK), "bg": colour(lane_colour(box.lane))}


def print_lines(lines: Sequence[str], output: Path | None) -> None:
    """Lines in colour to a terminal, plain anywhere else."""
    if output is not None:
        write("".join(click.unstyle(line) + "\n" for line in lines), output)
        return
    columns = width()
    for line in lines:
        plain = click.unstyle(line)
        for part in [line] if len(plain) <= columns else folded(plain, columns, "  "):
            show(part)


def grids_text(grids: Sequence[Grid], output: Path | None) -> list[str]:
    """Titles and grids as lines of text, as wide as the terminal where there is one."""
    columns = width() if output is None else ENDLESS
    lines = []
    for grid in grids:
        lines += ["", *map(bold, folded(grid.title, columns)), *_grid_lines(grid, columns)]
    return lines[1:]
