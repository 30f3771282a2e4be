"""One group a family: fastmma on one thread and on two, and NumPy's sgemm of the same shape."""

from __future__ import annotations

from typing import Any

import pytest

from bench.cases import quantisation, warps
from fastmma.scaling import SCHEMES
from fastmma.study.speed.cases import FAMILY, Case, cases
from fastmma.study.speed.products import sgemm

ROUNDS = 7


def _measure(benchmark: Any, family: str, run: Any, threads: int) -> None:
    benchmark.group = family
    benchmark.pedantic(run, args=(threads,), rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize("case", cases(FAMILY), ids=lambda case: case.title)
@pytest.mark.parametrize("who", ["sgemm", "one thread", "two threads"])
def test_product(benchmark: Any, quick: bool, case: Case, who: str) -> None:
    shape = case.quick if quick else case.shape
    run = sgemm(shape) if who == "sgemm" else case.product.run(shape)
    _measure(benchmark, case.title, run, 2 if who == "two threads" else 1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("threads", [1, 2])
def test_quantize(benchmark: Any, quick: bool, scheme: str, axis: int, threads: int) -> None:
    _measure(benchmark, f"quantize along axis {axis}", quantisation(scheme, axis, 256 if quick else 4096), threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_warps(benchmark: Any, quick: bool, threads: int) -> None:
    _measure(benchmark, "warp.mma", warps(1000 if quick else 100_000), threads)
