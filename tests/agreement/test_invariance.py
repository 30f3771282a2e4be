"""Groups of numbers of rows: what a library's plans compute, row by row, is alike within a group, and nowhere else."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.cases import cases

import fastmma
from fastmma import cublas, invariance
from fastmma.products.choice_map import choice_map


@cases(
    "n, k, dtype, gpu, rows",
    [
        (4096, 14336, "bf16", "H200", range(1, 300, 7)),
        (4096, 4096, "f16", "H100", range(1, 100, 3)),
        (4096, 4096, "f32", "H200", range(1, 60, 4)),
        (4096, 4096, "f32", "H200", range(1, 3)),  # of which only vectors take an alpha first
        (4096, 14336, "tf32", "H200", range(1, 300, 9)),
    ],
)
def test_rows_of_a_group_have_the_bits_of_its_plans(n: int, k: int, dtype: str, gpu: str, rows: range) -> None:
    found = invariance(n, k, dtype=dtype, target=gpu, rows=rows)
    fmt, tf32 = fastmma.FORMATS[dtype].dtype, dtype == "tf32"
    rng = np.random.default_rng(0)
    a, b = (np.ldexp(rng.standard_normal(shape), rng.integers(-4, 5, shape)).astype(fmt) for shape in ((64, k), (k, 64)))
    results: dict[int, set[bytes]] = {}
    for count in rows:
        group = found.group_of(count)
        if group is None:
            assert any(count in each for each in found.unknown)
            continue
        plan = cublas.plan(np.empty((count, k), fmt), np.empty((n, k), fmt).T, target=gpu, out_dtype="f32" if tf32 else dtype, tf32=tf32)
        results.setdefault(group, set()).add(fastmma.gemm(a, b, plan=plan).tobytes())
    assert [len(each) for each in results.values()] == [1] * len(found.groups)
    assert len(set().union(*results.values())) == len(found.groups) > 1
    assert found.is_invariant is False
    assert not found.undecided


def test_groups_are_those_of_what_a_gpu_answered() -> None:
    found = invariance(4096, 14336, dtype="bf16", target="H200", rows=range(1, 641))
    parts = {count: choice_map("cublas_choices_h200_13_1.npz").find("bf16", "nt", count, 4096, 14336) for count in range(1, 641)}
    assert found.known == 640
    for count, own in parts.items():
        assert found.same(1, count) is (own == parts[1])
    verdict = found.verdict(1, 640)
    assert verdict.equal is False
    assert "k in 4 parts" in str(verdict)


def test_what_is_unknown_is_in_no_group() -> None:
    found = invariance(5003, 4100, dtype="bf16", target="H200", rows=range(1, 30))
    assert found.unknown == (range(1, 30),)
    assert found.same(1, 7) is None
    with pytest.raises(fastmma.OperandError, match="plan of 7 rows is not known"):
        found.verdict(7, 1)
    assert "rows 1 to 29: not known" in str(found)
    of_b200 = invariance(4096, 4096, dtype="bf16", target="B200", rows=(1, 2))
    assert of_b200.groups == ()
    assert of_b200.is_invariant is None
    assert invariance(14336, 4096, dtype="bf16", target="H200", rows=range(1, 641)).is_invariant is True


@cases(
    "changes, said",
    [
        ({"layout": "nx"}, "layout must be one of nn, nt, tn, tt"),
        ({"preset": "deepgemm"}, "preset must be one of cublas, cublas-fast-accum"),
        ({"rows": [0]}, "rows must be numbers of at least 1"),
        ({"rows": 7}, "rows must be numbers"),
        ({"target": "H1000"}, "H1000"),
    ],
)
def test_bad_questions(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(fastmma.FastmmaError, match=said):
        invariance(64, 64, **{"dtype": ml_dtypes.bfloat16, "target": "H200"} | changes)
