"""The abilities of standard output: how wide its lines may be, and whether text has colours."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Any, TextIO

import click

ENDLESS = 1_000_000  # a pipe or a file gets lines as long as they need to be


def width() -> int:
    """Return the columns of standard output: those that COLUMNS names, else those of the terminal; without either, lines have no end."""
    return columns_of(sys.stdout) if sys.stdout.isatty() else _told() or ENDLESS


def columns_of(terminal: TextIO) -> int:
    """Return the columns that COLUMNS names, else those of the terminal, else 80."""
    told = _told()
    if told:
        return told
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError):  # a stream without a number, or a terminal that tells no size
        return 80


def _told() -> int:
    """Return the number in COLUMNS; 0 if there is none."""
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() else 0


def styled(text: str, **style: Any) -> str:
    """Style a text for a terminal, as `click.style` does; `show` leaves the style out elsewhere."""
    return click.style(text, **style) if text and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" else text


def bold(text: str) -> str:
    """Print a text in bold where that is possible."""
    return styled(text, bold=True)


def colour(code: str) -> Any:
    """Translate "#rrggbb" to what the terminal has: that colour where COLORTERM says so, else the nearest of 6 x 6 x 6."""
    red, green, blue = bytes.fromhex(code.removeprefix("#"))
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return red, green, blue
    return 16 + 36 * (red * 5 // 255) + 6 * (green * 5 // 255) + blue * 5 // 255


def show(line: str = "") -> None:
    """Print a line to standard output, whose style only a terminal gets."""
    click.echo(line)


def folded(text: str, columns: int, indent: str = "") -> list[str]:
    """Fold a text that is wider than some columns between words, and longer words anywhere; all lines but the first are indented."""
    if len(text) <= columns:
        return [text]
    return textwrap.wrap(text, max(20, columns), subsequent_indent=indent, break_on_hyphens=False)
