"""``python -m bench.bounds``: what is around large products on the CPU at hand, beside its bounds: a record, and tables of docs/speed.md.

``bench.threads``, ``bench.tiles``, ``bench.amx``, ``bench.shapes``, ``bench.function_bounds``, ``bench.functions`` and ``bench.cpus`` have
the details. ``--tables`` measures nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click

from bench import amx, measured, product_bounds, shapes, threads, tiles
from bench.cases import TILE_CASES
from bench.loops import NAME, check
from bench.records import FOLDER, new_record
from bench.register_loops import COUNTS, DOTS, MULTIPLY_ADDS, TILES, register_loops
from fastmma.kernels.tiles import AMX, first_fit
from fastmma.study.speed.cases import FAMILY, SQUARE, cases
from fastmma.study.speed.report import describe
from tools.pages import fill

_KEPT = FOLDER / "bounds"
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
        yield Row(f"over `gemm`: {case.name}", found["gemm"] / found["tiles"], *bound)


def _bytes(quick: bool, rounds: int) -> Iterator[Row]:
    if first_fit(AMX) is None:
        return
    loops = register_loops()
    runs = {name: loops[name] for name in (TILES, DOTS, COUNTS)}
    rates = {name: MULTIPLY_ADDS[name] / min(times) for name, times in amx.seconds(runs, rounds, 1).items()}
    for n in (256,) if quick else (1024, 4096):
        found = {name: min(times) for name, times in amx.products(n, 1, rounds).items()}
        for kind in ("s8", "s4"):
            yield Row(
                f"AMX over VNNI: {kind}, n = {n}", found[kind] / found[f"{kind} amx"], rates[TILES] / rates[DOTS], "loops on registers"
            )
        for scheme, name in zip(amx.SCALED, ("NVFP4", "MXFP4"), strict=True):
            yield Row(f"AMX over VNNI: {name}, n = {n}", found[scheme] / found[f"{scheme} amx"])
        most = rates[TILES] / rates[COUNTS]
        yield Row(f"bits as bytes on AMX over popcounts, n = {n}", found["popcount"] / found["bits"], most, "loops on registers")


def _small(quick: bool, rounds: int) -> Iterator[Row]:
    small, middle = (32, 64) if quick else (256, 1536)
    for case in cases(SQUARE):
        yield Row(f"speed of n = {small} over n = {middle}: {case.title}", shapes.small_over_middle(case.product, small, middle, rounds))


def _functions(quick: bool, rounds: int) -> Iterator[Row]:
    if find_spec("torch") is None or NAME != "AVX-512":
        return
    from bench import function_bounds

    function_bounds.torch.set_num_threads(1)
    for name in function_bounds.FUNCTIONS:
        found = function_bounds.cycles(name, rounds if quick else 40 * rounds)
        bound = (None, "") if found.least is None else (found.least.cycles / found.torchs, found.least.by)
        yield Row(f"time over torch's, in near caches: {name}", found.ours / found.torchs, *bound, low=True)


def _within_emulation(quick: bool, rounds: int) -> Iterator[Row]:
    if find_spec("torch") is None:
        return
    from bench import functions

    functions.torch.set_num_threads(1)
    for name in ("exp", "gelu", "softmax", "log_softmax", "layer_norm", "rms_norm"):
        yield Row(f"time over torch's, within `emulate`, float32: {name}", functions.over_torch(name, quick, rounds), low=True)
    for step in functions.steps(quick, rounds):
        by = product_bounds.BY if step.least is not None else ""
        yield Row(f"time over torch's: {step.name}, bfloat16", step.ours / step.torch, step.least, by, low=True)


def _layers(quick: bool, rounds: int) -> Iterator[Row]:
    n = 128 if quick else 4096
    run = next(case for case in cases(FAMILY) if case.title == "bf16, sm_90a").product.run((n,) * 3)
    count = measured.cores()
    most = n**3 / threads.seconds_together(run, (count,), rounds)[count] / 1e9
    for name, (macs, seconds) in measured.linear_layers(quick, rounds).items():
        yield Row(f"GMAC/s of a 7B model's linear layers, 512 tokens, bfloat16: {name}", macs / seconds / 1e9, most, f"n = {n}")


ON_ONE_THREAD, ON_ALL = (_tiles, _bytes, _small, _functions, _within_emulation), (_threads, _layers)
_HEADINGS = ("| | measured | bound | part of it | bound by |", "| --- | --- | --- | --- | --- |")


class Measured(NamedTuple):
    """What was measured of a CPU: its core, registers and number of cores, the machine, and the rows."""

    title: str
    machine: str
    rows: list[Row]

    def save(self, path: Path) -> None:
        """Write it as JSON, a row a line."""
        rows = ",\n  ".join(json.dumps(list(row)) for row in self.rows)
        text = f'{{\n "title": {json.dumps(self.title)},\n "machine": {json.dumps(self.machine)},\n "rows": [\n  {rows}\n ]\n}}\n'
        path.write_text(text, encoding="utf-8")

    def table(self) -> list[str]:
        """A section of docs/speed.md."""
        return [f"#### {self.title}", "", f"{self.machine}:", "", *_HEADINGS, *(row.line() for row in self.rows), ""]


def read(path: Path) -> Measured:
    """Read what was measured of a CPU."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Measured(kept["title"], kept["machine"], [Row(*row) for row in kept["rows"]])


def page(every: Sequence[Measured]) -> str:
    """The tables of all CPUs."""
    return "\n".join(line for lines in [[""], *(each.table() for each in every), [""]] for line in lines)


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Rounds of every measurement.")
@click.option("--alone", is_flag=True, help="One thread only, whose CPU time is measured: other work changes it less.")
@click.option("--tables", "only_tables", is_flag=True, help="Measure nothing.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep what is measured in this file, and leave docs as they are.")
def main(quick: bool, rounds: int, alone: bool, only_tables: bool, out: Path | None) -> None:
    """Measure this CPU, print every number beside its bound, keep the record, and write the tables of every CPU."""
    if not only_tables:
        check()
        began, count = time.perf_counter(), measured.cores()
        title = f"{new_record().title}, {count} cores"
        name = title.lower().replace(",", "").replace("-", "").replace(" ", "_")
        found = Measured(title, f"{describe()}; {rounds} rounds", [])
        click.echo("\n".join([found.machine, "", *_HEADINGS]))
        for section in ON_ONE_THREAD if alone else (*ON_ONE_THREAD, *ON_ALL):
            for row in section(quick, rounds):
                found.rows.append(row)
                click.echo(row.line())
                found.save(out or _KEPT / f"{name}.json")
        click.echo(f"\n{time.perf_counter() - began:.0f} s")
    if out is None:
        fill("bounds", page([read(path) for path in sorted(_KEPT.glob("*.json"))]))


if __name__ == "__main__":
    main()
