"""What plans say about libraries: recorded, fitted, assumed or unknown, and nothing about a plan that somebody changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma import OperandError, OperandTypeError
from fastmma.products.evidence import ORDER_LEVELS, OrderEvidence
from fastmma.products.library_gpu import library_gpu
from fastmma.scaling import SCHEMES, quantize

BF16 = np.dtype(ml_dtypes.bfloat16)


def planned(m: int, n: int, k: int, target: str, **options: Any) -> fastmma.GemmPlan:
    return fastmma.gemm_plan(np.zeros((m, k), BF16), np.zeros((k, n), BF16), target=target, preset="cublas", **options)


def level(plan: fastmma.GemmPlan | fastmma.AccumulationPlan) -> str:
    return plan.evidence.level if plan.evidence else ""


@pytest.mark.parametrize("target", ["H200", "NVIDIA H200", "H100 SXM5", "NVIDIA H100 80GB HBM3", "sm_90a", (9, 0)])
def test_a_recorded_product_on_its_gpu(target: Any) -> None:
    plan = planned(512, 512, 4096, target, unknown="refuse")
    assert level(plan) == "recorded"
    assert "bf16 nn of M = 512, N = 512, K = 4096" in plan.source
    assert f"library      {plan.evidence}" in str(plan)


@pytest.mark.parametrize("target", ["H100 PCIe", "NVIDIA H100 NVL", "GH200", "NVIDIA GH200 480GB", "H800", "H20", "H200 NVL"])
def test_a_part_with_other_multiprocessors_is_not_the_recorded_one(target: str) -> None:
    plan = planned(512, 512, 4096, target)
    assert level(plan) == "assumed"
    assert plan.operation.arithmetic.evidence.level == "measured"
    with pytest.raises(OperandError, match="not recorded on"):
        planned(512, 512, 4096, target, unknown="refuse")


@pytest.mark.parametrize("target", ["B200", "GB200", "B300", "sm_100a"])
@pytest.mark.parametrize("shape", [(8, 8, 65536), (512, 512, 4096), (8, 8, 8)])
def test_no_order_is_known_on_a_blackwell(target: str, shape: tuple[int, int, int]) -> None:
    assert level(planned(*shape, target)) == "assumed"
    with pytest.raises(OperandError, match=f"no product on {target} is recorded"):
        planned(*shape, target, unknown="refuse")


def test_a_product_that_nobody_recorded_is_assumed() -> None:
    plan = planned(24, 41, 56, "H200")
    assert level(plan) == "assumed"
    assert "one part of k, since bf16 nn of M = 24, N = 41, K = 56 is not recorded" in str(plan)
    assert level(planned(512, 512, 4096, "H200", split_k=9)) == "assumed"


@pytest.mark.parametrize("gpu", ["H200", "H100"])
@pytest.mark.parametrize(
    ("shape", "turned", "known"),
    [
        ((24, 40, 56), "nn", True),
        ((23, 40, 56), "nn", True),  # M is contiguous nowhere
        ((23, 40, 56), "nt", True),
        ((23, 40, 56), "tn", False),
        ((24, 40, 56), "tt", True),
        ((24, 44, 56), "nt", False),
        ((24, 40, 60), "nn", False),
        ((24, 40, 2560), "nt", True),
        ((24, 40, 2568), "nt", False),
        ((2, 24, 40, 56), "nt", True),
        ((2, 24, 40, 5120), "tn", True),  # stacks are never cut
        ((2, 24, 42, 56), "nn", False),
        ((1, 24, 40, 56), "nn", False),
    ],
)
def test_products_whose_order_a_rule_says(gpu: str, shape: tuple[int, ...], turned: str, known: bool) -> None:
    *stack, m, n, k = shape
    a, b = (np.zeros((*stack, *(size if each == "n" else size[::-1])), BF16) for each, size in zip(turned, ((m, k), (k, n)), strict=True))
    a, b = (x if each == "n" else x.swapaxes(-1, -2) for each, x in zip(turned, (a, b), strict=True))
    plan = fastmma.gemm_plan(a, b, target=gpu, preset="cublas")
    assert level(plan) == ("fitted" if known else "assumed")
    if known:
        assert f"{plan.evidence.rate[1]:,} fresh products" in str(plan)  # type: ignore[union-attr, index]
        assert level(fastmma.gemm_plan(a, b, target="GH200", preset="cublas")) == "assumed"


def test_a_changed_plan_is_nobodys() -> None:
    plan = planned(512, 512, 4096, "H200")
    ampere = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    for change in (
        {"split_k": 3},
        {"join": "pairwise"},
        {"epilogue": ("round",), "out": "bf16"},
        {"target": "A100", "instruction": ampere},
    ):
        changed = replace(plan, **change)
        assert changed.evidence is None
        assert not changed.source
    assert replace(plan, evidence=None) != plan
    assert level(replace(plan, split_k=3, evidence=OrderEvidence("recorded", "own recordings"))) == "recorded"
    with pytest.raises(OperandTypeError, match="evidence must be an OrderEvidence"):
        replace(plan, evidence="recorded")


def test_every_plan_says_how_its_arithmetic_is_known() -> None:
    x = np.ones((4, 256), np.float32)
    a, b = (quantize(x, "nvfp4") for _ in range(2))
    plans = [
        fastmma.gemm_plan(x.astype(np.float16), x.T.astype(np.float16), target="H100"),
        fastmma.gemm_plan(x.astype(np.int8), x.T.astype(np.int8), target="RTX 5090"),
        fastmma.mma_plan("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", target="A100"),
        *(fastmma.scaled_plan(a, b.T, target=target) for target in ("H100", "RTX 5090", "B200")),
    ]
    for plan in plans:
        assert f"  known        {plan.operation.arithmetic.evidence}" in str(plan).splitlines()
    assert "by definition" in str(plans[1])


@pytest.mark.parametrize(
    ("schemes", "target", "there_is_one"),
    [
        (("nvfp4", "nvfp4"), "H100", False),
        (("mxfp8_e4m3", "mxfp8_e4m3"), "H200", False),
        (("nvfp4", "nvfp4"), "B200", True),
        (("mxfp4", "mxfp4"), "RTX 5090", True),
        (("fp8_1x128", "fp8_128x128"), "H100", True),
        (("fp8_tensor", "fp8_tensor"), "L40S", True),
    ],
)
def test_a_plan_that_no_library_has_says_so(schemes: tuple[str, str], target: str, there_is_one: bool) -> None:
    x = np.ones((4, 256), np.float32)
    plan = fastmma.scaled_plan(quantize(x, schemes[0]), quantize(x, schemes[1]).T, target=target)
    assert ("none is known to multiply" not in str(plan)) == there_is_one
    assert set(schemes) <= set(SCHEMES)


def test_libraries_of_scaled_products_are_assumed_where_k_may_be_cut() -> None:
    x = np.ones((4, 256), np.float32)
    plan = fastmma.scaled_plan(quantize(x, "fp8_tensor"), quantize(x, "fp8_tensor").T, target="H100", preset="cublas")
    assert level(plan) == "assumed"
    with pytest.raises(OperandError, match="not sm_90a"):
        fastmma.scaled_plan(quantize(x, "nvfp4"), quantize(x, "nvfp4").T, target="H100", preset="torchao")


def test_evidence_is_checked() -> None:
    assert [OrderEvidence(name, "", (9, 9) if name == "fitted" else None).is_known for name in ORDER_LEVELS] == [True, True, False, False]
    assert [OrderEvidence("fitted", "", (right, 1000)).is_known for right in (1000, 999, 998, 0)] == [True, True, False, False]
    for wrong in (("measured", "", None), ("fitted", "a rule", None), ("recorded", "", (1, 2))):
        with pytest.raises(OperandError):
            OrderEvidence(*wrong)


def test_names_of_recorded_parts() -> None:
    assert [library_gpu(name) for name in ("H100", "Tesla H100-SXM5-80GB", "NVIDIA H200 141GB HBM3e")] == ["H100", "H100", "H200"]
    assert library_gpu("H100 80GB PCIe") not in ("H100", "H200")
