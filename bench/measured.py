"""What is measured of a CPU for docs/speed.md and the model of many cores: products, their parts, memory, clocks and waking threads."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

import fastmma
from bench.loops import NAME, Loops
from bench.shapes import SPARSE, sparse_product
from fastmma.host.threads import parallel_for
from fastmma.products.choice import default_instruction
from fastmma.study.speed.cases import CASES, Case
from fastmma.study.speed.products import Shape

TITLES = (
    "f16, sm_90a",
    "f16, sm_80",
    "tf32, sm_90a",
    "e4m3, sm_90a (wgmma)",
    "e4m3, sm_120a",
    "MXFP8, sm_100a (tcgen05)",
    "NVFP4, sm_120a",
    "f64, sm_90a",
    "s8, sm_90a",
    "b1, sm_90a, K = 8192",
)
ON_THREADS = ("f16, sm_90a", "f16, sm_80", "e4m3, sm_90a (wgmma)", "s8, sm_90a", "NVFP4, sm_120a")
# M, N and K of products on one thread: of many and of few rows, of many and of few columns, and of little else than calls
PARTS: tuple[Shape, ...] = ((2048, 512, 2048), (2048, 64, 2048), (1024, 1024, 2048), (256, 2048, 2048), (128, 4096, 2048), (128, 8192, 256))
_READ = 1 << 27  # bytes that each thread reads
_TURNS = 10  # calls in a round


def _case(title: str) -> Case:
    return next(case for case in CASES if case.title == title)


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_counts() -> list[int]:
    """List 1, 2, 4, ... and all cores."""
    return sorted({min(1 << power, cores()) for power in range(cores().bit_length() + 1)})


def _runs(quick: bool) -> list[tuple[str, Shape, Callable[[], Any]]]:
    found = []
    for title in TITLES:
        case = _case(title)
        shape = case.quick if quick else case.shape
        found.append((title, shape, partial(case.product.run(shape), 1)))
    if NAME == "AVX-512":
        n = 64 if quick else 1536
        found += [(f"{case.name}, sparse A", (n, n, n), sparse_product(case, n)) for case in SPARSE[:2]]
    return found


def products(quick: bool, rounds: int) -> dict[str, dict[str, float]]:
    """Multiply-adds, seconds and cycles of products on one thread: medians, the cycle measured before each."""
    loops, found = Loops(), {}
    for title, shape, run in _runs(quick):
        run()
        seconds, cycles = [], []
        for _ in range(rounds):
            cycle = loops.cycle()
            began = time.thread_time()
            run()
            seconds.append(time.thread_time() - began)
            cycles.append(seconds[-1] / cycle)
        found[title] = {"macs": float(np.prod(shape)), "seconds": statistics.median(seconds), "cycles": statistics.median(cycles)}
    return found


def on_threads(quick: bool, rounds: int) -> dict[str, dict[str, Any]]:
    """Seconds of square products on 1, 2, 4, ... threads, the least of interleaved rounds."""
    n, found = 256 if quick else 3072 if cores() > 4 else 1536, {}
    for title in ON_THREADS:
        run = _case(title).product.run((n, n, n))
        run(cores())
        seconds: dict[int, list[float]] = {threads: [] for threads in thread_counts()}
        for _ in range(rounds):
            for threads in seconds:
                seconds[threads].append(_time(partial(run, threads)))
        found[title] = {"n": n, "seconds": {str(threads): min(each) for threads, each in seconds.items()}}
    return found


def _time(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    run()
    return clock() - began


def parts(quick: bool, rounds: int) -> dict[str, list[list[float]]]:
    """M, N, K and the least seconds of products on one thread, which tell what packing, calls and multiplying take."""
    found: dict[str, list[list[float]]] = {}
    for title in ON_THREADS:
        for m, n, k in PARTS:
            shape = (m // 8, n // 8, k // 8) if quick else (m, n, k)
            run = partial(_case(title).product.run(shape), 1)
            run()
            seconds = min(_time(run, time.thread_time) for _ in range(rounds))
            found.setdefault(title, []).append([*shape, seconds])
    return found


def reading(quick: bool, rounds: int) -> dict[str, float]:
    """Bytes a second that threads read from memory together."""
    size, found = (1 << 20 if quick else _READ), {}
    for threads in thread_counts():
        memory = [np.ones(size // 8, np.int64) for _ in range(threads)]
        with ThreadPoolExecutor(threads) as pool:

            def read(memory: list[Any] = memory, pool: ThreadPoolExecutor = pool) -> None:
                list(pool.map(np.bitwise_or.reduce, memory))

            read()
            found[str(threads)] = size * threads / min(_time(read) for _ in range(rounds))
    return found


def clocks(rounds: int) -> dict[str, float]:
    """Cycles a second of each thread while so many work, on average."""
    found = {}
    for threads in thread_counts():
        loops = [Loops() for _ in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            cycles = [statistics.mean(pool.map(Loops.cycle, loops)) for _ in range(rounds)]
        found[str(threads)] = 1 / min(cycles)
    return found


def turns(rounds: int) -> dict[str, float]:
    """Seconds by which a call of `parallel_for`, a piece of two milliseconds for each thread, is longer than a piece: the least median."""
    found = {}
    for threads in thread_counts():
        loops, pieces = [Loops() for _ in range(threads)], np.zeros(threads)

        def piece(index: int, _stop: int, _worker: int, loops: list[Loops] = loops, pieces: Any = pieces) -> None:
            began = time.perf_counter()
            loops[index].cycle()
            pieces[index] = time.perf_counter() - began

        medians = []
        for _ in range(rounds):
            late = [_time(partial(parallel_for, piece, threads, threads)) - float(pieces.mean()) for _ in range(_TURNS)]
            medians.append(statistics.median(late))
        found[str(threads)] = min(medians)
    return found


def linear_layers(quick: bool, rounds: int) -> dict[str, Any]:
    """Multiply-adds and seconds of the products of a 7B model's linear layers with 512 tokens in bfloat16, on all cores."""
    found = {}
    for k, n in ((4096, 4096), (4096, 11008), (11008, 4096)):
        name = f"{k} to {n}"
        m, n, k = (512 // 16, n // 16, k // 16) if quick else (512, n, k)
        ins = default_instruction("bf16", "bf16", None, "sm_90a")
        a, w = (np.random.default_rng(seed).standard_normal((lines, k), np.float32).astype("bfloat16") for seed, lines in ((0, m), (1, n)))
        run = partial(fastmma.gemm, a, w.T, instruction=ins, target="sm_90a", out_dtype=a.dtype)
        run()
        found[name] = [m * n * k, min(_time(run) for _ in range(rounds))]
    return found
