"""Accumulation plans of scaled products: what they print, that they run, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.products import bits, both

import fastmma
from fastmma import (
    AccumulationPlan,
    FastmmaError,
    InstructionError,
    OperandError,
    OperandTypeError,
    ScaledArray,
    TargetError,
    scaled_matmul,
    scaled_plan,
)
from fastmma.products.plan import PRESETS, Preset, holders
from fastmma.scaling import SCHEMES, quantize

WGMMA = "wgmma.mma_async.sync.aligned.m64n8k32.f32."
UE4M3 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


def operands(left: str = "fp8_1x128", right: str = "fp8_128x128", k: int = 256) -> tuple[ScaledArray, ScaledArray]:
    x = np.ones((4, k), np.float32)
    return quantize(x, left), quantize(x, right).T


def test_the_plan_prints() -> None:
    a, b = operands("nvfp4", "mxfp8_e5m2")
    plan = scaled_plan(a, b, target="sm_90a", instruction="wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", split_k=2, out_dtype="f16")
    assert str(plan).splitlines() == [
        "nvfp4 x mxfp8_e5m2 on sm_90a",
        "  instruction  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "  arithmetic   fused: L = 16, F = 25, emax >= -133, keep 23",
        "  known        measured: H200, registers of every opcode on adversarial inputs",
        "  elements     a as f16, b as f16, which has all their values",
        "  k order      ascending by 16, D fed back as C",
        "  promotion    every 16 k: total = fma(scale_a * scale_b, partial, total), f32, from +0",
        "  split-k      2 parts, rounded up to 16 k, added in ascending order, f32",
        "  scales       multiply the sum of every chunk when it joins the total",
        "  epilogue     x = total; x * alpha; x + c; x + bias; round to f16",
        "  library      none is known to multiply nvfp4 by mxfp8_e5m2 on sm_90a",
    ]
    both(a, b, plan=plan)


def test_a_plan_is_what_runs() -> None:
    a, b = operands()
    plan = scaled_plan(a, b, promotion="multiply-add-each", promote_every=64, out_dtype="float16")
    assert (plan.promotion, plan.promote_every, plan.out) == ("multiply-add-each", 64, "f16")
    again = scaled_matmul(a, b, promotion="multiply-add-each", promote_every=64, out_dtype="float16")
    np.testing.assert_array_equal(bits(scaled_matmul(a, b, plan=plan)), bits(again))
    assert scaled_matmul(a, b, plan=replace(plan, out="f32")).dtype == np.float32
    with pytest.raises(OperandError, match="target, out_dtype must be left out"):
        scaled_matmul(a, b, plan=plan, target="sm_90a", out_dtype="f32")
    with pytest.raises(OperandError, match="for fp8_1x128 x fp8_128x128, not mxfp8_e4m3 x mxfp8_e4m3"):
        scaled_matmul(*operands("mxfp8", "mxfp8"), plan=plan)
    with pytest.raises(OperandTypeError, match="must be an AccumulationPlan"):
        scaled_matmul(a, b, plan="deepgemm")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in PRESETS.items() for row in rows])
def test_presets_run_for_the_schemes_that_they_name(name: str, row: Preset) -> None:
    other = row.epilogue[1:] if row.epilogue[0] in ("c", "alpha+c") else ("c", *row.epilogue)
    where = {"preset": name, "target": row.targets[0] if row.targets else "sm_90a"}
    for left in row.a:
        for right in row.b:
            a, b = operands(left, right)
            assert scaled_plan(a, b, **where).source == row.source
            assert not scaled_plan(a, b, **where, epilogue=other).source
            assert not scaled_plan(a, b, **where, split_k=2).source
            assert not scaled_plan(a, b, **where, instruction=scaled_plan(a, b, **where).instruction).source
            both(a[:2], b[:, :2], **where)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"promotion": "plus"}, OperandError, "promotion must be one of add, fma"),
        ({"promotion": "add"}, OperandError, "does not go with scales"),
        ({"scales": "epilogue"}, OperandError, "must have 'scale_ab'"),
        ({"scales": "nowhere"}, OperandError, "applied in one of"),
        ({"scales": "instruction"}, InstructionError, "takes the scales"),
        ({"out": "f64"}, OperandError, "one of f32, bf16, f16"),
        ({"promote_every": 48}, OperandError, "multiple of the instruction's k, 32, not 48"),
        ({"promote_every": None}, OperandError, "need promote_every"),
        ({"epilogue": ("round", "round")}, OperandError, "'round' exactly once"),
        ({"epilogue": ("alpha",)}, OperandError, "'round' exactly once"),
        ({"epilogue": ("alpha", "alpha+c", "round")}, OperandError, "at most once"),
        ({"epilogue": ("c+alpha", "round")}, OperandError, "not 'c\\+alpha'"),
        ({"epilogue": ("silu", "round")}, OperandError, "not 'silu'"),
        ({"epilogue": ("scale_a", "round")}, OperandError, "no scales, which are applied earlier"),
        ({"instruction": "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e4m3"}, InstructionError, "accumulates in f32 or s32"),
        ({"instruction": "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e4m3"}, InstructionError, "a is e4m3, whose values e5m2"),
        ({"instruction": "nothing"}, InstructionError, "'nothing' is no legal opcode"),
        ({"target": "sm_80"}, TargetError, "sm_80"),
        ({"target": 80}, TargetError, "80"),
        ({"schemes": ("fp8_1x128", "fp4")}, OperandError, "scheme must be one of"),
        ({"split_k": 0}, OperandError, "split_k must be an integer of at least 1, not 0"),
        ({"promote_every": 32.0}, OperandError, "promote_every must be"),
        ({"promote_every": 256}, OperandError, "must divide the 128 k that share their scales, not be 256"),
        ({"epilogue": "round"}, OperandError, "must be a tuple of names"),
        ({"epilogue": (1, 2)}, OperandError, "must be a tuple of names"),
    ],
)
def test_parts_of_a_plan_that_do_not_go_together(changes: dict[str, Any], error: type[FastmmaError], message: str) -> None:
    plan = scaled_plan(*operands())
    with pytest.raises(error, match=message):
        replace(plan, **changes)


@pytest.mark.parametrize(
    ("left", "right", "options", "error", "message"),
    [
        ("fp8_row", "fp8_row", {"target": "sm_80"}, InstructionError, "sm_80 has no instruction for e4m3 times e4m3; .* have one: sm_89"),
        ("fp8_row", "int8_row", {}, InstructionError, "no instruction for e4m3 times s8$"),
        ("fp8_row", "fp8_row", {"target": "sm_91"}, FastmmaError, "sm_91"),
        ("fp8_row", "fp8_row", {"backend": "magic"}, FastmmaError, "no backend 'magic'"),
        ("fp8_row", "fp8_row", {"preset": "deepgemm"}, OperandError, "preset 'deepgemm' is for a of fp8_1x128"),
        ("fp8_1x128", "fp8_1x128", {"preset": "deepgemm", "target": "sm_120a"}, OperandError, "is for sm_90a, not sm_120a"),
        ("fp8_row", "fp8_row", {"preset": 5}, OperandError, "preset must be one of cublas"),
        ("fp8_row", "fp8_row", {"promotion": ["fma"]}, OperandError, "promotion must be one of"),
        ("fp8_row", "fp8_row", {"epilogue": ["round"]}, OperandError, "must be a tuple of names"),
        ("fp8_row", "fp8_row", {"alpha": 1j}, OperandTypeError, "alpha must be a real number"),
        ("fp8_1x128", "fp8_1x128", {"promote_every": 256}, OperandError, "must divide the 128 k that share their scales, not be 256"),
        ("fp8_1x128", "fp8_1x128", {"promote_every": 24}, InstructionError, "sm_90a has no instruction.*k divides 24$"),
        ("fp8_1x128", "fp8_1x128", {"promote_every": 0}, OperandError, "at least 1, not 0"),
        ("fp8_1x128", "fp8_1x128", {"split_k": 1.5}, OperandError, "split_k must be an integer"),
        ("int8_row", "int8_row", {"promote_every": 32}, OperandError, "leave promote_every out"),
        ("nvfp4", "nvfp4", {"out_dtype": np.int8}, OperandTypeError, "float32, bfloat16 or float16"),
        ("nvfp4", "nvfp4", {"bias": np.ones(3, np.float32)}, OperandError, r"bias must have shape \(4,\), not \(3,\)"),
        ("nvfp4", "nvfp4", {"bias": np.ones(4)}, OperandTypeError, "bias must have dtype float32"),
        ("nvfp4", "nvfp4", {"c": np.ones(4, np.float32)}, OperandError, r"c must have shape \(4, 4\)"),
        ("nvfp4", "nvfp4", {"alpha": [1, 2]}, OperandTypeError, "alpha must be a real number"),
        ("fp8_1x128", "fp8_1x128", {"preset": "deepgemm", "bias": np.ones(4, np.float32)}, OperandError, "has no step for bias"),
        ("fp8_1x128", "fp8_1x128", {"preset": "deepgemm", "alpha": 2.0}, OperandError, "has no step for alpha"),
        ("nvfp4", "nvfp4", {"epilogue": ("round",)}, OperandError, "has no step for alpha"),
        ("nvfp4", "nvfp4", {"out": np.ones((4, 4))}, OperandTypeError, "out must have dtype float32"),
        (
            "mxfp4",
            "mxfp4",
            {"target": "sm_120a", "instruction": UE4M3},
            InstructionError,
            "ue4m3 scales for every 16 k, not those of mxfp4 and",
        ),
        ("nvfp4", "nvfp4", {"instruction": f"{WGMMA}e4m3.e4m3"}, OperandError, "multiple of the instruction's k, 32, not 16"),
        ("fp8_row", "fp8_row", {"instruction": f"{WGMMA}e5m2.e4m3"}, InstructionError, "a is e4m3"),
    ],
)
def test_what_is_refused(left: str, right: str, options: dict[str, Any], error: type[FastmmaError], message: str) -> None:
    a, b = operands(left, right)
    with pytest.raises(error, match=message):
        scaled_matmul(a, b, **options)


def test_operands_that_are_refused() -> None:
    x = np.ones((4, 64), np.float32)
    a = quantize(x, "mxfp8")
    pairs: tuple[tuple[Any, Any, str], ...] = (
        (a, x.T, r"b must be a ScaledArray, not ndarray; fastmma.scaling.quantize"),
        (a, a, r"b of shape .* must be quantised along axis 0, not 1; pass b.T"),
        (a.T, a.T, r"a of shape .* must be quantised along axis 1, not 0; pass a.T"),
        (a, quantize(x[:, :32], "mxfp8").T, r"not \(4, 64\) and \(32, 4\)"),
        (quantize(x[0], "mxfp8"), a.T, "at least two dimensions"),
        (quantize(np.ones((2, 4, 64)), "mxfp8"), quantize(np.ones((3, 64, 4)), "mxfp8", axis=1), "leading dimensions do not broadcast"),
    )
    for left, right, message in pairs:
        with pytest.raises(FastmmaError, match=message):
            scaled_matmul(left, right)


def test_plans_are_chosen_once() -> None:
    a, b = operands()
    for out in ("bfloat16", "bf16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert scaled_plan(a, b, target="sm_90a", out_dtype=out) is scaled_plan(a, b, target="sm_90a", out_dtype="bf16")
    # values that equal others, but of types that are refused
    for options in ({"split_k": True}, {"split_k": 1.0}, {"promote_every": 128.0}):
        with pytest.raises(OperandError, match="must be an integer of at least 1"):
            scaled_plan(a, b, target="sm_90a", **options)  # type: ignore[arg-type]


def test_strict_mode_refuses_plans_that_are_only_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen before, or anew."""
    monkeypatch.delenv("FASTMMA_STRICT", raising=False)
    half = np.ones((8, 8), np.float16)
    reported = "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16"
    plain = fastmma.gemm_plan(half, half, instruction=reported, target="sm_80")
    a, b = operands()
    scaled = next(
        plan
        for target in fastmma.TARGETS
        for plan in [possible(a, b, target)]
        if plan is not None and plan.operation.arithmetic.evidence.level == "reported"
    )
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    for call in (
        lambda: fastmma.gemm(half, half, plan=plain),
        lambda: fastmma.matmul(half, half, plan=plain),
        lambda: fastmma.gemm_plan(half, half, instruction=reported, target="sm_80"),
        lambda: scaled_matmul(a, b, plan=scaled),
        lambda: scaled_plan(a, b, target=scaled.target),
    ):
        with pytest.raises(FastmmaError, match="strict mode refuses"):
            call()


def possible(a: ScaledArray, b: ScaledArray, target: str) -> AccumulationPlan | None:
    """The plan for a target that has one."""
    try:
        return scaled_plan(a, b, target=target)
    except FastmmaError:
        return None


def test_elements_are_widened_to_formats_that_have_all_their_values() -> None:
    elements = dict.fromkeys(scheme.element_format for scheme in SCHEMES.values())
    assert {fmt.name: tuple(wide.name for wide in holders(fmt)) for fmt in elements} == {
        "e2m1": ("e2m1", "e4m3", "f16"),
        "e2m3": ("e2m3", "e4m3", "f16"),
        "e3m2": ("e3m2", "e4m3", "f16"),
        "e4m3": ("e4m3", "f16"),
        "e5m2": ("e5m2", "f16"),
        "e4m3fnuz": ("e4m3fnuz", "f16"),
        "e5m2fnuz": ("e5m2fnuz", "f16"),
        "s8": ("s8",),
    }
