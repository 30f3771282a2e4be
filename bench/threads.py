"""``python -m bench.threads``: products on 1, 2, 4, ... threads of this machine, over one thread."""

from __future__ import annotations

import os
from functools import partial

import click

from fastmma.study.speed.cases import FAMILY, cases
from fastmma.study.speed.measure import interleaved
from fastmma.study.speed.report import describe

_TITLES = ("f16, sm_90a", "e4m3, sm_90a (wgmma)", "s8, sm_90a")


@click.command()
@click.option("--size", type=click.IntRange(min=1), default=4096, help="Rows, columns and k of the matrices.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="Rounds, of which the median counts.")
def measure(size: int, rounds: int) -> None:
    """Print GMAC/s on one thread, and how many times as fast more threads are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = sorted({min(1 << power, cores) for power in range(cores.bit_length() + 1)})
    click.echo(f"{describe()}, n = {size}, medians of {rounds} interleaved rounds\n")
    click.echo(f"| product | GMAC/s, 1 thread | {' | '.join(f'{each} over 1' for each in threads[1:])} |")
    click.echo(f"| --- | --- |{' --- |' * len(threads[1:])}")
    for case in cases(FAMILY):
        if case.title in _TITLES:
            run = case.product.run((size, size, size))
            found = interleaved({str(each): partial(run, each) for each in threads}, rounds)
            ratios = " | ".join(f"{found['1'] / found[str(each)]:.1f}" for each in threads[1:])
            click.echo(f"| {case.title} | {size**3 / found['1'] / 1e9:.1f} | {ratios} |")


if __name__ == "__main__":
    measure()
