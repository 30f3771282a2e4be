"""Products on AMX over those by VNNI: of bytes, s4, NVFP4, MXFP4 and bits: ``python -m bench.amx [ROUNDS]``."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import fastmma
from fastmma.backends import integer
from fastmma.backends.call import Operands
from fastmma.backends.parameters import scaled_parameters
from fastmma.backends.resolve import operation_of
from fastmma.kernels.integer import amx, b1, int8
from fastmma.kernels.params import Scaled
from fastmma.kernels.scaled import amx_groups, groups
from fastmma.kernels.scaled.lines import ScaledOperands
from fastmma.kernels.tiles import AMX, first_fit
from fastmma.scaling import quantize

SCALED = ("nvfp4", "mxfp4")
SIZES = (256, 512, 1024, 2048, 4096)
_HEADINGS = (
    "n, threads",
    "s8 by VNNI, GMAC/s",
    "on AMX",
    "AMX over VNNI",
    "medians",
    "s4 by VNNI",
    "on AMX",
    "AMX over VNNI",
    "b1 by popcounts",
    "bits as bytes on AMX",
    "NVFP4 by VNNI",
    "on AMX",
    "AMX over VNNI",
    "MXFP4 by VNNI",
    "on AMX",
    "AMX over VNNI",
)
_S4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
_WORK = 1 << 29  # multiply-adds that are timed together


def seconds(
    runs: dict[str, Callable[[], object]], rounds: int, calls: int, clock: Callable[[], float] = time.thread_time
) -> dict[str, list[float]]:
    """Times of a call of each, interleaved."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            began = clock()
            for _ in range(calls):
                run()
            if number:  # the first round compiles
                found[name].append((clock() - began) / calls)
    return found


def products(n: int, threads: int, rounds: int) -> dict[str, list[float]]:
    """Times of products of a size: packing included, results in memory that was used before."""
    rng, out = np.random.default_rng(n), np.empty((n, n), np.int32)
    a, b = (rng.integers(-128, 128, (n, n), np.int8) for _ in range(2))
    bits, others = (rng.integers(0, 2, (n, n), np.uint8) for _ in range(2))
    operation = operation_of(fastmma.instruction(_S4), "sm_80")
    halves = Operands(*(rng.integers(0, 16, (1, n, n), np.uint8) for _ in range(2)), None)
    words = out.view(np.uint32)[None]
    runs: dict[str, Callable[[], object]] = {
        "s8": lambda: int8.gemm(a, b, None, out, False, 32, threads),
        "s8 amx": lambda: amx.gemm(a, b, None, out, threads),
        "s4": lambda: integer.integer(operation, halves, words, threads),
        "s4 amx": lambda: integer.integer_on_amx(operation, halves, words, threads),
        "popcount": lambda: b1.gemm(bits, others, None, out, "xor", threads),
        "bits": lambda: b1.gemm_on_amx(bits, others, None, out, "xor", threads),
    }
    for scheme in SCALED:
        p, given = _scaled(scheme, n)
        runs[scheme] = partial(groups.multiply, p, given, threads)
        runs[f"{scheme} amx"] = partial(amx_groups.multiply, p, given, threads)
    return seconds(runs, rounds, max(1, min(20, _WORK // n**3)), time.thread_time if threads == 1 else time.perf_counter)


def _scaled(scheme: str, n: int) -> tuple[Scaled, ScaledOperands]:
    """Normal numbers, quantised."""
    rng = np.random.default_rng(n)
    a, b = (quantize(rng.standard_normal((n, n), np.float32), scheme) for _ in range(2))
    p = scaled_parameters(fastmma.scaled_plan(a, b.T, target="sm_120a").operation)
    codes = [np.ascontiguousarray(each.view(np.uint8)) for each in (a.elements, b.elements, a.scales, b.scales)]
    return p, ScaledOperands(codes[0], codes[1].T, None, np.empty((n, n), np.uint32), codes[2], codes[3].T)


def row(n: int, threads: int, rounds: int) -> list[str]:
    """The cells of a size."""
    found = products(n, threads, rounds)
    best = {name: min(times) for name, times in found.items()}
    speeds = {name: f"{n**3 / least / 1e9:.0f}" for name, least in best.items()}
    medians = f"{statistics.median(found['s8']) / statistics.median(found['s8 amx']):.2f}"
    ratios = {name: f"{best[name] / best[f'{name} amx']:.2f}" for name in ("s8", "s4", *SCALED)}
    of_scaled = [cell for scheme in SCALED for cell in (speeds[scheme], speeds[f"{scheme} amx"], ratios[scheme])]
    of_bytes = speeds["s8"], speeds["s8 amx"], ratios["s8"], medians
    return [f"{n}, {threads}", *of_bytes, speeds["s4"], speeds["s4 amx"], ratios["s4"], speeds["popcount"], speeds["bits"], *of_scaled]


def main(rounds: int) -> None:
    """Print a table."""
    if first_fit(AMX) is None:
        sys.exit("this CPU has no AMX, or the system does not permit it")
    print("|", " | ".join(_HEADINGS), "|")
    print("|" + " --- |" * len(_HEADINGS))
    for threads in (1, len(os.sched_getaffinity(0))):
        for n in SIZES:
            print("|", " | ".join(row(n, threads, rounds)), "|", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 9)
