"""Kernels for the whole process, compiled graphs, and a GPU that is only pretended."""

from __future__ import annotations

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch._inductor.config as inductor  # noqa: E402
from torch._dynamo import eval_frame  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402
from fastmma.torch.emulation import Emulation  # noqa: E402
from fastmma.torch.replacements import replacement, site  # noqa: E402
from fastmma.torch.settings import Settings  # noqa: E402

BF16 = torch.bfloat16
WIDE = np.random.default_rng(0).standard_normal((64, 2048)) * np.exp2(np.random.default_rng(1).integers(-14, 1, (64, 2048)))
A = torch.from_numpy(WIDE).to(BF16)
GPU = ft.mm(A, A.t(), target="H100")


def is_emulated() -> bool:
    return torch.equal(A @ A.t(), GPU)


def test_installed_kernels_serve_all_threads_until_they_are_removed() -> None:
    assert not is_emulated()
    found: list[bool] = []
    with ft.install("H100") as installed:
        assert is_emulated()
        thread = threading.Thread(target=lambda: found.append(is_emulated()))
        thread.start()
        thread.join()
        leaf = A.clone().requires_grad_()
        (leaf @ A.t()).float().sum().backward()
        plain = torch.ones(4, 4, dtype=torch.float64) @ torch.ones(4, 4, dtype=torch.float64)
        with pytest.raises(fastmma.OperandError, match="already"):
            ft.install("A100")
        with ft.emulate("A100", unknown="one") as inner:
            A @ A.t()
    assert found == [True]
    assert plain.tolist() == [[4.0] * 4] * 4
    assert (installed.report.emulated, installed.report.passed, inner.report.assumed) == (4, 1, 1)
    assert not is_emulated()
    installed.remove()
    with pytest.raises(ZeroDivisionError), ft.install("H100"):
        raise ZeroDivisionError
    assert not is_emulated()


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def test_what_is_no_product_is_told_and_attention_is_taken_apart() -> None:
    layer = torch.nn.ConvTranspose2d(3, 4, 3).to(BF16)
    image = A[:3].view(1, 3, 64, 32).clone().requires_grad_()
    leaves = [A[:4, :512].view(1, 4, 16, 32).clone().requires_grad_() for _ in range(3)]
    plain = layer(image)
    wide = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with ft.emulate("H100", attention="math"):
            wanted = torch.autograd.grad(attended(*leaves).float().square().sum(), leaves)
        with ft.install("H100") as installed:
            found = torch.autograd.grad(attended(*leaves).float().square().sum(), leaves)
            assert torch.equal(layer(image), plain)
            layer(image).float().sum().backward()
        gpu = ft.backend("H100", inner="eager")
        compiled = torch.autograd.grad(torch.compile(attended, backend=gpu)(*leaves).float().square().sum(), leaves)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(wide)
    assert [torch.equal(each, other) for each, other in zip(found + compiled, wanted + wanted, strict=True)] == [True] * 6
    softmaxes = {"aten._softmax.default", "aten._softmax_backward_data.default"}
    for report, convolutions in (
        (installed.report, {"aten.convolution.default", "aten.convolution_backward.default"}),
        (gpu.report, set()),
    ):
        assert (report.emulated, report.assumed) == (0, 9)
        passed = {line.operator for line, _ in report.lines("passed")}
        assert softmaxes | convolutions <= passed
        assert bool(convolutions) is any("conv" in each for each in passed)
    with ft.install("H100", other="error"), pytest.raises(fastmma.NotEmulatedError, match="cuDNN"):
        layer(image)
    gpu = ft.backend("H100", inner="eager")
    torch.compile(layer, backend=gpu)(image)
    assert (gpu.report.emulated, gpu.report.passed) == (0, 1)


def test_operators_without_a_cpu_kernel_have_one_while_installed() -> None:
    with ft.install("H100"):
        assert torch.equal(torch.mm(A, A.t(), out_dtype=torch.float32).to(BF16), GPU)
        with pytest.raises(fastmma.NotEmulatedError):
            torch.mm(A.double(), A.t().double(), out_dtype=torch.float64)
    with pytest.raises(NotImplementedError):
        torch.mm(A, A.t(), out_dtype=torch.float32)


def test_compiled_code_is_run_uncompiled_while_kernels_are_installed() -> None:
    bias, vector = A[:, 0].clone(), A[0].clone()

    def function(a: torch.Tensor) -> list[torch.Tensor]:
        return [a @ a.t(), torch.addmv(bias, a, vector), torch.mm(vector[None], vector[:, None])]

    with ft.emulate("H100", unknown="one"):
        wanted = function(A)
    with inductor.patch(cpp_wrapper=True):
        compiled = torch.compile(function, fullgraph=True)
        with ft.install("H100", unknown="one") as installed:
            found = compiled(A)
    assert [torch.equal(*each) for each in zip(found, wanted, strict=True)] == [True] * 3
    assert installed.report.emulated + installed.report.assumed == 3
    assert eval_frame._stance.stance == "default"
    with torch.compiler.set_stance("eager_on_recompile"):
        with ft.install("H100") as installed:
            torch.compiler.set_stance("default")
        assert eval_frame._stance.stance == "default"  # it was said later


def test_an_installation_sees_products_alone_and_says_so() -> None:
    with ft.install("H100") as installed:
        torch.exp(A @ A.t())
    installed.report.assert_all_emulated(products_only=True)
    with pytest.raises(fastmma.NotEmulatedError, match="no other operation"):
        installed.report.assert_all_emulated(assumed=True)
    assert installed.report.to_dict()["unseen"] == 1
    with ft.install("H100") as installed:
        torch.dot(A[0], A[0])
    for options in ({}, {"products_only": True}):
        with pytest.raises(AssertionError, match=r"aten\.dot"):
            installed.report.assert_all_emulated(**options)
    installed.report.clear()
    with pytest.raises(AssertionError, match="nothing"):
        installed.report.assert_all_emulated(products_only=True)


PLACED = {
    "addmv": lambda y, a, x: torch.addmv(y, a, x),
    "addmv_": lambda y, a, x: y.clone().addmv_(a, x),
    "addmv.out": lambda y, a, x: torch.addmv(y, a, x, out=torch.empty(64, dtype=BF16)),
    "mv": lambda _, a, x: torch.mv(a, x),
    "mv.out": lambda _, a, x: torch.mv(a, x, out=torch.empty(64, dtype=BF16)),
    "linear": lambda y, a, _: torch.nn.functional.linear(a, a, y),
    "matmul": lambda _, a, x: torch.matmul(a, x),
    "addbmm_": lambda _, a, __: torch.zeros(64, 64, dtype=BF16).addbmm_(a[None], a.t()[None]),
    "baddbmm_": lambda _, a, __: torch.zeros(1, 64, 64, dtype=BF16).baddbmm_(a[None], a.t()[None]),
    "_addmm_activation": lambda y, a, _: torch._addmm_activation(y, a, a.t()),
    "multi_dot": lambda _, a, x: torch.linalg.multi_dot([a, x]),
}


@pytest.mark.parametrize("inference", [False, True])
def test_all_forms_of_a_product_are_installed(inference: bool) -> None:
    given = A[:, 1].clone(), A, A[0].clone()
    found, wanted = {}, {}
    for name, call in PLACED.items():
        with ft.emulate("H100", unknown="one"):
            wanted[name] = call(*given)
        with torch.inference_mode(inference), ft.install("H100", unknown="one") as installed:
            found[name] = call(*given).clone()
        assert (installed.report.emulated + installed.report.assumed, installed.report.passed) == (1, 0), name
    assert {name: torch.equal(found[name], wanted[name]) for name in PLACED} == dict.fromkeys(PLACED, True)


def test_compiled_graphs_are_emulated_forward_and_backward() -> None:
    layer = torch.nn.Linear(2048, 32, dtype=BF16)
    gpu = ft.backend("H100", inner="eager", functions="torch")
    compiled = torch.compile(lambda x: torch.relu(layer(x)), backend=gpu, fullgraph=True)
    compiled(A).float().square().sum().backward()
    found = [compiled(A).detach(), layer.weight.grad.clone(), layer.bias.grad.clone()]
    layer.zero_grad()
    with ft.emulate("H100", functions="torch"):
        torch.relu(layer(A)).float().square().sum().backward()
        wanted = [torch.relu(layer(A)).detach(), layer.weight.grad, layer.bias.grad]
    assert [torch.equal(each, other) for each, other in zip(found, wanted, strict=True)] == [True, True, True]
    assert (gpu.report.emulated, gpu.report.assumed, gpu.report.unseen) == (3, 0, 0)
    assert not is_emulated()


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "relu"])
def test_operators_of_compiled_graphs_keep_torchs_rules(name: str) -> None:
    calls = {
        "mm": (torch.ops.aten.mm.default, (A[:, :64], A[:, 64:128])),
        "addmm": (torch.ops.aten.addmm.default, (A[:, :64], A[:, 64:128], A[:, 128:192])),
        "bmm": (torch.ops.aten.bmm.default, (A.view(4, 16, 2048), A.view(4, 2048, 16))),
        "relu": (torch.ops.aten._addmm_activation.default, (A[0, :64], A[:, :64], A[:, 64:128])),
    }
    func, args = calls[name]
    number = site(Emulation(Settings("H100", unknown="one")))
    torch.library.opcheck(replacement(func), (number, *args), test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


def test_a_wrong_inner_compiler_is_an_error() -> None:
    with pytest.raises(fastmma.OperandError, match="inner"):
        ft.backend("H100", inner="tvm")


def test_a_pretended_gpu_is_gone_afterwards() -> None:
    before = torch.cuda.is_available(), torch.version.cuda
    with ft.emulate("RTX 5090", as_cuda=True, unknown="one"):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (12, 0)
        drawn = [torch.manual_seed(3) and torch.rand(1, device="cuda").item() for _ in range(2)]
        torch.cuda.manual_seed(3)
        assert drawn == [torch.rand(1).item()] * 2
        x = torch.ones(16, 32, device="cuda", dtype=BF16)
        assert (x.is_cuda, x.device) == (True, torch.device("cuda", 0))
        assert (x.cuda() @ torch.ones(32, 8, dtype=BF16).to("cuda:0")).tolist() == [[32.0] * 8] * 16
        assert torch.nn.Linear(4, 4, device=torch.device("cuda", 0)).to("cuda").weight.device.type == "cuda"
    assert (torch.cuda.is_available(), torch.version.cuda) == before
    with pytest.raises(ZeroDivisionError), ft.emulate("H100", as_cuda=True):
        raise ZeroDivisionError
    assert (torch.cuda.is_available(), torch.version.cuda) == before
