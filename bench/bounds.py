"""``python -m bench.bounds``: all that docs/speed.md has beside bounds, of the CPU at hand: measured, bound, and part of the bound.

``bench.cpus``, ``bench.threads``, ``bench.tiles``, ``bench.amx``, ``bench.shapes`` and ``bench.function_bounds`` have the details of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import click

from bench import amx, measured, shapes, threads, tiles
from bench.cases import TILE_CASES
from bench.loops import NAME, check
from bench.records import new_record
from bench.register_loops import BYTES, DOTS, TILES, register_loops
from bench.tables import least
from fastmma.kernels.tiles import AMX, first_fit
from fastmma.study.speed.cases import FAMILY, SQUARE, cases
from fastmma.study.speed.report import describe

_SECONDS = 0.3  # of a measurement of threads that share no work


class Row(NamedTuple):
    """What was measured, the most that is possible or, of what is to be low, the least, and what says so; a bound may be unknown."""

    title: str
    measured: float
    bound: float | None = None
    by: str = ""
    low: bool = False

    def line(self) -> str:
        """A line of a Markdown table."""
        if self.bound is None:
            return f"| {self.title} | {self.measured:.2f} | | | |"
        part = self.bound / self.measured if self.low else self.measured / self.bound
        return f"| {self.title} | {self.measured:.2f} | {self.bound:.2f} | {part:.2f} | {self.by} |"


def _products(quick: bool, rounds: int) -> Iterator[Row]:
    record = new_record()
    for title, found in measured.products(quick, rounds).items():
        limit, cycles = least(record, title), found["cycles"] * 64 / found["macs"]
        bound = (None, "") if limit is None else limit
        yield Row(f"cycles of 64 multiply-adds: {title}", cycles, *bound, low=True)


def _threads(quick: bool, rounds: int) -> Iterator[Row]:
    n, counts = 128 if quick else 4096, (1, measured.thread_counts()[-1])
    alone, loops = 64 if quick else 1024, register_loops()
    for case in cases(FAMILY):
        if case.title not in threads.TITLES or counts[-1] == 1:
            continue
        found = threads.seconds_together(case.product.run((n,) * 3), counts, rounds)
        make: Callable[[], Callable[[], object]] = partial(lambda product: partial(product.run((alone,) * 3), 1), case.product)
        by = "as many products, each alone"
        if case.family == "s8" and TILES in loops:
            make, by = lambda: loops[TILES], "products of tiles in registers"
        rates = threads.rates_apart(make, counts, rounds, _SECONDS / 10 if quick else _SECONDS)
        yield Row(f"{counts[-1]} threads over one, n = {n}: {case.title}", found[1] / found[counts[-1]], rates[counts[-1]] / rates[1], by)


def _tiles(quick: bool, rounds: int) -> Iterator[Row]:
    count, n = (1000, 128) if quick else (100_000, 1536)
    for case in TILE_CASES:
        found, limit = tiles.cycles(case, count, n, rounds), tiles.least(case)
        bound = (None, "") if limit is None else (found["gemm"] / limit.cycles, limit.by)
        yield Row(f"`mma` over `gemm`: {case.name}", found["gemm"] / found["tiles"], *bound)


def _bytes(quick: bool, rounds: int) -> Iterator[Row]:
    if first_fit(AMX) is None:
        return
    loops = register_loops()
    runs = {name: loops[name] for name in (TILES, DOTS)}
    rates = {name: BYTES[name] / min(times) for name, times in amx.seconds(runs, rounds, 1).items()}
    for n in (256,) if quick else (1024, 4096):
        found = {name: min(times) for name, times in amx.products(n, 1, rounds).items()}
        for kind in ("s8", "s4"):
            yield Row(
                f"AMX over VNNI: {kind}, n = {n}", found[kind] / found[f"{kind} amx"], rates[TILES] / rates[DOTS], "loops on registers"
            )
        yield Row(f"bits as bytes on AMX over popcounts, n = {n}", found["popcount"] / found["bits"])


def _small(quick: bool, rounds: int) -> Iterator[Row]:
    small, middle = (32, 64) if quick else (256, 1536)
    for case in cases(SQUARE):
        yield Row(f"speed of n = {small} over n = {middle}: {case.title}", shapes.small_over_middle(case.product, small, middle, rounds))


def _functions(quick: bool, rounds: int) -> Iterator[Row]:
    if find_spec("torch") is None or NAME != "AVX-512":
        return
    from bench import function_bounds

    for name in function_bounds.FUNCTIONS:
        found = function_bounds.cycles(name, rounds if quick else 40 * rounds)
        bound = (None, "") if found.least is None else (found.least.cycles / found.torchs, found.least.by)
        yield Row(f"time over torch's, in near caches: {name}", found.ours / found.torchs, *bound, low=True)


SECTIONS = (_products, _threads, _tiles, _bytes, _small, _functions)


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Rounds of every measurement.")
def main(quick: bool, rounds: int) -> None:
    """Measure this CPU, and print every number beside its bound."""
    check()
    began = time.perf_counter()
    click.echo(f"{describe()}, {rounds} rounds\n\n| | measured | bound | part of it | bound by |\n| --- | --- | --- | --- | --- |")
    for section in SECTIONS:
        for row in section(quick, rounds):
            click.echo(row.line())
    click.echo(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
