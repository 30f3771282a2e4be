"""Numbers and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def number(value: Any) -> str:
    """A value for people.

    Examples
    --------
    >>> number(0.0374123), number(None), number(65536), number(0.99998712)
    ('0.0374', '-', '65536', '0.999987')
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.6g}" if 0.99 < value < 1 else f"{value:.3g}"


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, lines ended."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (headings, ["---"] * len(headings), *rows))
