"""``python -m bench``: measure everything, print the tables of docs/speed.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from bench.cases import TILE_CASES, quantisation, small_products, warps
from bench.process import first_product, peak_memory
from bench.results import table
from fastmma.scaling import SCHEMES
from fastmma.study.speed.cases import FAMILY, cases
from fastmma.study.speed.measure import interleaved
from fastmma.study.speed.products import sgemm
from fastmma.study.speed.report import describe
from tools.pages import fill


def _families(quick: bool, rounds: int) -> list[str]:
    lines = ["| product | GMAC/s, 1 thread | times sgemm on 1 core | 2 threads over 1 |", "| --- | --- | --- | --- |"]
    for case in cases(FAMILY):
        shape = case.quick if quick else case.shape
        run, reference = case.product.run(shape), sgemm(shape)
        found = interleaved({"sgemm": partial(reference, 1), "one": partial(run, 1), "two": partial(run, 2)}, rounds)
        macs = shape[0] * shape[1] * shape[2] / 1e9
        ratios = found["sgemm"] / found["one"], found["one"] / found["two"]
        lines.append(f"| {case.title} | {macs / found['one']:.1f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    return lines


def _tiles(quick: bool, rounds: int) -> list[str]:
    count, n = (1000, 128) if quick else (100_000, 1536)
    lines = [f"| {count} tiles a call, 1 thread | GMAC/s | part of `gemm`'s, n = {n} | `gemm`, times sgemm |", "| --- | --- | --- | --- |"]
    for case in TILE_CASES:
        runs = {"tiles": case.run(count), "gemm": case.product(n), "sgemm": sgemm((n, n, n))}
        found = interleaved({name: partial(run, 1) for name, run in runs.items()}, rounds, time.thread_time)
        speed, product = case.macs(count) / found["tiles"] / 1e9, n**3 / found["gemm"] / 1e9
        lines.append(f"| {case.name} | {speed:.1f} | {speed / product:.2f} | {found['sgemm'] / found['gemm']:.2f} |")
    return lines


def _small(quick: bool, rounds: int) -> list[str]:
    lines = ["| products 64 x 64 x 64 of f16, 1 thread | CPU time | over NumPy's in float32 |", "| --- | --- | --- |"]
    for name, count in (("`gemm`, a call", 1), ("`matmul` of 256", 256)):
        run, reference = small_products(count, 64)
        calls = 1 if quick else 4096 // count
        repeated = {label: partial(_repeat, partial(each, 1), calls) for label, each in (("ours", run), ("numpy", reference))}
        found = interleaved(repeated, rounds, time.thread_time)
        lines.append(f"| {name} | {found['ours'] / calls * 1e6:.0f} us | {found['ours'] / found['numpy']:.1f} |")
    return lines


def _repeat(run: Callable[[], Any], calls: int) -> None:
    for _ in range(calls):
        run()


def _quantisation(quick: bool, rounds: int) -> list[str]:
    n = 256 if quick else 4096
    lines = [f"| `quantize` of float32, {n} x {n}: M elements/s | last axis, 1 thread | 2 threads | first axis, 1 thread | 2 threads |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for scheme in SCHEMES:
        runs = {f"{axis} {threads}": partial(quantisation(scheme, axis, n), threads) for axis in (1, 0) for threads in (1, 2)}
        speeds = " | ".join(f"{n * n / seconds / 1e6:.0f}" for seconds in interleaved(runs, rounds).values())
        lines.append(f"| {scheme} | {speeds} |")
    return lines


def _others(quick: bool, rounds: int) -> list[str]:
    count = 1000 if quick else 100_000
    run = warps(count)
    found = interleaved({"one": partial(run, 1), "two": partial(run, 2)}, rounds)
    one, two = (count / found[threads] / 1e6 for threads in ("one", "two"))
    lines = ["| other | |", "| --- | --- |"]
    lines.append(f"| `warp.mma`, {count} warps of m16n8k16 f16 | {one:.2f} million warps/s on 1 thread, {two:.2f} on 2 |")
    if not quick:
        cold, warm = first_product(3)
        lines.append(f"| first gemm of a process, nothing compiled before | {cold:.2f} s from the start of Python |")
        lines.append(f"| first gemm of a process, kernels in the cache | {warm:.2f} s from the start of Python |")
    n = 256 if quick else 4096
    peak = peak_memory(n)
    if peak is not None:
        lines.append(f"| peak memory of an f16 gemm, n = {n} | {peak:.2f} times its operands and result |")
    return lines


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=7, help="Rounds, of which the median counts.")
@click.option("--write", is_flag=True, help="Put the tables into the pages in docs.")
def measure(
    quick: bool,
    rounds: int,
    write: bool,
) -> None:
    """Measure the families of instructions against NumPy's sgemm, quantisation, and what else takes time."""
    results = "\n".join([*table("128x128x128" if quick else "1024x1024x1024"), "", f"On {describe()}.", ""])
    size = "small sizes" if quick else "M = N = K = 1536 unless said otherwise"
    lines = [f"{describe()}. {size}, packing included, medians of {rounds} interleaved rounds.", ""]
    sections = (_families, _tiles, _small, _quantisation, _others)
    speed = "\n".join([*lines, *(line for section in sections for line in (*section(quick, rounds), ""))])
    click.echo(f"{results}\n{speed}")
    if write:
        fill("results", results)
        fill("bench", speed)


if __name__ == "__main__":
    measure()
