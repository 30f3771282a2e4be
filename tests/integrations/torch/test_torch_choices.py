"""Products of torch by kernels that an H200's library was asked for: linear layers of usual models, off the tensor cores too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma  # noqa: E402
import fastmma.torch as door  # noqa: E402


def drawn(rows: int, n: int, k: int, dtype: Any = torch.float32) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(rows, k, generator=generator).to(dtype), torch.randn(n, k, generator=generator).to(dtype)


def elements(tensor: Any) -> Any:
    return tensor.view(torch.int16).numpy().view(fastmma.FORMATS["bf16"].dtype)


@pytest.mark.parametrize("rows", [2, 16, 100])
def test_float32_layers_are_chains_in_parts(rows: int) -> None:
    x, weight = drawn(rows, 768, 3072)
    with door.emulate("H200", fp32="ieee", other="error") as gpu:
        found = torch.nn.functional.linear(x, weight)
        scaled = torch.addmm(found, x, weight.t(), beta=0.5, alpha=-2)
    gpu.report.assert_all_emulated(assumed=False)
    a, b = x.numpy(), weight.numpy().T
    plan = fastmma.cublas.plan(a, b)
    assert plan.instruction == "fma.rn.f32"
    assert isinstance(plan, fastmma.GemmPlan) == (rows > 2)  # two rows are shared by lanes
    assert (found.numpy() == fastmma.gemm(a, b, plan=plan)).all()
    c = found.numpy()
    ending = fastmma.cublas.plan(a, b, c, alpha=-2.0, beta=0.5)
    assert (scaled.numpy() == fastmma.gemm(a, b, c, plan=ending, alpha=-2.0, beta=0.5)).all()


def test_one_row_of_float32_is_shared_by_lanes() -> None:
    x, weight = drawn(1, 1024, 4096)
    with door.emulate("H200", other="error") as gpu:
        found, turned = x @ weight.t(), torch.mv(weight, x[0])
    gpu.report.assert_all_emulated(assumed=False)
    plan = fastmma.cublas.plan(x.numpy(), weight.numpy().T)
    assert (found.numpy() == fastmma.gemm(x.numpy(), weight.numpy().T, plan=plan)).all()
    assert torch.equal(turned, found[0])
    with door.emulate("H200") as gpu:
        weight @ x.t()  # a column, of which nobody asked
    assert gpu.report.emulated == 0


@pytest.mark.parametrize("rows", [1, 33])
def test_a_head_of_odd_size_is_a_kernel_of_its_own(rows: int) -> None:
    x, weight = drawn(rows, 50257, 768, torch.bfloat16)
    with door.emulate("H200", other="error") as gpu:
        found = torch.nn.functional.linear(x, weight)
    gpu.report.assert_all_emulated(assumed=False)
    a, b = elements(x), elements(weight).T
    assert (elements(found) == fastmma.gemm(a, b, plan=fastmma.cublas.plan(a, b, out_dtype="bf16"))).all()


def test_other_gpus_and_calls_are_not_looked_up() -> None:
    x, weight = drawn(16, 768, 3072)
    for target in ("H100", "A100"):
        with door.emulate(target, fp32="ieee") as gpu:
            torch.nn.functional.linear(x, weight)
        assert (gpu.report.emulated, gpu.report.passed) == (0, 1)
    with door.emulate("H200", fp32="ieee") as gpu:
        torch.addmm(torch.ones(1), x, weight[:1].t())  # a bias of one column
    assert gpu.report.emulated == 0
    memory = np.zeros(16 * 3072 + 1, np.float32)[1:].reshape(16, 3072)
    with door.emulate("H200", fp32="ieee") as gpu:
        torch.from_numpy(memory) @ weight.t()  # at an address that is no multiple of 16 bytes
    assert gpu.report.emulated == (memory.ctypes.data % 16 == 0)


@pytest.mark.filterwarnings("ignore::fastmma.torch.AssumedWarning")
@pytest.mark.parametrize("columns", [768, 256, 64, 8])
def test_predicted_choices_are_emulated_where_nearly_all_are_right(columns: int) -> None:
    x, weight = drawn(16, columns, 3072)
    bias = torch.ones(columns)
    plan = fastmma.cublas.plan(x.numpy(), weight.numpy().T, bias=bias.numpy())
    with door.emulate("H200", fp32="ieee") as gpu:
        found = torch.nn.functional.linear(x, weight, bias)
    assert (gpu.report.emulated, gpu.report.assumed) == (plan.evidence.is_known, not plan.evidence.is_known)
    assert (found.numpy() == fastmma.gemm(x.numpy(), weight.numpy().T, bias=bias.numpy(), plan=plan)).all()
