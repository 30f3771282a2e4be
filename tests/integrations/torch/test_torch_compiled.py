"""Compiled functions: no product is lost to a decomposition, and what inductor computes is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch._inductor.config as inductor  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402

BF16 = torch.bfloat16
torch.manual_seed(0)
A = torch.randn(8, 64, dtype=BF16)
V = torch.randn(64, dtype=BF16)
Y = torch.randn(8, dtype=BF16)
W = torch.nn.Parameter(torch.randn(64, 64, dtype=BF16))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own


@torch.library.custom_op("fastmma_tests::product", mutates_args=())
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product that only its kernel knows of."""
    return a @ b


@product.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """Functions are compiled anew in every test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def _compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        pytest.skip("inductor needs a C++ compiler")


needs_compiler = pytest.mark.usefixtures("_compiler")


def emulated(function: Callable[..., Any], *args: Any) -> Any:
    with ft.emulate("H100", functions="torch", unknown="one"):
        return function(*args)


def backend(inner: str = "eager", **options: Any) -> Any:
    return ft.backend("H100", functions="torch", inner=inner, unknown="one", **options)


def compiled(function: Callable[..., Any], gpu: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=gpu, fullgraph=True, **options)


def products(report: Any) -> int:
    return int(report.emulated + report.assumed)


def operators(report: Any, *statuses: str) -> set[str]:
    return {line.operator for line, _ in report.lines(*statuses)}


def thin(a: torch.Tensor, v: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Products that inductor takes apart into multiplications and sums."""
    return [
        torch.mv(a, v),
        torch.addmv(y, a, v),
        torch.mm(v[None], v[:, None]),
        torch.bmm(v.view(4, 1, 16), v.view(4, 16, 1)),
        torch.bmm(v.view(4, 16, 1), v.view(4, 1, 16)),
        torch.baddbmm(v[:4].view(4, 1, 1), v.view(4, 1, 16), v.view(4, 16, 1)),
    ]


@needs_compiler
@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_products_by_vectors_are_not_taken_apart(inner: str) -> None:
    gpu = backend(inner)
    found = compiled(thin, gpu)(A, V, Y)
    first = thin.__code__.co_firstlineno + 3
    places = {line.operator: line.where for line, _ in gpu.report.lines("emulated", "assumed")}
    assert {"aten.mv.default": f"{__file__}:{first}", "aten.addmv.default": f"{__file__}:{first + 1}"}.items() <= places.items()
    assert [torch.equal(*each) for each in zip(found, emulated(thin, A, V, Y), strict=True)] == [True] * 6
    assert (products(gpu.report), gpu.report.passed, gpu.report.unseen) == (6, 0, 0)
    gpu.report.assert_all_emulated(assumed=True)


def attended(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2)


@needs_compiler
def test_attention_has_torchs_strides_forward_and_backward() -> None:
    q, k = torch.randn(1, 16, 4, 8, dtype=BF16, requires_grad=True), torch.randn(1, 16, 4, 8, dtype=BF16)
    gpu = backend("inductor")
    found = compiled(attended, gpu)(q, k)
    gradient = torch.autograd.grad(found.float().square().sum(), q)
    with ft.emulate("H100", functions="torch", unknown="one"):
        wanted = attended(q, k)
        assert torch.equal(found, wanted)
        assert torch.equal(gradient[0], torch.autograd.grad(wanted.float().square().sum(), q)[0])
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert {f"{name}.default", f"{name}_backward.default"} <= operators(gpu.report, "assumed")


@pytest.mark.parametrize("transposed", [True, False])
def test_emulated_attention_lies_as_torchs(transposed: bool) -> None:
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    q, k = (torch.randn(2, 16, 4, 8).transpose(1, 2) if transposed else torch.randn(2, 4, 16, 8) for _ in range(2))

    def strides() -> list[tuple[int, ...]]:
        out, sums = forward(q, k, k)
        return [each.stride() for each in (out, sums, *backward(torch.ones_like(out), q, k, k, out, sums, 0.0, False))]

    assert emulated(strides) == strides()


@needs_compiler
def test_what_inductor_computes_is_listed_at_every_run() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        scores = a @ a.t()
        total = product(torch.softmax(scores.exp(), -1), scores)
        return torch.cond(a.sum() > 0, lambda x: x @ x, lambda x: x @ x.t(), (total,))

    gpu = backend("inductor")
    run = compiled(function, gpu)
    run(A)
    gpu.report.clear()
    run(A)
    assert operators(gpu.report, "emulated", "assumed") == {"aten.mm.default"}
    assert products(gpu.report) == 2
    assert {"aten.exp.default", "aten.sum.default", "aten.div.Tensor"} <= operators(gpu.report, "passed")
    assert operators(gpu.report, "unseen") == {"fastmma_tests.product.default", "cond"}
    assert "aten.permute.default" in operators(gpu.report, "neutral")
    places = {line.operator: line.where for line, _ in gpu.report.lines("passed", "unseen")}
    first = function.__code__.co_firstlineno
    assert places["fastmma_tests.product.default"] == f"{__file__}:{first + 2}"
    with pytest.raises(fastmma.NotEmulatedError, match=r"fastmma_tests\.product"):
        gpu.report.assert_all_emulated(assumed=True)


def test_graphs_that_run_operator_by_operator_are_seen_as_by_the_mode() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        total = product(torch.exp(a @ a.t() * 2.0**-6), a)
        return torch.cond(a.sum() > 0, lambda x: x @ W, lambda x: x @ W.t(), (total,))

    gpu = backend()
    found = compiled(function, gpu)(A)
    with ft.emulate("H100", functions="torch", unknown="one") as mode:
        assert torch.equal(found, function(A))
    assert products(gpu.report) == products(mode.report) == 3
    for report in (gpu.report, mode.report):
        assert operators(report, "passed") == {"aten.exp.default", "aten.sum.default"}
        assert operators(report, "unseen") == set()
    assert {line.where for line, _ in gpu.report.lines("passed")} == {f"{__file__}:{function.__code__.co_firstlineno + n}" for n in (1, 2)}


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_recurrent_cells_are_taken_apart_and_told(cell: type[torch.nn.Module]) -> None:
    gpu = backend()
    compiled(cell(64, 16, dtype=BF16), gpu)(A)
    assert products(gpu.report) == 2
    with pytest.raises(fastmma.NotEmulatedError, match="_cell"):
        gpu.report.assert_all_emulated(assumed=True)


@needs_compiler
def test_roundings_that_inductor_skips_are_not_called_neutral() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        return (((a @ a.t()) * 1.7) * 0.3).float().to(BF16).float()

    gpu = backend("inductor")
    assert not torch.equal(compiled(function, gpu)(A), emulated(function, A))
    assert operators(gpu.report, "passed") >= {"aten.mul.Tensor", "prims.convert_element_type.default"}
    eager = backend()
    assert torch.equal(compiled(function, eager)(A), emulated(function, A))


class Constants(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.layer = W, torch.nn.Linear(64, 16, dtype=BF16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x @ torch.exp(self.weight) @ (self.weight @ self.weight))


@needs_compiler
def test_freezing_hides_nothing() -> None:
    model, gpu = Constants().eval(), backend("inductor")
    with inductor.patch(freezing=True), torch.no_grad():
        assert torch.equal(compiled(model, gpu)(A), emulated(model, A))
    assert products(gpu.report) == 4
    assert operators(gpu.report, "passed") == {"aten.exp.default"}


@torch.compiler.disable
def outside(a: torch.Tensor) -> torch.Tensor:
    return a @ a.t()


def test_what_runs_outside_of_graphs_is_unseen() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        return outside(a) @ a

    gpu = backend()
    torch.compile(function, backend=gpu)(A)
    assert products(gpu.report) == 1
    (line, number), *rest = gpu.report.lines("unseen")
    assert (line.operator, number, rest) == ("torch.compile", 1, [])
    assert line.where.startswith(f"{__file__}:")
    with pytest.raises(fastmma.NotEmulatedError, match="fullgraph"):
        gpu.report.assert_all_emulated(assumed=True)
    with pytest.raises(fastmma.NotEmulatedError, match="fullgraph"):
        torch.compile(function, backend=backend(other="error"))(A)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(function, backend())(A)


def test_a_function_may_have_several_backends_and_sizes() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        return torch.relu(a @ a.t())

    assert torch.equal(torch.compile(function, backend="eager")(A), function(A))
    first, second = backend(), ft.backend("A100", functions="torch", inner="eager", unknown="one")
    runs = [compiled(function, gpu) for gpu in (first, second)]
    for rows in (8, 5, 3):
        assert torch.equal(runs[0](A[:rows]), emulated(function, A[:rows]))
        runs[1](A[:rows])
    runs[0](A)
    totals = [sum(number for line, number in gpu.report.lines() if line.operator == "aten.mm.default") for gpu in (first, second)]
    assert totals == [4, 3]
    with ft.emulate("H100", functions="torch", unknown="one") as mode:
        torch.compile(function, backend=second)(A)
    assert (products(mode.report), products(second.report)) == (1, 3)


@needs_compiler
@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_gradients_and_operations_in_place_are_emulated(inner: str) -> None:
    def function(a: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer.addmm_(a, a.t())
        return (a @ W) @ W

    def run(called: Callable[..., Any]) -> list[torch.Tensor]:
        W.grad, buffer = None, torch.zeros(8, 8, dtype=BF16)
        called(A, buffer).float().sum().backward()
        return [buffer, W.grad]

    gpu = backend(inner)
    with ft.emulate("H100", functions="torch", unknown="one"):
        wanted = run(function)
    found = run(compiled(function, gpu))
    assert [torch.equal(*each) for each in zip(found, wanted, strict=True)] == [True, True]
    assert products(gpu.report) == 6
