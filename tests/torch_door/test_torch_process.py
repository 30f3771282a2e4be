"""Kernels for the whole process, compiled graphs, and a GPU that is only pretended."""

from __future__ import annotations

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma  # noqa: E402
import fastmma.torch as door  # noqa: E402

BF16 = torch.bfloat16
WIDE = np.random.default_rng(0).standard_normal((64, 2048)) * np.exp2(np.random.default_rng(1).integers(-14, 1, (64, 2048)))
A = torch.from_numpy(WIDE).to(BF16)
GPU = door.mm(A, A.t(), target="H100")


def is_emulated() -> bool:
    return torch.equal(A @ A.t(), GPU)


def test_installed_kernels_serve_all_threads_until_they_are_removed() -> None:
    assert not is_emulated()
    found: list[bool] = []
    with door.install("H100") as installed:
        assert is_emulated()
        thread = threading.Thread(target=lambda: found.append(is_emulated()))
        thread.start()
        thread.join()
        leaf = A.clone().requires_grad_()
        (leaf @ A.t()).float().sum().backward()
        plain = torch.ones(4, 4) @ torch.ones(4, 4)
        with pytest.raises(fastmma.OperandError, match="already"):
            door.install("A100")
        with door.emulate("A100", unknown="one") as inner:
            A @ A.t()
    assert found == [True]
    assert plain.tolist() == [[4.0] * 4] * 4
    assert (installed.report.emulated, installed.report.passed, inner.report.assumed) == (4, 1, 1)
    assert not is_emulated()
    installed.remove()
    with pytest.raises(ZeroDivisionError), door.install("H100"):
        raise ZeroDivisionError
    assert not is_emulated()


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def test_what_is_no_product_is_told_and_attention_is_taken_apart() -> None:
    layer = torch.nn.Conv2d(3, 4, 3).to(BF16)
    image = A[:3].view(1, 3, 64, 32).clone().requires_grad_()
    leaves = [A[:4, :512].view(1, 4, 16, 32).clone().requires_grad_() for _ in range(3)]
    plain = layer(image)
    wide = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with door.emulate("H100"):
            wanted = torch.autograd.grad(attended(*leaves).float().square().sum(), leaves)
        with door.install("H100") as installed:
            found = torch.autograd.grad(attended(*leaves).float().square().sum(), leaves)
            assert torch.equal(layer(image), plain)
            layer(image).float().sum().backward()
        gpu = door.backend("H100", inner="eager")
        compiled = torch.autograd.grad(torch.compile(attended, backend=gpu)(*leaves).float().square().sum(), leaves)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(wide)
    assert [torch.equal(each, other) for each, other in zip(found + compiled, wanted + wanted, strict=True)] == [True] * 6
    for report, passed in ((installed.report, 3), (gpu.report, 0)):
        assert (report.emulated, report.assumed, report.passed) == (7, 2, passed)
    with door.install("H100", other="error"), pytest.raises(fastmma.NotEmulatedError, match="cuDNN"):
        layer(image)
    gpu = door.backend("H100", inner="eager")
    torch.compile(layer, backend=gpu)(image)
    assert (gpu.report.emulated, gpu.report.passed) == (0, 1)


def test_operators_without_a_cpu_kernel_have_one_while_installed() -> None:
    with door.install("H100"):
        assert torch.equal(torch.mm(A, A.t(), out_dtype=torch.float32).to(BF16), GPU)
        with pytest.raises(fastmma.NotEmulatedError):
            torch.mm(torch.ones(2, 2), torch.ones(2, 2), out_dtype=torch.float32)
    with pytest.raises(NotImplementedError):
        torch.mm(A, A.t(), out_dtype=torch.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_compiled_graphs_are_emulated_forward_and_backward(inner: str) -> None:
    if inner == "inductor":
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            pytest.skip("inductor needs a C++ compiler")
    layer = torch.nn.Linear(2048, 32, dtype=BF16)
    gpu = door.backend("H100", inner=inner)
    compiled = torch.compile(lambda x: torch.relu(layer(x)), backend=gpu)
    compiled(A).float().square().sum().backward()
    found = [compiled(A).detach(), layer.weight.grad.clone(), layer.bias.grad.clone()]
    layer.zero_grad()
    with door.emulate("H100"):
        torch.relu(layer(A)).float().square().sum().backward()
        wanted = [torch.relu(layer(A)).detach(), layer.weight.grad, layer.bias.grad]
    assert [torch.equal(each, other) for each, other in zip(found, wanted, strict=True)] == [True, True, True]
    gpu.report.assert_all_emulated()
    assert gpu.report.emulated == 3
    assert not is_emulated()


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "relu"])
def test_operators_of_compiled_graphs_keep_torchs_rules(name: str) -> None:
    graphs: list[torch.fx.GraphModule] = []
    calls = {
        "mm": (lambda a, b: a @ b, (A[:, :64], A[:, 64:128])),
        "addmm": (torch.addmm, (A[:, :64], A[:, 64:128], A[:, 128:192])),
        "bmm": (torch.bmm, (A.view(4, 16, 2048), A.view(4, 2048, 16))),
        "relu": (torch._addmm_activation, (A[0, :64], A[:, :64], A[:, 64:128])),
    }
    function, args = calls[name]
    gpu = door.backend("H100", inner="eager")
    changed = gpu._changed
    gpu._changed = lambda graph: graphs.append(changed(graph)) or graphs[-1]
    torch.compile(function, backend=gpu)(*args)
    targets = [node.target for graph in graphs for node in graph.graph.nodes if str(node.target).startswith("fastmma.")]
    assert len(targets) == 1
    torch.library.opcheck(targets[0], (gpu._number, *args), test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


def test_a_wrong_inner_compiler_is_an_error() -> None:
    with pytest.raises(fastmma.OperandError, match="inner"):
        door.backend("H100", inner="tvm")


def test_a_pretended_gpu_is_gone_afterwards() -> None:
    before = torch.cuda.is_available(), torch.version.cuda
    with door.emulate("RTX 5090", as_cuda=True, unknown="one"):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (12, 0)
        drawn = [torch.manual_seed(3) and torch.rand(1, device="cuda").item() for _ in range(2)]
        torch.cuda.manual_seed(3)
        assert drawn == [torch.rand(1).item()] * 2
        x = torch.ones(16, 32, device="cuda", dtype=BF16)
        assert x.is_cuda
        assert (x.cuda() @ torch.ones(32, 8, dtype=BF16).to("cuda:0")).tolist() == [[32.0] * 8] * 16
        assert torch.nn.Linear(4, 4, device=torch.device("cuda", 0)).to("cuda").weight.device.type == "cpu"
    assert (torch.cuda.is_available(), torch.version.cuda) == before
    with pytest.raises(ZeroDivisionError), door.emulate("H100", as_cuda=True):
        raise ZeroDivisionError
    assert (torch.cuda.is_available(), torch.version.cuda) == before
