"""cuBLAS leaves the end of k out where its equal parts end before K; recorded on an H200, and computed so on every route."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import cublas_left_out

import fastmma
from fastmma.products.order import split
from fastmma.scaling import quantize

SHAPE = (1, 8, 11528)  # of which nine parts of 1280 have 11520


def ones(m: int, n: int, k: int, dtype: Any = np.float16) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.ones((m, k), dtype), np.ones((k, n), dtype)


def test_equal_parts_end_where_those_of_cublas_end() -> None:
    found = cublas_left_out.counts()
    lost = [each for each in found if each.summed < each.k]
    assert (len(found) > 3000, len(lost) > 900) == (True, True)
    # with more than 64 parts more than a tile of k is left out
    assert max(each.k - each.summed for each in lost) > 128
    for each in found:
        unit = 128 if each.fmt == "e4m3" else 64
        assert split(each.k, each.parts, unit, leaves_out=True)[-1][1] == each.summed, each


def test_products_have_the_bits_of_an_h200() -> None:
    samples = list(cublas_left_out.samples())
    assert {sample.call for sample in samples} == {"mm", "addmm", "linear"}
    for sample in samples:
        a, b, added = sample.inputs()
        preset = "cublas-fast-accum" if sample.fast else "cublas"
        options: dict[str, Any] = {"target": "H200", "preset": preset, "split_k": sample.parts, "out_dtype": sample.out, **added}
        found = fastmma.gemm(a, b, options.pop("c", None), **options)
        np.testing.assert_array_equal(found.astype(np.float32).view(np.uint32).ravel(), sample.elements, err_msg=str(sample[:-1]))


def test_a_plan_shows_what_is_left_out() -> None:
    a, b = ones(*SHAPE)
    plan = fastmma.gemm_plan(a, b, preset="cublas", split_k=9)
    lines = [line.strip() for line in str(plan).splitlines()]
    assert "left out     the last k, where 9 parts of K // 9, rounded up to 64 k, end before K" in lines
    assert lines[-1].endswith("; the last 8 of K = 11528 are left out")
    assert (fastmma.gemm(a, b, plan=plan) == 11520).all()
    assert (fastmma.gemm(a, b, plan=replace(plan, leaves_out=False)) == 11528).all()
    assert "  left out" not in str(replace(plan, leaves_out=False))
    # nine parts have all of 11584, and CUTLASS's kernels leave nothing out
    assert "are left out" not in str(fastmma.gemm_plan(*ones(1, 8, 11584), preset="cublas", split_k=9))
    own = fastmma.gemm_plan(a, b, target="H100", split_k=9)
    assert (own.leaves_out, fastmma.gemm(a, b, plan=own)[0, 0]) == (False, 11528)


def test_a_plan_without_parts_follows_the_rule_when_it_gets_them() -> None:
    a, b = ones(*SHAPE)
    plan = fastmma.gemm_plan(a, b, preset="cublas")
    assert (plan.split_k, "left out" in str(plan)) == (1, False)
    assert fastmma.gemm(a, b, plan=replace(plan, split_k=9))[0, 0] == 11520
    halves = replace(plan, split_k=((0, 6000), (6000, 11528)))  # parts that are named have all k
    assert fastmma.gemm(a, b, plan=halves)[0, 0] == 11528


def test_numbers_that_are_left_out_do_not_show() -> None:
    m, n, k = 3, 8, 11528
    a, b = ones(m, n, k)
    a[:, -8:], b[-4:] = np.nan, np.inf
    c, bias = np.ones((m, n), np.float32), np.ones(n, np.float32)
    options: dict[str, Any] = {"preset": "cublas", "split_k": 9}
    expected = np.full((m, n), 11520, np.float32)
    np.testing.assert_array_equal(fastmma.gemm(a, b, **options), expected)
    np.testing.assert_array_equal(fastmma.gemm(a, b, c, **options), expected + 1)
    np.testing.assert_array_equal(fastmma.gemm(a, b, bias=bias, **options), expected + 1)
    np.testing.assert_array_equal(fastmma.matmul(a[None], b[None], **options)[0], expected)
    product = fastmma.prepare(a, b, **options)
    for _ in range(3):
        np.testing.assert_array_equal(product(a, b), expected)
    plan = product.plan
    for join, join_dtype in (("pairwise", ""), ("workspace", "bf16"), ("in-place", "bf16")):
        changed = replace(plan, join=join, join_dtype=join_dtype, epilogue=("round",), out="bf16")
        assert np.isfinite(fastmma.gemm(a, b, plan=changed).astype(np.float32)).all(), join
    explained = fastmma.explain(a, b, 2, 5, **options)
    assert explained.value == 11520
    assert fastmma.gemm(a, b, backend="reference", **options)[0, 0] == 11520


def test_scaled_products_leave_out_as_plain_ones_do() -> None:
    m, n, k, parts = 16, 16, 128 * 20 + 16, 20
    x, y = np.ones((m, k), np.float32), np.ones((n, k), np.float32)
    a, b = quantize(x, "fp8_tensor"), quantize(y, "fp8_tensor").T
    for preset in ("cublas", "cublas-fast-accum"):
        plan = fastmma.scaled_plan(a, b, preset=preset, split_k=parts)
        assert (plan.leaves_out, "left out" in str(plan)) == (True, True)
        kept, whole = fastmma.scaled_matmul(a, b, plan=plan), fastmma.scaled_matmul(a, b, plan=replace(plan, leaves_out=False))
        assert (kept[0, 0] / whole[0, 0]).round(6) == np.float32((k - 16) / k).round(6)


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_identify_finds_it(fmt: str) -> None:
    rng = np.random.default_rng(7)
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[fmt]
    a, b = rng.standard_normal((4, 64 * 5 * 2 + 4)).astype(dtype), rng.standard_normal((64 * 5 * 2 + 4, 8)).astype(dtype)
    d = fastmma.gemm(a, b, preset="cublas", split_k=5)
    match = fastmma.identify(d, a, b, targets="sm_90a")[0]
    assert (match.share, match.plan.split_k, match.plan.leaves_out) == (1, 5, True)
