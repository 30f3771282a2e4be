"""``fastmma verify``: the emulator against recordings, or against the GPU in the machine."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fastmma.cli.table import print_json, print_markdown, print_table
from fastmma.isa.model import Instruction
from fastmma.isa.table import multiply
from fastmma.verify import Report, compare_with_gpu, replay

HEADINGS = ("instructions", "types", "opcodes and selectors", "elements compared", "registers wrong")


def _family(ins: Instruction) -> tuple[str, str]:
    return ins.op + (".sp" if ins.sparse else ""), f"{ins.dtype} from {ins.atype}"


def _rows(report: Report) -> list[list[str]]:
    families: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for outcome in report.outcomes:
        total = families[_family(multiply(outcome.opcode))]
        for place, value in enumerate((1, outcome.elements, outcome.wrong)):
            total[place] += value
    return [[*family, f"{count}", f"{elements:,}", f"{wrong:,}"] for family, (count, elements, wrong) in families.items()]


def verify(
    gpu: Annotated[bool, typer.Option("--gpu", help="Compare with the GPU in this machine on fresh inputs.")] = False,
    minutes: Annotated[float, typer.Option(help="With --gpu: at least one round of everything, then more until the time is over.")] = 1.0,
    warps: Annotated[int, typer.Option(min=1, help="With --gpu: warps a trial.")] = 512,
    seed: Annotated[int, typer.Option(min=0, help="With --gpu.")] = 0,
    target: Annotated[str, typer.Option(help="Without --gpu: whose recordings.")] = "sm_90a",
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, opcode by opcode.")] = False,
) -> None:
    """Replay the recordings that ship with fastmma on the emulator; with --gpu, compare emulator and silicon on adversarial inputs.

    The exit status is 1 if any bit differs.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        if gpu:
            task = bar.add_task("seconds", total=int(60 * minutes))
            report = compare_with_gpu(
                minutes,
                warps=warps,
                seed=seed,
                progress=lambda seconds, _: bar.update(task, completed=min(int(seconds), int(60 * minutes))),
            )
        else:
            task = bar.add_task("opcodes", total=None)
            report = replay(target, progress=lambda done, total: bar.update(task, completed=done, total=total))
    if as_json:
        outcomes = [outcome.as_dict() for outcome in report.outcomes]
        print_json({"target": report.target, "reference": report.reference, "seconds": report.seconds, "outcomes": outcomes})
    elif markdown:
        print_markdown(HEADINGS, _rows(report))
    else:
        print_table(HEADINGS, _rows(report))
        typer.echo(
            f"{report.elements:,} elements of {report.target} against {report.reference} in {report.seconds:.0f} s: {report.wrong:,} wrong"
        )
        for outcome in report.outcomes:
            if outcome.wrong:
                typer.echo(f"{outcome.opcode}, selector {outcome.selector}: {outcome.wrong} wrong; {outcome.worst}")
    if report.wrong:
        raise typer.Exit(1)
