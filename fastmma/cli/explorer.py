"""``fastmma explorer``: the page on which one looks at layouts and sums."""

from __future__ import annotations

from pathlib import Path

import click

from fastmma.cli import parameters
from fastmma.cli.table import print_json
from fastmma.explanation.explorer.page import page
from fastmma.host.files import write_text


@click.command()
@click.option("--output", "-o", type=parameters.PATH, default=Path("explorer.html"), help="The HTML file.")
@parameters.as_json
def explorer(output: Path, as_json: bool) -> None:
    """Write the explorer: one HTML file that shows every layout, and sums as bars of bits, in any browser, without a network."""
    write_text(output, page())
    if as_json:
        print_json({"output": str(output), "bytes": output.stat().st_size})
    else:
        click.echo(f"{output}: open it in a browser")
