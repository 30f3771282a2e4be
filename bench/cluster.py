"""``python -m bench.cluster``: what a study of all linear layers of a 70B model costs on a Dask cluster, from measured pieces.

Measured are cases of the study on one thread in several sizes, the memory that a case takes, how fast weights go to a worker, and what
a task costs the scheduler. The rest is arithmetic.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import click
import numpy as np

from fastmma import study
from fastmma.study.speed.report import describe

TOKENS = 512
BLOCKS = 80
# of a block of Llama 3 70B: rows and k of the weights, and how many layers have them
LAYERS = {
    "query, output": (8192, 8192, 2),
    "key, value": (1024, 8192, 2),
    "gate, up": (28672, 8192, 2),
    "down": (8192, 28672, 1),
}
WORKERS = (16, 64, 256, 1024)
_SIZES = ((512, 2048), (1024, 2048), (1024, 4096), (2048, 4096))  # rows and k of weights whose cases are measured
_MOVED = 1 << 24  # float32 weights that go to a worker
_TASKS = 400


class Case(NamedTuple):
    """A case that was measured: its format, seconds of CPU, and bytes at its peak."""

    format: str
    seconds: float
    peak: int


class _Here:
    """An executor that measures each call, at once."""

    def __init__(self, memory: bool) -> None:
        self.cases: list[Case] = []
        self._memory = memory

    def submit(self, call: Callable[..., Any], case: Any, *arguments: Any) -> Future[Any]:
        """Measure a case of a study."""
        done: Future[Any] = Future()
        if self._memory:
            tracemalloc.start()
        began = time.thread_time()
        done.set_result(call(case, *arguments))
        seconds = time.thread_time() - began
        peak = tracemalloc.get_traced_memory()[1] if self._memory else 0
        tracemalloc.stop()
        self.cases.append(Case(case.format, seconds, peak))
        return done


def _cases(rows: int, k: int, memory: bool = False) -> list[Case]:
    """Measure the cases of a layer."""
    rng = np.random.default_rng(0)
    weights, tokens = (
        study.Tensor(name, name, rng.standard_normal((lines, k), np.float32)) for name, lines in (("w", rows), ("x", TOKENS))
    )
    here = _Here(memory)
    study.run("layers", tensors=[weights, tokens], executor=here)
    return here.cases


class Cost(NamedTuple):
    """Seconds of a format's cases: for a weight, for a k, for a case."""

    weight: float
    depth: float
    case: float

    def of(self, rows: int, k: int) -> float:
        """Seconds of a layer."""
        return self.weight * rows * k + self.depth * k + self.case


def costs(quick: bool) -> dict[str, Cost]:
    """Measure the cost of each format of the study."""
    sizes = [(rows // 8, k // 8) for rows, k in _SIZES] if quick else list(_SIZES)
    _cases(*sizes[0])  # compiles
    found: dict[str, list[float]] = {}
    for size in sizes:
        for case in _cases(*size):
            found.setdefault(case.format, []).append(case.seconds)
    terms = np.array([[rows * k, k, 1.0] for rows, k in sizes])
    return {name: Cost(*_least(terms, np.array(seconds))) for name, seconds in found.items()}


def _least(terms: Any, seconds: Any) -> list[float]:
    """Fit terms none of which takes less than nothing."""
    weighed, chosen, found = terms / seconds[:, None], np.ones(terms.shape[1], bool), np.zeros(terms.shape[1])
    while True:
        found[chosen] = np.linalg.lstsq(weighed[:, chosen], np.ones(len(seconds)), rcond=None)[0]
        if (found >= 0).all():
            return [float(each) for each in found]
        chosen &= found > 0
        found[~chosen] = 0.0


def memory(quick: bool) -> float:
    """The most bytes that a case takes for a weight, with the weights themselves."""
    rows, k = (128, 512) if quick else _SIZES[-1]
    return 4 + max(case.peak for case in _cases(rows, k, memory=True)) / (rows * k)


def _nothing(_: Any) -> None:
    pass


def moving(quick: bool) -> tuple[float, float]:
    """Bytes a second to a worker, and seconds of a task, by the executor of a Dask client."""
    from distributed import Client, LocalCluster

    weights, tasks = np.ones(_MOVED // (64 if quick else 1), np.float32), 20 if quick else _TASKS
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        executor = client.get_executor()
        executor.submit(_nothing, 0).result()
        began = time.perf_counter()
        for future in [executor.submit(_nothing, number) for number in range(tasks)]:
            future.result()
        task = (time.perf_counter() - began) / tasks
        began = time.perf_counter()
        for number in range(4):
            weights[0] = number
            executor.submit(_nothing, weights).result()
        return 4 * weights.nbytes / (time.perf_counter() - began), task


def table(found: dict[str, Cost], bytes_of_one: float, rate: float, task: float) -> list[str]:
    """The cost of the study, as Markdown."""
    lines = [
        f"| a layer, {TOKENS} tokens, seconds on one core | {' | '.join(found)} | GiB of a worker |",
        f"| --- |{' --- |' * (len(found) + 1)}",
    ]
    total, longest, weights = 0.0, 0.0, 0
    for name, (rows, k, count) in LAYERS.items():
        seconds = [cost.of(rows, k) for cost in found.values()]
        total, longest, weights = total + BLOCKS * count * sum(seconds), max(longest, *seconds), weights + BLOCKS * count * rows * k
        cells = " | ".join(f"{each:.1f}" for each in seconds)
        lines.append(f"| {name}: {rows} x {k} | {cells} | {bytes_of_one * rows * k / 2**30:.1f} |")
    cases = len(found) * BLOCKS * sum(count for _, _, count in LAYERS.values())
    served = 4 * weights * len(found) / rate + task * cases
    lines += [
        "",
        f"{cases} cases, {weights / 1e9:.1f}e9 weights: {total / 3600:.0f} core-hours. The client sends every case its weights in float32, "
        f"at {rate / 1e9:.1f} GB/s, and a task costs {task * 1e3:.1f} ms: {served / 3600:.2f} hours in all, which no cluster shortens.",
        "",
        "| workers of one core | hours by one client | hours, a command for each block | bound by |",
        "| --- | --- | --- | --- |",
    ]
    for workers in WORKERS:
        shared = max(total / workers + longest, served)
        own = max(total / workers, total / BLOCKS / max(1, workers // BLOCKS)) + longest
        lines.append(f"| {workers} | {shared / 3600:.2f} | {own / 3600:.2f} | {'sending' if shared == served else 'computing'} |")
    return lines


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
def main(quick: bool) -> None:
    """Measure the pieces, and print the tables of docs/dask.md."""
    found = costs(quick)
    click.echo("\n".join([f"{describe()}.", "", *table(found, memory(quick), *moving(quick))]))


if __name__ == "__main__":
    main()
