"""``fastmma study``: an accuracy study, to a table, a report and pictures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fastmma.cli import parameters
from fastmma.cli.inputs import parse_size
from fastmma.cli.progress import watched
from fastmma.cli.table import print_json, print_table, print_wrapped
from fastmma.host.errors import BackendError
from fastmma.host.files import write_text
from fastmma.study.answers import answer
from fastmma.study.grid import SAMPLE, Case, Grid, case_of
from fastmma.study.groups import grouped
from fastmma.study.layer_report import caption, format_table, layer_table
from fastmma.study.layered import layered
from fastmma.study.presets import LAYERS, PRESETS, preset_of
from fastmma.study.records import CSV, JSON_LINES, Results
from fastmma.study.report import markdown, summary
from fastmma.study.runner import run

REPORT = "report.md"
_TITLES = {True: "What formats cost the layers of a model", False: "Accuracy study"}


def _grids(preset: str | None, own: dict[str, Any], sample: int, seeds: tuple[int, ...], files: bool) -> tuple[Grid, ...]:
    """The preset's grids, or the one that the options describe; formats and target of layers need not be given."""
    given = {name: value for name, value in own.items() if value}
    if preset is not None:
        return preset_of(preset).grids
    if not files:
        given.setdefault("target", (parameters.TARGET,))
    (usual,) = preset_of(LAYERS).grids
    every = tuple(each or None for each in given.get("promote_every", (0,)))
    shapes = tuple(parse_size(text, "--shape") for text in given.get("shape", (parameters.STUDY_SIZE,)))
    options: dict[str, Any] = {"distributions": tuple(given.get("distribution", ("normal",))), "promote_every": every}
    options |= {"split_k": tuple(given.get("split_k", (1,))), "arithmetics": tuple(given.get("arithmetic", ("",)))}
    formats, targets = tuple(given.get("format", usual.formats)), tuple(given.get("target", usual.targets))
    return (replace(usual, formats=formats, targets=targets, shapes=shapes, seeds=seeds, sample=sample, **options),)


def _tensors(inputs: Sequence[str], activations: Sequence[str]) -> list[Any]:
    """Weights, then activations: of two inputs, the second has them, unless they are named as such."""
    return [inputs, activations] if activations else list(inputs)


def _conclude(results: Results) -> None:
    """Say what a study found."""
    for sentence in answer(results):
        print_wrapped(sentence)


def _command(preset: str | None, own: dict[str, Any], seeds: tuple[int, ...], sample: int, transposed: bool | None, output: Path) -> str:
    """The command line that makes the report again."""
    words = ["fastmma", "study", *(["--preset", preset] if preset else [])]
    for name, values in {**own, "seed": () if preset else seeds}.items():
        for value in values or ():
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += [] if transposed is None else ["--transposed" if transposed else "--no-transposed"]
    words += [] if preset or sample == SAMPLE else ["--sample", str(sample)]
    return shlex.join([*words, "--output", str(output)])


def _write_report(results: Results, output: Path, title: str, command: str) -> list[str]:
    """Write the report and the pictures; what there is to say about them."""
    from fastmma.study.pictures import save  # after the work, which begins sooner without it

    try:
        pictures, said = save(results, output), []
    except BackendError as error:
        pictures, said = [], [f"no pictures were drawn: {error}"]
    write_text(output / REPORT, markdown(results, title=title, command=command, pictures=pictures))
    names = [REPORT, CSV, JSON_LINES, *(file for _, file in pictures)]
    return [f"{output}: {', '.join(names)}", *said]


def _print(results: Results) -> None:
    tables = layered(results)
    for table in tables:
        print_table(*format_table(table), title=caption(table, "Medians over the layers, formats in order"))
        click.echo()
        print_table(*layer_table(table), title=caption(table, "Relative error of every layer"))
        click.echo()
    if tables:
        return
    for source, records in grouped(results).items():
        print_table(*summary(records), title=source)
        click.echo()


def study(
    model: str | None,
    preset: str | None,
    output: Path | None,
    formats: tuple[str, ...],
    targets: tuple[str, ...],
    shapes: tuple[str, ...],
    distributions: tuple[str, ...],
    promote_every: tuple[int, ...],
    split_k: tuple[int, ...],
    arithmetics: tuple[str, ...],
    inputs: tuple[str, ...],
    activations: tuple[str, ...],
    transposed: bool | None,
    seeds: tuple[int, ...],
    sample: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure what formats and accumulators cost, against exact products."""
    own = {
        "format": formats,
        "target": targets,
        "shape": shapes,
        "distribution": distributions,
        "promote_every": promote_every,
        "split_k": split_k,
        "arithmetic": arithmetics,
    }
    given_seeds = tuple(seeds or (0,))
    files = [*([model] if model else []), *(inputs or [])]
    grids = _grids(preset, own, sample, given_seeds, bool(files))
    with watched("fastmma study") as show:

        def tell(done: int, total: int, case: Case) -> None:
            show(done, total, f"{case.format}, {case.accumulator}, {case.m} x {case.n} x {case.k}, {case.source}")

        try:
            results = run(grids, output, tensors=_tensors(files, activations or []), transposed=transposed, threads=threads, progress=tell)
        except KeyboardInterrupt:
            there = f"what was computed is in {output / JSON_LINES}; the same command goes on from there" if output else "nothing was kept"
            raise KeyboardInterrupt(f"interrupted; {there}") from None
    said = []
    if output is not None:
        title = PRESETS[preset].question if preset else _TITLES[bool(layered(results))]
        command = _command(preset, {**own, "input": files, "activations": activations}, given_seeds, sample, transposed, output)
        said = _write_report(results, output, title, command)
    if as_json:
        print_json([{**record, "accumulator": case_of(record).accumulator} for record in results])
    else:
        if output is None:
            _print(results)
        _conclude(results)
    for line in said:
        click.echo(line, err=as_json)
