"""Names as users spell them: case, hyphens and spaces do not matter, and rows of tables have aliases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Named(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """What the row is called."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """What it is called elsewhere."""


Row = TypeVar("Row", bound=Named)


def lookup(name: object, rows: Iterable[Row]) -> Row | None:
    """The row that goes by a name; None if there is none, and for what is no string.

    Examples
    --------
    >>> from fastmma.scaling import SCHEMES
    >>> lookup("MXFP8-E4M3", SCHEMES.values()).name
    'mxfp8_e4m3'
    """
    text = name.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else ""
    return next((row for row in rows if text in (row.name, *row.aliases)), None)
