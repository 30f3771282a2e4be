"""What depends on the shape of a product: few rows or columns, small and large ones, sparse A, epilogues: ``python -m bench.shapes``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import ml_dtypes
import numpy as np

import fastmma
from fastmma.products.choice import default_instruction
from fastmma.study.speed.cases import SQUARE, THIN, cases
from fastmma.study.speed.measure import interleaved
from fastmma.study.speed.products import Shape, TimedProduct, operand, sgemm

L = 4096
NAMES = {"M = 1": (1, L, L), "M = 8": (8, L, L), "M = 16": (16, L, L), "N = 1": (L, 1, L), "N = 16": (L, 16, L), "K = 16": (L, L, 16)}


class Sparse(NamedTuple):
    """A sparse instruction, and the dense one of as many stored elements."""

    name: str
    atype: str
    opcode: str
    dense: str


SPARSE = (
    Sparse(
        "f16, wgmma, sm_90a",
        "f16",
        "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
    ),
    Sparse(
        "e4m3, wgmma, sm_90a",
        "e4m3",
        "wgmma.mma_async.sp.sync.aligned.m64n128k64.f32.e4m3.e4m3",
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3",
    ),
    Sparse(
        "e4m3, mma, sm_90a",
        "e4m3",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    ),
    Sparse(
        "s8, wgmma, sm_90a",
        "s8",
        "wgmma.mma_async.sp.sync.aligned.m64n128k64.s32.s8.s8",
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8",
    ),
)


def _product(atype: str, target: str, shape: Shape, along: bool) -> Callable[[], Any]:
    m, n, k = shape
    a, b = operand(atype, (m, k), 0), operand(atype, (k, n), 1)
    b = np.asfortranarray(b) if along else b
    ins = default_instruction(atype, atype, None, target)
    out = np.empty((m, n), ins.operands["d"].format.dtype)
    return lambda: fastmma.gemm(a, b, instruction=ins, target=target, threads=1, out=out)


def thin(quick: bool, rounds: int) -> list[str]:
    """Times of products of few rows, columns or k, over sgemm's."""
    lines = [f"| the others {L}, 1 thread: CPU time over sgemm's | {' | '.join(NAMES)} |", f"| --- |{' --- |' * len(NAMES)}"]
    for case in cases(THIN):
        for along, layout in ((False, "C order"), (True, "b = w.T")):
            cells = []
            for shape in NAMES.values():
                shape = tuple(min(size, 256) for size in shape) if quick else shape
                runs = {"ours": _product(case.family, case.target, shape, along), "sgemm": partial(sgemm(shape), 1)}
                found = interleaved(runs, rounds, time.thread_time)
                cells.append(f"{found['ours'] / max(found['sgemm'], 1e-9):.1f}")
            lines.append(f"| {case.title}, {layout} | {' | '.join(cells)} |")
    return lines


def sizes(quick: bool, rounds: int) -> list[str]:
    """Speed of small and of large products over that of n = 1536."""
    small, middle = (32, 64) if quick else (256, 1536)
    large = (64, 64, 64) if quick else (1024, 8192, 8192)
    lines = [f"| speed over that of n = {middle}, 1 thread | n = {small} | {' x '.join(map(str, large))} |", "| --- | --- | --- |"]
    for case in cases(SQUARE):
        calls = 1 if quick else 32
        shapes = {"small": (small,) * 3, "middle": (middle,) * 3, "large": large}
        runs = {which: partial(_repeated, case.product.run(shape), calls if which == "small" else 1) for which, shape in shapes.items()}
        found = interleaved(runs, rounds, time.thread_time)
        speed = {which: np.prod(shapes[which], dtype=float) * (calls if which == "small" else 1) / found[which] for which in shapes}
        lines.append(f"| {case.title} | {speed['small'] / speed['middle']:.2f} | {speed['large'] / speed['middle']:.2f} |")
    return lines


def small_over_middle(product: TimedProduct, small: int, middle: int, rounds: int) -> float:
    """Speed of a small product over that of a larger one, on one thread."""
    calls = max(1, min(32, (middle // small) ** 3))
    runs = {"small": partial(_repeated, product.run((small,) * 3), calls), "middle": partial(product.run((middle,) * 3), 1)}
    found = interleaved(runs, rounds, time.thread_time)
    return calls * small**3 / found["small"] / (middle**3 / found["middle"])


def _repeated(run: Callable[[int], Any], calls: int) -> None:
    for _ in range(calls):
        run(1)


def sparse_product(case: Sparse, n: int) -> Callable[[], Any]:
    """What computes n x n results of n stored elements each, on one thread."""
    right = operand(case.atype, (2 * n, n), 3)
    stored, words = fastmma.sparse.compress(operand(case.atype, (n, 2 * n), 2), prune=True)
    return partial(fastmma.gemm, stored, right, metadata=words, instruction=case.opcode, target="sm_90a", threads=1)


def sparse(quick: bool, rounds: int) -> list[str]:
    """Speed of products of sparse A by stored elements, over dense products of as many."""
    n = 64 if quick else 1536
    lines = [f"| sparse A, n = {n} stored, 1 thread | GMAC/s, by stored elements | over the dense product's |", "| --- | --- | --- |"]
    for case in SPARSE:
        a, b = operand(case.atype, (n, n), 0), operand(case.atype, (n, n), 1)
        runs = {
            "dense": partial(fastmma.gemm, a, b, instruction=case.dense, target="sm_90a", threads=1),
            "sparse": sparse_product(case, n),
        }
        found = interleaved(runs, rounds, time.thread_time)
        lines.append(f"| {case.name} | {n**3 / found['sparse'] / 1e9:.1f} | {found['dense'] / found['sparse']:.2f} |")
    return lines


def finished(quick: bool, rounds: int) -> list[str]:
    """Speed of products with a bias and bf16 results over that of the product alone."""
    squares = (32, 64) if quick else (1536, 3072)
    lines = [f"| with a bias and bf16 results, over the product alone | {' | '.join(f'n = {n}' for n in squares)} |", "| --- | --- | --- |"]
    for name, atype in (("`gemm`, f16, sm_90a", "f16"), ("`gemm`, e4m3, sm_90a", "e4m3"), ("`scaled_matmul`, NVFP4, sm_120a", "nvfp4")):
        cells = []
        for n in squares:
            found = interleaved(_with_and_without(atype, n), rounds, time.thread_time)
            cells.append(f"{found['alone'] / found['finished']:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _with_and_without(atype: str, n: int) -> dict[str, Callable[[], Any]]:
    if atype != "nvfp4":
        cases = (("alone", TimedProduct(atype, "sm_90a")), ("finished", TimedProduct(atype, "sm_90a", finished=True)))
        return {name: partial(case.run((n, n, n)), 1) for name, case in cases}
    a, b = (fastmma.scaling.quantize(operand("f32", (n, n), seed), atype) for seed in (0, 1))
    alone = partial(fastmma.scaled_matmul, a, b.T, target="sm_120a", threads=1)
    return {"alone": alone, "finished": partial(alone, bias=np.ones(n, np.float32), out_dtype=ml_dtypes.bfloat16)}


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Rounds, of which the median counts.")
def measure(
    quick: bool,
    rounds: int,
) -> None:
    """Measure how speed depends on shapes."""
    click.echo("\n\n".join("\n".join(section(quick, rounds)) for section in (thin, sizes, sparse, finished)))


if __name__ == "__main__":
    measure()
