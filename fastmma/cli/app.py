"""The commands put together, and what becomes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from fastmma import __version__
from fastmma.cli.evidence import evidence
from fastmma.cli.gemm import gemm
from fastmma.cli.layout import layout
from fastmma.cli.listing import list_instructions
from fastmma.cli.show import show
from fastmma.cli.study import study
from fastmma.cli.trace import trace
from fastmma.cli.verify import record, verify
from fastmma.host.errors import FastmmaError

app = typer.Typer(
    name="fastmma",
    help="What NVIDIA tensor cores compute, bit for bit, on any CPU.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("list")(list_instructions)
app.command("show")(show)
app.command("layout")(layout)
app.command("trace")(trace)
app.command("evidence")(evidence)
app.command("gemm")(gemm)
app.command("study")(study)
app.command("verify")(verify)
app.command("record")(record)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastmma {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """What NVIDIA tensor cores compute, bit for bit, on any CPU."""


def _fail(message: str) -> int:
    typer.echo(f"fastmma: {' '.join(message.split())}", err=True)
    return 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 0, or 2 with one line on standard error when the input is bad."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(app(args=given or ["--help"], prog_name="fastmma", standalone_mode=False) or 0)
    except FastmmaError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"not enough memory: {error}")
    except typer.Abort:
        return 130
    except Exception as error:
        # wrong options and arguments: their class lives in click or in typer, by typer's version
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message())
