"""Plans of single instructions: they say what is computed, and calls follow them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import FastmmaError, InstructionError, MmaPlan, OperandError, OperandTypeError, TargetError, warp, warpgroup

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
OTHER = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
_RNG = np.random.default_rng(0)
A, B = _RNG.standard_normal((16, 16)).astype(np.float16), _RNG.standard_normal((16, 8)).astype(np.float16)
C = np.zeros((16, 8), np.float32)


def test_a_plan_is_the_operation() -> None:
    plan = fastmma.mma_plan(HALF + ";", target="sm_80")
    assert plan == MmaPlan("sm_80", HALF)
    assert hash(plan) == hash(MmaPlan("sm_80", HALF))
    assert plan.operation.arithmetic == fastmma.arithmetic(HALF, "sm_80")
    assert plan.operation.instruction is fastmma.instruction(HALF)
    assert MmaPlan("sm_80", fastmma.instruction(HALF)) == plan  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        plan.target = "sm_90"  # type: ignore[misc]
    shown = str(plan)
    assert shown.startswith("f16 x f16 on sm_80\n")
    assert HALF in shown
    assert plan.operation.arithmetic.family in shown


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_tiles_follow_their_plan(target: str) -> None:
    plan = replace(fastmma.mma_plan(HALF, target="sm_89"), target=target)
    expected = fastmma.mma(HALF, A, B, C, target=target)
    for ins, named in ((None, None), (HALF, None), (None, target), (fastmma.instruction(HALF), target)):
        assert fastmma.mma(ins, A, B, C, target=named, plan=plan).tobytes() == expected.tobytes()


def test_targets_differ() -> None:
    """Else the tests here would show nothing."""
    assert fastmma.mma(HALF, A, B, C, target="sm_80").tobytes() != fastmma.mma(HALF, A, B, C, target="sm_90a").tobytes()


def test_registers_follow_their_plan() -> None:
    operands = fastmma.instruction(HALF).operands
    a, b, c = (
        fastmma.scatter(codes, operands[name])
        for name, codes in (("a", A.view(np.uint16)), ("b", B.view(np.uint16)), ("c", C.view(np.uint32)))
    )
    for target in ("sm_80", "sm_90a"):
        plan = fastmma.mma_plan(HALF, target=target)
        np.testing.assert_array_equal(warp.mma(None, a, b, c, plan=plan), warp.mma(HALF, a, b, c, target=target))


def test_warpgroups_follow_their_plan() -> None:
    memory = np.ones(128, np.float16).view(np.uint8)
    a, d = np.full((128, 4), 0x3C003C00, np.uint32), np.zeros((128, 4), np.uint32)
    descriptor = warpgroup.Descriptor(0, leading=128, stride=256)
    plan = fastmma.mma_plan(WGMMA, target="sm_90a")
    expected = warpgroup.mma(WGMMA, d, a, descriptor, memory=memory)
    np.testing.assert_array_equal(warpgroup.mma(None, d, a, descriptor, memory=memory, plan=plan), expected)
    with pytest.raises(OperandError, match=r"warpgroup\.mma: the plan is for sm_90a, not sm_90"):
        warpgroup.mma(None, d, a, descriptor, memory=memory, plan=plan, target="sm_90")
    with pytest.raises(InstructionError, match=r"warp\.mma takes mma and wmma\.mma opcodes only"):
        warp.mma(None, a, a, d, plan=plan)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ins": OTHER}, InstructionError, f"mma: the plan is for {HALF}, not {OTHER}; dataclasses.replace changes a plan"),
        ({"target": "sm_90a"}, OperandError, "mma: the plan is for sm_80, not sm_90a; dataclasses.replace changes a plan"),
        ({"target": "sm_1"}, TargetError, "unknown target 'sm_1'"),
        ({"ins": "mma"}, InstructionError, "mma"),
        ({"plan": HALF}, OperandTypeError, "mma: plan must be an MmaPlan, not str; fastmma.mma_plan makes one"),
        ({"plan": fastmma.gemm_plan(A, B)}, OperandTypeError, "mma: plan must be an MmaPlan, not GemmPlan"),
        ({"plan": None, "ins": HALF}, TargetError, "unknown target None: mma needs a target, or plan="),
        ({"plan": None, "target": "sm_80"}, InstructionError, "an opcode must be a string, not NoneType"),
    ],
)
def test_what_a_plan_contradicts(options: dict[str, Any], error: type[FastmmaError], message: str) -> None:
    given: dict[str, Any] = {"ins": None, "plan": fastmma.mma_plan(HALF, target="sm_80"), **options}
    with pytest.raises(error) as caught:
        fastmma.mma(a=A, b=B, c=C, **given)
    assert message in str(caught.value)


def test_what_is_no_plan() -> None:
    with pytest.raises(TargetError, match="illegal on sm_80"):
        fastmma.mma_plan(WGMMA, target="sm_80")
    with pytest.raises(TargetError, match="illegal on sm_80"):
        replace(fastmma.mma_plan(WGMMA, target="sm_90a"), target="sm_80")
    with pytest.raises(InstructionError, match="moves matrices and multiplies nothing"):
        fastmma.mma_plan("movmatrix.sync.aligned.m8n8.trans.b16", target="sm_80")


def test_strict_mode_refuses_what_is_only_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the plan was made before."""
    monkeypatch.delenv("FASTMMA_STRICT", raising=False)
    plan = next(
        fastmma.mma_plan(ins, target=target)
        for target in reversed(fastmma.TARGETS)
        for ins in fastmma.instructions(target, op="mma")
        if fastmma.fidelity(ins, target).level == "reported"
    )
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(TargetError, match="strict mode refuses"):
        fastmma.mma(None, A, B, C, plan=plan)
    with pytest.raises(TargetError, match="strict mode refuses"):
        fastmma.mma_plan(plan.instruction, target=plan.target)
