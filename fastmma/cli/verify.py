"""``fastmma verify``: the emulator against recordings, or against the GPU in the machine."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import click

from fastmma.cli import parameters
from fastmma.cli.progress import bar
from fastmma.cli.table import print_json, print_markdown, print_table, print_text
from fastmma.isa.instruction import Movement
from fastmma.isa.table import instruction
from fastmma.verification.manifest import GOLDEN
from fastmma.verification.replay import Report, compare_with_gpu, replay

HEADINGS = ("instructions", "results", "opcodes and selectors", "warps or warpgroups", "elements compared", "registers wrong")


def _family(opcode: str) -> tuple[str, str]:
    ins = instruction(opcode)
    if isinstance(ins, Movement):
        return ins.op, f"{ins.bits}-bit elements"
    return ins.op + (".sp" if ins.sparse else ""), ins.dtype


def _rows(report: Report) -> list[list[str]]:
    families: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for outcome in report.outcomes:
        total = families[_family(outcome.opcode)]
        for place, value in enumerate((1, outcome.warps, outcome.elements, outcome.wrong)):
            total[place] += value
    return [[*family, *(f"{value:,}" for value in total)] for family, total in families.items()]


def verify(
    gpu: bool,
    minutes: float,
    warps: int,
    seed: int,
    target: str | None,
    folder: Path | None,
    markdown: bool,
    as_json: bool,
) -> None:
    """Replay the recordings that ship with fastmma on the emulator; with --gpu, compare emulator and silicon on adversarial inputs."""
    if gpu and (target is not None or folder is not None):
        raise click.BadParameter("--target and --folder choose recordings; with --gpu the target is that of the GPU in this machine")
    with bar("seconds" if gpu else "trials") as show:
        if gpu:
            total = math.ceil(60 * minutes) if math.isfinite(minutes) else 0
            report = compare_with_gpu(
                minutes,
                warps=warps,
                seed=seed,
                progress=lambda seconds, _: show(min(int(seconds), total), total),
            )
        else:
            report = replay(
                parameters.TARGET if target is None else target,
                folder=folder or GOLDEN,
                progress=show,
            )
    if as_json:
        outcomes = [outcome.as_dict() for outcome in report.outcomes]
        print_json({"target": report.target, "reference": report.reference, "seconds": report.seconds, "outcomes": outcomes})
    elif markdown:
        print_markdown(HEADINGS, _rows(report))
    else:
        print_table(HEADINGS, _rows(report))
        print_text(
            f"{report.elements:,} elements of {report.target} against {report.reference} in {report.seconds:.0f} s: {report.wrong:,} wrong"
        )
        for outcome in report.outcomes:
            if outcome.wrong:
                print_text(f"{outcome.wrong:,} wrong of {outcome.elements:,}, among them\n{outcome.worst}")
    if report.wrong:
        raise click.exceptions.Exit(1)
