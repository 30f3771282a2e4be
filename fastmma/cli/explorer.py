"""``fastmma explorer``: the pages on which one looks at layouts and sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fastmma.explanation.explorer import page as pages
from fastmma.host.files import write_text

PAGES: dict[str, Callable[[], str]] = {"explorer": pages.page, "sum": pages.sum_page}


def explorer(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("explorer.html"),
    page: Annotated[str, typer.Option(help=f"Which page: {', '.join(PAGES)}.")] = "explorer",
) -> None:
    """Write the explorer: one HTML file that shows every layout, and sums as bars of bits, in any browser, without a network.

    The page "sum" shows what two GPUs make of the same numbers.
    """
    if page not in PAGES:
        raise typer.BadParameter(f"there is no page {page!r}; there are {', '.join(PAGES)}")
    write_text(output, PAGES[page]())
    typer.echo(f"{output}: open it in a browser")
