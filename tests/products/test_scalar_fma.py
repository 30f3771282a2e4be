"""Products of float32 off the tensor cores, against fractions that are rounded after every fma."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from reference.ieee import fused, plus

import fastmma
from fastmma import FastmmaError

pytestmark = pytest.mark.best_kernels
RNG = np.random.default_rng(0)
OPCODE = "fma.rn.f32"


def drawn(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (RNG.standard_normal(shape) * np.exp2(RNG.integers(-12, 12, shape))).astype(np.float32)


def chain(a: Any, b: Any, start: Any = 0.0) -> float:
    return reduce(lambda total, pair: fused(*pair, total), zip(a.tolist(), b.tolist(), strict=True), float(start))


def test_small_and_large_products_are_chains() -> None:
    a, b, c = drawn(64, 50), drawn(50, 48), drawn(64, 48)
    for part in (slice(0, 64), slice(0, 5)):  # in register tiles, and one by one
        whole = fastmma.gemm(a[part], b, c[part], instruction=OPCODE)
        halves = fastmma.gemm(a[part], b, instruction=OPCODE, split_k=3)
        for i, j in ((0, 0), (3, 47), (4, 20)):
            assert float(whole[i, j]) == chain(a[i], b[:, j], c[i, j])
            parts = [chain(a[i, k : k + 20], b[k : k + 20, j]) for k in (0, 20, 40)]
            assert float(halves[i, j]) == plus(plus(parts[0], parts[1]), parts[2])
    assert fastmma.gemm(a[:5], b, instruction=OPCODE).tobytes() == fastmma.gemm(a, b, instruction=OPCODE, threads=1)[:5].tobytes()


def test_specials_signs_and_out() -> None:
    tiny = np.array([[-(2.0**-100), 0.0]], np.float32)
    assert np.signbit(fastmma.gemm(tiny, np.array([[2.0**-100], [0.0]], np.float32), instruction=OPCODE)).item() is False
    assert np.signbit(fastmma.gemm(tiny[:, :1], np.array([[2.0**-100]], np.float32), instruction=OPCODE)).item() is True
    zeros = np.zeros((64, 33), np.float32), -np.ones((33, 64), np.float32), np.full((64, 64), -0.0, np.float32)
    assert np.signbit(fastmma.gemm(*zeros, instruction=OPCODE)).all()  # k that fills up a register tile changes no -0
    bad = np.array([[np.inf, -np.nan, 1]], np.float32)
    found = fastmma.gemm(bad.T, np.array([[1, 0]], np.float32), instruction=OPCODE)
    assert found[0, 0] == np.inf
    assert found.view(np.uint32)[1].tolist() == [0x7FFFFFFF] * 2
    out = np.empty((3, 2), np.float32)
    assert fastmma.gemm(np.ones((3, 0), np.float32), np.ones((0, 2), np.float32), instruction=OPCODE, out=out) is out
    assert out.tolist() == [[0.0, 0.0]] * 3


def test_the_plan_prints_is_passed_back_and_followed_by_every_call() -> None:
    a, b = drawn(9, 40), drawn(40, 11)
    plan = fastmma.gemm_plan(a, b, instruction=OPCODE, target="sm_80", split_k=3)
    text = str(plan)
    assert text.startswith("f32 x f32 on sm_80")
    assert "3 parts, rounded up to 4 k, added in ascending order, f32" in text
    expected = fastmma.gemm(a, b, instruction=OPCODE, split_k=3)
    assert float(expected[8, 10]) == sum_of_parts(a[8], b[:, 10], (0, 16, 32))
    prepared = fastmma.prepare(plan=plan)
    for found in (
        fastmma.gemm(a, b, plan=plan),
        fastmma.matmul(a, b, plan=plan),
        prepared(a, b),
        prepared(a[None], b[None])[0],
        fastmma.gemm(a, b, plan=plan, backend="reference"),
    ):
        assert found.tobytes() == expected.tobytes()
    uneven = replace(plan, split_k=((0, 6), (6, 40)))
    assert float(fastmma.gemm(a, b, plan=uneven)[2, 3]) == sum_of_parts(a[2], b[:, 3], (0, 6))


def sum_of_parts(row: Any, column: Any, starts: tuple[int, ...]) -> float:
    return reduce(plus, (chain(row[start:stop], column[start:stop]) for start, stop in pairwise((*starts, len(row)))))


def test_an_element_is_explained_and_a_result_identified() -> None:
    a, b = drawn(3, 12), drawn(12, 3)
    told = fastmma.explain(a, b, 1, 2, instruction=OPCODE, split_k=2)
    assert [step.operation for step in told.steps] == ["fma"] * 12 + ["add"]
    assert told.code == fastmma.gemm(a, b, instruction=OPCODE, split_k=2).view(np.uint32)[1, 2]
    assert fastmma.arithmetic(OPCODE, "B200").method == "f32-fma-from-c"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"split_k": 0}, "split_k"),
        ({"c": np.ones((3, 3), np.float32)}, "c must have shape (4, 4), not (3, 3)"),
        ({"accumulator": "f16"}, "accumulates in f32, not f16"),
        ({"metadata": np.ones((4, 2), np.uint8)}, "metadata"),
        ({"preset": "cublas-fast-accum"}, "not for fma.rn.f32"),
        ({"preset": "cublas", "unknown": "refuse"}, "is not recorded"),
        ({"backend": "cupy"}, "cupy"),
        ({"target": "sm_60"}, "sm_60"),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(FastmmaError, match=re.escape(why)):
        fastmma.gemm(drawn(4, 8), drawn(8, 4), instruction=OPCODE, **options)


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(FastmmaError, match=r"fma\.rn\.f32: a must have dtype float32 .*, not float16"):
        fastmma.gemm(drawn(4, 8).astype(np.float16), drawn(8, 4), instruction=OPCODE)
    assert fastmma.gemm(drawn(4, 8).astype(np.float64), drawn(8, 4), instruction=OPCODE, cast=True).dtype == np.float32
    with pytest.raises(FastmmaError, match=r"fma\.rn\.f32"):
        fastmma.gemm(drawn(4, 8), drawn(8, 4))
