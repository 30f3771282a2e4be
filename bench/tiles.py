"""``python -m bench.tiles``: single instructions on many tiles, over the bound of their loop on this core, and over `gemm`'s speed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

import fastmma
from bench.cases import TILE_CASES, TileCase
from bench.cores import Bound, bound, this_core
from bench.instructions import CPUS, FMA, Blocks, Cpu
from bench.loops import NAME, Loops, check
from fastmma.backends.parameters import element_specs, fused_parameters
from fastmma.backends.resolve import operation_of
from fastmma.kernels.fused.batch import block_config
from fastmma.kernels.tiles import FUSED
from fastmma.study.speed.report import describe

_COUNT = 100_000


@dataclass(frozen=True)
class Tile(Blocks):
    """The kernel of an opcode's tiles, each decoded, multiplied and written in one pass of a loop."""

    opcode: str = ""

    def record(self, cpu: Cpu) -> Any:
        ins = fastmma.instruction(self.opcode)
        operation = operation_of(ins, self.target)
        return block_config(fused_parameters(operation), element_specs(operation), ins.k, True, cpu.tile(FUSED))

    def products(self, _cpu: Cpu) -> int:
        ins = fastmma.instruction(self.opcode)
        return ins.m * ins.n * ins.k


def cycles(case: TileCase, count: int, n: int, rounds: int) -> dict[str, float]:
    """Cycles of a tile, and of as many multiply-adds by `gemm`: the least of interleaved rounds."""
    loops = Loops()
    runs = {"tiles": (partial(case.run(count), 1), count), "gemm": (partial(case.product(n), 1), n**3 / case.macs(1))}
    found = dict.fromkeys(runs, float("inf"))
    for number in range(rounds + 1):
        for name, (run, tiles) in runs.items():
            cycle = loops.cycle()
            began = time.thread_time()
            run()
            if number:  # the first round compiles
                found[name] = min(found[name], (time.thread_time() - began) / tiles / cycle)
    return found


def _kernel(case: TileCase) -> Tile:
    return Tile(case.name, FMA, "", case.target, opcode=case.opcode)


def least(case: TileCase) -> Bound | None:
    """The least cycles of a tile on this core; None where it is not known."""
    core, kernel = this_core(NAME), _kernel(case)
    if core is None or case.registers or not kernel.record(CPUS[NAME]).tiles:
        return None
    limit = bound(kernel, core)
    return limit._replace(cycles=limit.cycles * case.macs(1) / 64)


def rows(quick: bool, rounds: int) -> list[str]:
    """A Markdown table: cycles of a tile, and of as many multiply-adds by `gemm`, the least of interleaved rounds."""
    count, n = (1000, 128) if quick else (_COUNT, 1536)
    lines = [
        "| tile | vector instructions | cycles at least | taken by | measured | part of the bound | `mma` over `gemm` | at most |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in TILE_CASES:
        found, limit = cycles(case, count, n, rounds), least(case)
        bounds, part, most = ("", "", ""), "", ""
        if limit is not None:
            bounds = str(_kernel(case).loop(CPUS[NAME]).vectors), f"{limit.cycles:.0f}", limit.by
            part, most = f"{limit.cycles / found['tiles']:.2f}", f"{found['gemm'] / limit.cycles:.2f}"
        ratio = f"{found['gemm'] / found['tiles']:.2f}"
        lines.append(f"| {case.name} | {' | '.join(bounds)} | {found['tiles']:.0f} | {part} | {ratio} | {most} |")
    return lines


@click.command()
@click.option("--quick", is_flag=True, help="Few tiles: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=15, help="Rounds, of which the least counts.")
def main(quick: bool, rounds: int) -> None:
    """Measure tiles on one thread, and print them beside their bounds."""
    check()
    click.echo(
        "\n".join([f"{describe()}; {'few' if quick else _COUNT} tiles a call, the least of {rounds} rounds", "", *rows(quick, rounds)])
    )


if __name__ == "__main__":
    main()
