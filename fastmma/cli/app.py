"""The commands put together."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer

from fastmma import __version__
from fastmma.cli.bench import bench
from fastmma.cli.compare import compare
from fastmma.cli.doctor import doctor
from fastmma.cli.evidence import evidence
from fastmma.cli.explain import explain
from fastmma.cli.explorer import explorer
from fastmma.cli.gemm import gemm
from fastmma.cli.identify import identify
from fastmma.cli.invariance import agree, invariance
from fastmma.cli.layout import layout
from fastmma.cli.listing import list_instructions
from fastmma.cli.record import record
from fastmma.cli.show import show
from fastmma.cli.study import study
from fastmma.cli.trace import trace
from fastmma.cli.verify import verify
from fastmma.cli.warm import warm

app = typer.Typer(
    name="fastmma",
    help="What NVIDIA tensor cores compute, bit for bit, on any CPU.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("list")(list_instructions)
app.command("show")(show)
app.command("layout")(layout)
app.command("explorer")(explorer)
app.command("trace")(trace)
app.command("evidence")(evidence)
app.command("gemm")(gemm)
app.command("explain")(explain)
app.command("compare")(compare)
app.command("identify")(identify)
app.command("agree")(agree)
app.command("invariance")(invariance)
app.command("study")(study)
app.command("verify")(verify)
app.command("record")(record)
app.command("bench")(bench)
app.command("warm")(warm)
app.command("doctor")(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastmma {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """What NVIDIA tensor cores compute, bit for bit, on any CPU."""


@cache
def commands() -> Any:
    """All commands as one, put together once."""
    return typer.main.get_command(app)
