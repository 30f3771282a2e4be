"""``fastmma bench``: how fast products are here, and what other libraries take for the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fastmma import __version__
from fastmma.cli import parameters
from fastmma.cli.inputs import parse_size
from fastmma.cli.progress import duration, on_terminal, watched
from fastmma.cli.table import print_json, print_markdown, print_table, print_text
from fastmma.host.errors import OperandError
from fastmma.host.figures.style import SUFFIXES
from fastmma.host.memory import check_fits
from fastmma.host.threads import thread_count
from fastmma.isa.gpus import target_named
from fastmma.study.speed.jobs import Job, Measurement, jobs_of, peers_of
from fastmma.study.speed.peers import PEERS
from fastmma.study.speed.products import Shape, family_named, refusal

_FORMATS = ("text", "markdown", "csv", "json")
_WIDEST = 16  # bytes an element, with what libraries make of it
_LONG = 10.0  # seconds that are announced where there is no terminal
_NAMES = [peer.name for peer in PEERS]


def _peers(given: Sequence[str]) -> list[str]:
    """The peers asked for that are installed: all of them if none is named."""
    wanted = _NAMES if not given else [name for name in given if name != "none"]
    for name in wanted:
        if name not in _NAMES:
            raise OperandError(f"there is no peer {name!r}; there are {', '.join(_NAMES)}, and none")
    found = [peer.name for peer in peers_of(wanted)]
    missing = [name for name in wanted if name not in found]
    if given and missing:
        raise OperandError(f"not installed: {', '.join(missing)}")
    return found


def _size(text: str) -> Shape:
    """M, N and K, whose operands fit into memory."""
    m, n, k = parse_size(text, "--size")
    if not m * n * k:
        raise OperandError(f"--size takes sizes of at least 1, not {text!r:.80}")
    check_fits(_WIDEST * (m * k + k * n + m * n), f"a product of {m} x {n} x {k}")
    return m, n, k


def _kept(jobs: list[Job]) -> tuple[list[Job], list[str]]:
    """The jobs that their targets can do, and what is left out."""
    problems = {(job.family, job.target): refusal(job.family, job.target) for job in jobs}
    left_out = [f"{family} on {target}: {problem}" for (family, target), problem in problems.items() if problem]
    kept = [job for job in jobs if not problems[job.family, job.target]]
    if not kept:
        raise OperandError(f"nothing is left to measure; {left_out[0]}")
    return kept, left_out


def _measured(jobs: list[Job]) -> list[list[Measurement]]:
    """Run them, each with its peers, with progress and the time that is left on standard error."""
    from fastmma.study.speed.processes import run

    expected = [job.seconds() for job in jobs]
    if on_terminal() or sum(expected) > _LONG:
        click.echo(f"{len(jobs)} product{'s' if len(jobs) > 1 else ''}, about {duration(sum(expected))}", err=True)
    found: list[list[Measurement]] = []
    with watched("fastmma bench", expected) as show:
        for job, each in zip(jobs, run(jobs), strict=True):
            found.append(each)
            show(len(found), len(jobs), f"{job.family} on {job.target}, {' x '.join(map(str, job.shape))}")
    return found


def _without(jobs: list[Job], found: list[list[Measurement]]) -> list[str]:
    """For each peer, the products that it has no way to compute."""
    missing: dict[str, dict[str, None]] = {}
    for job, measurements in zip(jobs, found, strict=True):
        for peer in set(job.peers) - {each.library for each in measurements}:
            missing.setdefault(peer, {})[f"{job.family} on {job.target}, {' x '.join(map(str, job.shape))}"] = None
    return [f"{peer} has no product for {'; '.join(missing[peer])}" for peer in _NAMES if peer in missing]


def bench(
    families: tuple[str, ...],
    sizes: tuple[str, ...],
    targets: tuple[str, ...],
    threads: tuple[int, ...],
    rounds: int,
    peers: tuple[str, ...],
    chosen: str,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Measure the speed of products, and of other libraries, in multiply-adds per second."""
    chosen = "json" if as_json else chosen
    if chosen not in _FORMATS:
        raise OperandError(f"there is no format {chosen!r}; there are {', '.join(_FORMATS)}")
    if plot is not None and plot.suffix not in SUFFIXES:
        raise OperandError(f"a picture is {', '.join(SUFFIXES)}, not {plot.name}")
    counts = [thread_count(count) for count in threads] if threads else [thread_count()]
    shapes = [_size(text) for text in sizes or (parameters.BENCH_SIZE,)]
    wanted = [family_named(name) for name in families or (parameters.TYPE,)]
    gpus = targets or (parameters.TARGET,)
    for gpu in gpus:
        target_named(gpu)  # what has no such product is left out, but a name that nobody knows is an error
    jobs, left_out = _kept(jobs_of(wanted, gpus, shapes, counts, rounds, _peers(peers)))
    by_job = _measured(jobs)
    found = [each for measurements in by_job for each in measurements]
    _print(found, left_out + _without(jobs, by_job), chosen, rounds)
    if plot is not None:
        from fastmma.study.speed.report import draw

        draw(found, plot)


def _print(found: list[Measurement], left_out: list[str], chosen: str, rounds: int) -> None:
    from fastmma.study.speed import report

    tables: dict[str, Any] = {"text": print_table, "markdown": print_markdown}
    if chosen == "json":
        print_json({**report.document(found, rounds, __version__), "left_out": left_out})
    elif chosen == "csv":
        sys.stdout.write(report.csv_text(found))
    else:
        tables[chosen](report.HEADINGS, report.rows(found))
        print_text(f"\n{report.describe()}; medians of {rounds} rounds")
        for each in left_out:
            print_text(f"left out: {each}")
