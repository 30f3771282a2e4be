"""``fastmma explorer``: the pages on which one looks at layouts and sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastmma.cli.table import print_json, print_text
from fastmma.explanation.explorer.page import page as explorer_page
from fastmma.explanation.explorer.page import sum_page
from fastmma.host.files import write_text

PAGES: dict[str, Callable[[], str]] = {"explorer": explorer_page, "sum": sum_page}


def explorer(output: Path, page: str, as_json: bool) -> None:
    """Write the explorer: one HTML file that shows every layout, and sums as bars of bits, in any browser, without a network."""
    write_text(output, PAGES[page]())
    if as_json:
        print_json({"output": str(output), "bytes": output.stat().st_size})
    else:
        print_text(f"{output}: open it in a browser")
