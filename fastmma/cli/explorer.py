"""``fastmma explorer``: the page on which one looks at layouts and sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastmma.explanation.explorer.page import page
from fastmma.host.files import write_text


def explorer(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("explorer.html"),
) -> None:
    """Write the explorer: one HTML file that shows every layout, and sums as bars of bits, in any browser, without a network."""
    write_text(output, page())
    typer.echo(f"{output}: open it in a browser")
