"""Products of torch by kernels that an H200's library was asked for: linear layers of usual models, off the tensor cores too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from fastmma.cublas import Choice  # noqa: E402
from reference.fake_cublaslt import FakeCublasLt, FakeDriver  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as door  # noqa: E402
from fastmma.products.cublas.rows import Product  # noqa: E402
from fastmma.torch.arrays import as_numpy  # noqa: E402
from fastmma.verification.cublas_record import record_cublas  # noqa: E402
from fastmma.verification.cublas_requests import Request  # noqa: E402
from fastmma.verification.cublaslt import CublasLt  # noqa: E402
from fastmma.verification.cuda_driver import Driver  # noqa: E402


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
    for target in ("B200", "A100"):
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


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A file of plans of a GPU that no table is about: bf16 in two parts of k, float32 in dealt parts, fp8 in one."""

    def chooses(product: Product) -> Choice:
        if product.fmt == "f32":
            return Choice(55, tile=11, split_k=4, reduction=2, stages=31)
        return Choice(66, tile=10, split_k=2, reduction=2, stages=36 if product.fmt == "e4m3" else 35, cluster=4)

    requests = [Request("bf16", "nt", 4, 64, 256), Request("bf16", "nt", 4, 64, 256, biased=True), Request("f32", "nn", 16, 24, 40)]
    requests += [Request("e4m3", "nt", 16, 32, 512), Request("bf16", "nn", 8, 8, 64, stack=3)]
    asked = CublasLt(FakeCublasLt(chooses), Driver(FakeDriver("NVIDIA H20", (9, 0))))
    assert record_cublas(tmp_path / "book.npz", requests, asked).confirmed == len(requests)
    return tmp_path / "book.npz"


def test_products_are_looked_up_in_a_file_of_plans(book: Path) -> None:
    x, w, bias = torch.randn(4, 256).bfloat16(), torch.randn(64, 256).bfloat16(), torch.randn(64).bfloat16()
    a, b = torch.randn(16, 40), torch.randn(40, 24)
    one, first, second = torch.ones(()), torch.randn(16, 512).to(torch.float8_e4m3fn), torch.randn(32, 512).to(torch.float8_e4m3fn)
    stacks = torch.randn(3, 8, 64).bfloat16(), torch.randn(3, 64, 8).bfloat16()
    with door.emulate("H20", plans=book, unknown="one") as gpu:
        plain, biased = torch.nn.functional.linear(x, w), torch.nn.functional.linear(x, w, bias)
        wide = a @ b
        torch.bmm(*stacks)
        torch._scaled_mm(first, second.t(), one, one, out_dtype=torch.bfloat16)
    gpu.report.assert_all_emulated(assumed=False)
    assert gpu.report.emulated == 5
    assert str(gpu.report).count("recorded: ") == 5
    for d, left, right, more in ((plain, x, w.t(), {}), (biased, x, w.t(), {"bias": bias}), (wide, a, b, {})):
        host = {name: value.float().numpy() for name, value in more.items()}
        first_host, second_host = (as_numpy(each) for each in (left, right))
        plan = fastmma.cublas.plan(first_host, second_host, target="H20", plans=book, out_dtype=as_numpy(d).dtype, **host)
        assert (fastmma.gemm(first_host, second_host, plan=plan, **host) == as_numpy(d)).all()
    with door.emulate("H20", plans=str(book), unknown="one") as gpu:
        torch.nn.functional.linear(x[:3], w)
        torch._scaled_mm(first, second[:16].t(), one, one, out_dtype=torch.bfloat16)
    assert gpu.report.emulated == 0
    assert gpu.report.assumed == 2


def test_files_of_plans_are_checked(book: Path, tmp_path: Path) -> None:
    with pytest.raises(fastmma.OperandError, match="has plans of H20, not of H100"):
        door.emulate("H100", plans=book)
    (tmp_path / "none.npz").write_bytes(b"no book")
    with pytest.raises(fastmma.OperandError, match="is no plan book"):
        door.emulate("H100", plans=tmp_path / "none.npz")
