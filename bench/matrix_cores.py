"""Products of AMD's matrix cores beside f16 on sm_90a and chains of fma, in turns on one thread: ``python -m bench.matrix_cores``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np

import fastmma
from fastmma.study.speed.products import operand

FORMATS = {"f16": "f16", "bf16": "bf16", "8-bit floats": "e4m3fnuz", "xf32": "tf32", "f32": "f32", "f64": "f64"}
COMPUTED = {
    "MI100": ("f16", "bf16", "f32"),
    "MI250X": ("f16", "bf16", "f32", "f64"),
    "MI300X": tuple(FORMATS),
}
_OPCODES = {"xf32": "v_mfma_f32_16x16x8_xf32"}  # of a format that a product has to name
_OTHER = "H100", "f16"  # what all are compared with


def _product(gpu: str, name: str, n: int) -> Callable[[], Any]:
    """A call of `gemm`, into memory that was used before."""
    a, b = (operand(FORMATS[name], (n, n), seed) for seed in (0, 1))
    out = np.empty((n, n), np.float64 if name == "f64" else np.float32)
    return partial(fastmma.gemm, a, b, target=gpu, instruction=_OPCODES.get(name), threads=1, out=out)


def _least(runs: dict[tuple[str, str], Callable[[], Any]], rounds: int) -> dict[tuple[str, str], float]:
    """Least CPU time of each, in turns, after one call that is not counted."""
    seconds: dict[tuple[str, str], list[float]] = {pair: [] for pair in runs}
    for _ in range(rounds + 1):
        for pair, run in runs.items():
            began = time.thread_time()
            run()
            seconds[pair].append(time.thread_time() - began)
    return {pair: min(each[1:]) for pair, each in seconds.items()}


def table(n: int, rounds: int) -> list[str]:
    """Speed in GMAC/s, in brackets over that of f16 on an H100: the least CPU time of all rounds."""
    pairs = [(gpu, name) for gpu, names in COMPUTED.items() for name in names]
    found = _least({pair: _product(*pair, n) for pair in (_OTHER, *pairs)}, rounds)
    lines = [f"| GMAC/s, n = {n}, 1 thread | {' | '.join(FORMATS)} |", f"| --- |{' --- |' * len(FORMATS)}"]
    for gpu in (*COMPUTED, _OTHER[0]):
        cells = []
        for name in FORMATS:
            seconds = found.get((gpu, name))
            over = "" if seconds is None or gpu == _OTHER[0] else f" ({found[_OTHER] / seconds:.2f})"
            cells.append("" if seconds is None else f"{n**3 / seconds / 1e9:.3g}{over}")
        lines.append(f"| {gpu} | {' | '.join(cells)} |")
    return lines


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=9, help="Rounds, of which the least time counts.")
@click.option(
    "--size", "sizes", type=click.IntRange(min=1), multiple=True, default=(512, 1024, 2048), show_default=True, help="n of n x n x n."
)
def measure(quick: bool, rounds: int, sizes: tuple[int, ...]) -> None:
    """Measure the kernels of AMD's matrix cores."""
    click.echo("\n\n".join("\n".join(table(n, rounds)) for n in ((64,) if quick else sizes)))


if __name__ == "__main__":
    measure()
