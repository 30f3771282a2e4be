"""The tables of cuBLASLt's kernels, by GPU and version of the library."""

from __future__ import annotations

from fastmma.products.cublas import blackwell, h100_13_1, h200_13_1
from fastmma.products.cublas.rows import Table

VERSION = "13.1"
TABLES: dict[tuple[str, str], Table] = {(table.gpu, table.version): table for table in (h200_13_1.TABLE, h100_13_1.TABLE)}
# for choices that are given: others compared them, and nothing says what the library chooses
REPORTED: dict[tuple[str, str], Table] = {(table.gpu, table.version): table for table in blackwell.TABLES}


def short_version(version: str) -> str:
    """Return the part of a version by which tables are named.

    Examples
    --------
    >>> short_version("13.1.0")
    '13.1'
    """
    return ".".join(version.split(".")[:2])


def nearest_table(gpu: str, version: str) -> Table:
    """Return the table of a GPU and version, or else the one that is most like it: samples must confirm its orders, of whatever tiles."""
    own = TABLES.get((gpu, short_version(version)))
    nearest = max(TABLES.values(), key=lambda table: (table.gpu == gpu, table.version == short_version(version)))
    return own or nearest._replace(seen={})
