"""Names of GPUs, compute capabilities and spellings of targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference.cases import cases

import fastmma
from fastmma import TARGETS, TargetError
from fastmma.isa import gpus
from fastmma.isa.gpus import target_named
from fastmma.isa.targets import AMD, ARCHITECTURES, NVIDIA, architecture, target_of

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
# what `torch.cuda.get_device_name` and `nvidia-smi -L` print
DRIVERS = {
    "Tesla V100-SXM2-16GB": "sm_70",
    "NVIDIA TITAN V": "sm_70",
    "Tesla T4": "sm_75",
    "NVIDIA GeForce RTX 2080 Ti": "sm_75",
    "Quadro RTX 6000": "sm_75",
    "NVIDIA A100-SXM4-40GB": "sm_80",
    "NVIDIA A100 80GB PCIe": "sm_80",
    "NVIDIA A10G": "sm_86",
    "NVIDIA RTX A6000": "sm_86",
    "NVIDIA GeForce RTX 3090": "sm_86",
    "Orin": "sm_87",
    "NVIDIA L40S": "sm_89",
    "NVIDIA GeForce RTX 4090": "sm_89",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "sm_89",
    "NVIDIA GeForce RTX 4060 Laptop GPU": "sm_89",
    "NVIDIA RTX 6000 Ada Generation": "sm_89",
    "NVIDIA H100 80GB HBM3": "sm_90a",
    "NVIDIA H100 PCIe": "sm_90a",
    "NVIDIA H100 NVL": "sm_90a",
    "NVIDIA H200": "sm_90a",
    "NVIDIA GH200 480GB": "sm_90a",
    "NVIDIA B200": "sm_100a",
    "NVIDIA GB200": "sm_100a",
    "NVIDIA GB300": "sm_103a",
    "NVIDIA Thor": "sm_110a",
    "NVIDIA GeForce RTX 5090": "sm_120a",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "sm_120a",
    "NVIDIA GB10": "sm_121a",
}
SPELLED = {
    "sm90": "sm_90",
    "sm120f": "sm_120f",
    "compute_100f": "sm_100f",
    "h100-pcie": "sm_90a",
    "rtx-5090": "sm_120a",
    "RTX_4090": "sm_89",
    "jetson thor": "sm_110a",
    "9.0": "sm_90a",
    "12.0": "sm_120a",
}
CAPABILITIES: dict[Any, str] = {
    (7, 0): "sm_70",
    (8, 9): "sm_89",
    (9, 0): "sm_90a",
    (10, 3): "sm_103a",
    (np.int64(12), np.int32(1)): "sm_121a",
}


@cases(("name", "target"), [*((target, target) for target in TARGETS), *(DRIVERS | SPELLED | CAPABILITIES).items()])
def test_what_a_name_means(name: Any, target: str) -> None:
    assert target_named(name) == target
    assert target_named(target) == target


def test_every_gpu_is_found_as_it_is_written() -> None:
    for row in ARCHITECTURES:
        assert row.usual in TARGETS
        for name in row.gpus:
            assert {target_named(each) for each in (name, name.upper(), name.lower(), f"NVIDIA {name}")} == {row.usual}
    every = [name for row in ARCHITECTURES for name in row.gpus]
    assert len(gpus._BY_WORDS) == len(every)


UNKNOWN = (
    *("", " ", " H100", "H100 ", "sm_90a ", "H100 mini", "GTX 1080", "RTX 6000", "RTX 4090 D2"),
    *("\u0669.0", "sm_\u0669\u0660", "\0", "\u00e9" * 5000, None, 90, 9.0),
    *["H", "H1000", "gpu", "laptop", "sm", "sm_", "sm_99", "sm_90b", "sm_900", "90", "9", "9.9", "RTX"],
    *((9,), (9, 0, 0), (9.0, 0), (9, 9), (-9, 0), [], {}, b"H100", ...),
)


@cases("name", UNKNOWN)
def test_what_means_nothing(name: Any) -> None:
    with pytest.raises(TargetError, match=r"(?s)unknown target .*; 'fastmma gpus' and the page GPUs list all names"):
        target_named(name)


def test_the_message_says_what_is_near() -> None:
    with pytest.raises(TargetError, match=r"the nearest are H100, "):
        target_named("H10O")
    with pytest.raises(TargetError, match=r"the nearest are sm_90a, "):
        target_named("sm-90a")
    with pytest.raises(TargetError, match=r"the nearest are 9\.0, 8\.9, 8\.8; "):
        target_named("9.1")


@pytest.mark.parametrize("name", ["A100", (8, 0), "sm80", "NVIDIA A100-SXM4-40GB"])
def test_calls_take_names_and_say_what_they_took(name: Any) -> None:
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    expected = fastmma.gemm(a, b, target="sm_80")
    plan = fastmma.gemm_plan(a, b, target=name)
    assert plan.target == "sm_80"
    assert "sm_80" in str(plan)
    c = np.zeros((16, 8), np.float32)
    results = (
        fastmma.gemm(a, b, target=name),
        fastmma.gemm(a, b, target=name, plan=plan),
        fastmma.matmul(a, b, target=name),
        fastmma.mma(F16, a, b, c, target=name),
        fastmma.mma(F16, a, b, c, target=name, plan=fastmma.mma_plan(F16, target=name)),
        fastmma.gemm(a, b, target=name, backend="reference"),
    )
    for result in results:
        np.testing.assert_array_equal(result, expected)
    assert fastmma.arithmetic(F16, name) == fastmma.arithmetic(F16, "sm_80")
    assert fastmma.fidelity(F16, name) == fastmma.fidelity(F16, "sm_80")
    assert fastmma.instructions(name) == fastmma.instructions("sm_80")


@pytest.mark.parametrize("name", ["H100", "sm_80", "compute_90a", "NVIDIA GeForce RTX 4090", "native", (9, 0)])
def test_a_target_in_the_place_of_an_operand(name: Any) -> None:
    a = np.ones((16, 16), np.float16)
    scaled = fastmma.scaling.quantize(np.ones((16, 32)), "mxfp8_e4m3")
    product, added = fastmma.prepare(a, a), fastmma.gemm_plan(a, a, a, beta=1.0)
    calls: list[Callable[[], Any]] = [
        lambda: fastmma.gemm(a, a, name),
        lambda: fastmma.gemm(a, name),
        lambda: fastmma.gemm(a, a, name, plan=added, beta=1.0),
        lambda: fastmma.gemm(a, a, name, instruction=F16, target="sm_80"),
        lambda: fastmma.matmul(a, a, name),  # type: ignore[misc]
        lambda: fastmma.gemm_plan(a, a, name),
        lambda: fastmma.prepare(a, name),
        lambda: fastmma.prepare(a, a, name),
        lambda: fastmma.prepare(a, a, a, name),  # type: ignore[misc]
        lambda: product(a, a, name),
        lambda: fastmma.mma(F16, a, a[:, :8], name, target="sm_80"),
        lambda: fastmma.scaled_matmul(scaled, scaled.T, name),  # type: ignore[misc]
        lambda: fastmma.scaled_plan(scaled, scaled.T, name),  # type: ignore[misc]
    ]
    for call in calls:
        with pytest.raises(fastmma.OperandTypeError, match="target is a keyword"):
            call()


def test_other_names_in_the_place_of_an_operand() -> None:
    a = np.ones((16, 16), np.float16)
    for value in ("cublas", "a" * 5000, (1, 2, 3)):
        with pytest.raises(fastmma.OperandTypeError, match="gemm: c must be") as caught:
            fastmma.gemm(a, a, value)
        assert "target" not in str(caught.value)


def test_a_datacenter_gpu_takes_the_instruction_of_its_libraries() -> None:
    import ml_dtypes

    a = np.ones((16, 32), ml_dtypes.float8_e4m3fn)
    assert fastmma.gemm_plan(a, a.T, target="H100") == fastmma.gemm_plan(a, a.T, target="sm_90a")
    assert fastmma.gemm_plan(a, a.T, target="B200").target == "sm_100a"


def test_targets_are_records() -> None:
    for row in NVIDIA:
        major, minor = row.capability
        assert row.name == f"sm_{major}{minor}"
        assert target_named(row.capability) == row.usual
        for name in row.targets:
            target = target_of(name)
            assert (target.name, target.capability, target.vendor, target.lanes) == (name, row.capability, "NVIDIA", 32)
            assert target.architecture is row
            assert architecture(name) == row.name
    assert [target_of(name).variant for name in ("sm_90", "sm_90a", "sm_100f")] == ["", "a", "f"]
    assert {(row.vendor, row.lanes) for row in AMD if row.name.startswith("gfx9")} == {("AMD", 64)}
    assert {(row.vendor, row.lanes) for row in AMD if row.name.startswith("gfx1")} == {("AMD", 32)}
    assert target_named("AMD Instinct MI300X OAM") == "gfx942"
    assert [target_of(name).ptx for name in ("sm_90", "sm_90a", "sm_100f", "sm_110f")] == [(7, 8), (8, 0), (8, 8), (9, 0)]
    assert {ins.lanes for ins in fastmma.instructions(op="mma")} == {32}
    moves = "ldmatrix.sync.aligned.m8n8.x1.b16", "movmatrix.sync.aligned.m8n8.trans.b16"
    assert {fastmma.instruction(text).lanes for text in moves} == {32}
