"""``python -m bench.threads``: products on 1, 2, 4, ... threads of this machine over one thread, beside what its cores allow.

Cores of a virtual machine may be two threads of one core, share it with other users, and have a lower clock when all are busy. So the
second table has, over one thread alone, what as many threads reach that share no work: products of their own, and loops on registers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench.measured import thread_counts
from bench.register_loops import register_loops
from fastmma.study.speed.cases import FAMILY, cases
from fastmma.study.speed.products import sgemm
from fastmma.study.speed.report import describe

TITLES = ("f16, sm_90a", "e4m3, sm_90a (wgmma)", "s8, sm_90a")
_OWN = 1024  # rows, columns and k of a product that a thread computes alone
_SHORT = 3.0  # seconds: what is shorter is called again within a round


def rate(make: Callable[[], Callable[[], Any]], threads: int, seconds: float) -> float:
    """Calls a second of all threads together, each of which calls again and again for so long what was made for it."""
    calls, rates = [make() for _ in range(threads)], [0.0] * threads
    for call in calls:
        call()
    barrier = threading.Barrier(threads)

    def work(number: int) -> None:
        barrier.wait()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            calls[number]()
            count += 1
        rates[number] = count / (time.perf_counter() - began)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


def _least(run: Callable[[int], Any], threads: int) -> float:
    """The least seconds of a call, or of several short ones."""
    began, least = time.perf_counter(), float("inf")
    while True:
        start = time.perf_counter()
        run(threads)
        end = time.perf_counter()
        least = min(least, end - start)
        if end - began > _SHORT / 10:
            return least


def seconds_together(run: Callable[[int], Any], counts: Sequence[int], rounds: int) -> dict[int, float]:
    """The least seconds of a product on so many threads, of interleaved rounds."""
    run(counts[-1])
    found = dict.fromkeys(counts, float("inf"))
    for _ in range(rounds):
        for threads in reversed(counts):
            found[threads] = min(found[threads], _least(run, threads))
    return found


def rates_apart(make: Callable[[], Callable[[], Any]], counts: Sequence[int], rounds: int, seconds: float) -> dict[int, float]:
    """The most calls a second of so many threads that share no work, of interleaved rounds."""
    best = dict.fromkeys(counts, 0.0)
    for _ in range(rounds):
        for threads in reversed(counts):
            best[threads] = max(best[threads], rate(make, threads, seconds))
    return best


def together(size: int, rounds: int) -> list[str]:
    """Products that all threads compute together: the least seconds of interleaved rounds."""
    counts = thread_counts()
    lines = [f"| n = {size} | GMAC/s, 1 thread | {' | '.join(f'{each} over 1' for each in counts[1:])} |"]
    lines.append(f"| --- | --- |{' --- |' * len(counts[1:])}")
    for case in cases(FAMILY):
        if case.title in TITLES:
            found = seconds_together(case.product.run((size, size, size)), counts, rounds)
            ratios = " | ".join(f"{found[1] / found[each]:.1f}" for each in counts[1:])
            lines.append(f"| {case.title} | {size**3 / found[1] / 1e9:.1f} | {ratios} |")
    return lines


def apart(rounds: int, seconds: float) -> list[str]:
    """What threads reach that share no work, over one alone: the best of interleaved rounds."""
    counts, size = thread_counts(), (_OWN, _OWN, _OWN)
    made: dict[str, Callable[[], Callable[[], Any]]] = {
        f"{case.title}, n = {_OWN}": partial(lambda product: partial(product.run(size), 1), case.product)
        for case in cases(FAMILY)
        if case.title in TITLES
    }
    made[f"NumPy's sgemm, n = {_OWN}"] = lambda: partial(sgemm(size), 1)
    made |= {name: partial(lambda chosen: register_loops()[chosen], name) for name in register_loops()}
    lines = [f"| each thread alone | calls a second, 1 thread | {' | '.join(f'{each} over 1' for each in counts[1:])} |"]
    lines.append(f"| --- | --- |{' --- |' * len(counts[1:])}")
    for name, make in made.items():
        best = rates_apart(make, counts, rounds, seconds)
        lines.append(f"| {name} | {best[1]:.4g} | {' | '.join(f'{best[each] / best[1]:.1f}' for each in counts[1:])} |")
    return lines


def topology() -> str:
    """Which threads share a core, as Linux tells."""
    places = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"))
    found = sorted({place.read_text(encoding="utf-8").strip() for place in places})
    return f"threads of one core: {'; '.join(found) or 'unknown'}"


@click.command()
@click.option("--size", type=click.IntRange(min=1), default=4096, help="Rows, columns and k of the matrices.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="Rounds, of which the best counts.")
@click.option("--seconds", type=float, default=0.5, help="Of a measurement of threads that share no work.")
def measure(size: int, rounds: int, seconds: float) -> None:
    """Print GMAC/s on one thread, and how many times as fast more threads are. Set OPENBLAS_NUM_THREADS=1 for NumPy's sgemm."""
    click.echo(f"{describe()}; {topology()}; the best of {rounds} interleaved rounds\n")
    click.echo("\n".join(apart(rounds, seconds)) + "\n")
    click.echo("\n".join(together(size, rounds)))


if __name__ == "__main__":
    measure()
