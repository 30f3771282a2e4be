"""Reports are closed in control flows, compiled functions, subclasses and threads, and name the caller's place."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference.torch_reports import drawn, lines  # noqa: E402
from torch._higher_order_ops import scan, while_loop  # noqa: E402
from torch._higher_order_ops.map import map as map_rows  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402
from fastmma.host.bounded import Bounded  # noqa: E402
from fastmma.torch import composites  # noqa: E402
from fastmma.torch.kinds import KINDS, kind_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*(Sparse|flex_attention|nested):UserWarning")  # torch's
BF16, F32 = torch.bfloat16, torch.float32


A, F = drawn(64, 64), drawn(8, 8, dtype=F32)
FLAT = ft.mm(A, A, target="H100")


# control flows, transforms, compiled functions


FLOWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": lambda x: torch.cond(torch.tensor(True), lambda x: x @ x, lambda x: x + 1, (x,)),
    "cond of a bool": lambda x: torch.cond(True, lambda x: x @ x, lambda x: x + 1, (x,)),
    "while_loop": lambda x: while_loop(lambda i, _: i < 1, lambda i, x: (i + 1, x @ x), (torch.tensor(0), x))[1],
    "map": lambda x: map_rows(lambda row, y: row @ y, x[None], x)[0],
    "scan": lambda x: scan(lambda carry, row: (carry @ row, carry + row), x, x[None])[0],
}


@pytest.mark.parametrize("name", FLOWS)
def test_control_flows_run_with_their_products_emulated_and_so_do_their_gradients(name: str) -> None:
    leaf = A.clone().requires_grad_()
    with ft.emulate("H100", functions="torch", unknown="one") as gpu:
        assert torch.equal(FLOWS[name](A), FLAT)
        out = FLOWS[name](leaf)
        out.backward(A)
    with torch.inference_mode(), gpu:
        assert torch.equal(FLOWS[name](A), FLAT)
    assert lines(gpu.report, "passed", "unseen") == set()
    assert {operator for _, operator in lines(gpu.report)} == {"mm"}
    with ft.emulate("H100", functions="torch", unknown="one"):
        wanted = torch.autograd.grad(leaf @ leaf, leaf, A)[0]
    assert torch.equal(leaf.grad, wanted)


@pytest.mark.parametrize("imported", [True, False])
def test_flexible_attention_is_passed_whether_torchs_compiler_is_imported_or_not(monkeypatch: pytest.MonkeyPatch, imported: bool) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    if not imported:
        monkeypatch.setattr(composites, "sys", SimpleNamespace(modules={}))
    compiler, q = torch.compile, drawn(1, 1, 16, 8)
    with ft.emulate("H100", functions="torch") as gpu:
        assert flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + b + h + i - j).shape == q.shape
    assert lines(gpu.report) == {("passed", "flex_attention")}
    assert torch.compile is compiler
    with ft.emulate("H100", functions="torch", attention="error"), pytest.raises(fastmma.NotEmulatedError, match="attention"):
        flex_attention(q, q, q)


def test_compiled_functions_are_seen_operator_by_operator() -> None:
    whole = torch.compile(lambda x: functional.gelu(x @ x), fullgraph=True, backend="eager")
    plain = whole(A)
    with ft.emulate("H100", functions="torch") as gpu:
        assert torch.equal(whole(A), functional.gelu(FLAT))
        inside = torch.compile(lambda x: functional.gelu(x @ x), fullgraph=True, backend="eager")
        assert torch.equal(inside(A), functional.gelu(FLAT))
    assert lines(gpu.report) == {("emulated", "mm"), ("passed", "gelu")}
    assert torch.equal(whole(A), plain)
    assert torch.equal(inside(A), plain)


def test_functions_of_autograd_and_traced_programs_are_seen() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient @ ctx.saved_tensors[0].t()

    traced = torch.jit.trace(lambda x: x @ x, (A,))
    with ft.emulate("H100", functions="torch", unknown="one") as gpu:
        Square.apply(A.clone().requires_grad_()).backward(A)
        traced(A)
        torch.vmap(lambda row: functional.gelu(row))(A)
        torch.func.grad(lambda x: x.sigmoid().sum())(F)
    assert {operator for _, operator in lines(gpu.report)} == {"mm", "gelu", "sigmoid", "sigmoid_backward", "sum"}


# subclasses, threads, places


def test_operators_of_subclasses_come_back_one_by_one() -> None:
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> torch.Tensor:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: torch.Tensor) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*(each.inner if isinstance(each, cls) else each for each in args), **(kwargs or {}))

    class Named(torch.Tensor):
        pass

    with ft.emulate("H100", functions="torch") as gpu:
        functional.gelu(Wrapped(A) @ A)
        functional.silu(A.as_subclass(Named) @ A)
    assert lines(gpu.report) == {("emulated", "mm"), ("passed", "gelu"), ("passed", "silu")}
    assert gpu.report.emulated == 2


@pytest.mark.parametrize("fake", [False, True])
def test_tensors_that_hold_nothing_count_for_nothing(fake: bool) -> None:
    with FakeTensorMode() if fake else nullcontext():
        empty = torch.empty(8, 8, device="cpu" if fake else "meta", dtype=BF16)
    with ft.emulate("H100", functions="torch", other="error") as gpu:
        functional.gelu(empty @ empty).softmax(-1)
        for result in (functional.linear(empty, empty), functional.conv1d(empty, empty[:, :, None])):
            assert (type(result).__name__ == "FakeTensor", result.shape) == (fake, (8, 8))
    assert gpu.report.lines() == [] if fake else lines(gpu.report) == set()
    layer = torch.nn.Linear(8, 8, dtype=BF16)
    with ft.emulate("H100") as gpu:
        assert torch.export.export(layer, (A[:4, :8],)) is not None
    assert gpu.report.emulated == 0


def test_lines_and_warnings_name_the_callers_place() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(64, 61, bias=False, dtype=BF16), torch.nn.GELU())
    here = f"{__file__}:{sys._getframe().f_lineno + 2}"
    with ft.emulate("H100", functions="torch", unknown="one") as gpu:
        layer(A)
    assert {line.where for line, _ in gpu.report.lines()} >= {here}
    assert {line.where for line, _ in gpu.report.lines("assumed", "emulated", "passed")} == {here}
    with ft.emulate("H100", functions="torch"), pytest.warns(ft.AssumedWarning) as told:
        layer[0](drawn(7, 64))
    assert (told[0].filename, told[0].lineno) == (__file__, sys._getframe().f_lineno - 1)
    with ft.emulate("H100", functions="torch", other="warn"), pytest.warns(ft.AssumedWarning, match="not emulated") as told:
        torch.dot(A[0], A[0])
    assert (told[0].filename, told[0].lineno) == (__file__, sys._getframe().f_lineno - 1)


def test_threads_count_their_own_neutral_operators() -> None:
    gpu = ft.emulate("H100", functions="torch")

    def work() -> None:
        with gpu:
            for _ in range(200):
                F + F

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with gpu:
        F + F
        assert gpu.report.neutral == 801  # also of a mode that is not left yet
    assert gpu.report.neutral == 801
    assert "neutral" not in {line.status for line, _ in gpu.report.lines("emulated", "passed")}


def test_nothing_stays_of_what_the_process_was_told() -> None:
    gru, kernels = torch.nn.GRU(8, 8), torch.ops.higher_order.cond.py_kernels.copy()
    plain, compiler = gru(F[:, None])[0], torch.compile
    with ft.emulate("H100", functions="torch"), ft.emulate("A100"):
        assert torch.ops.higher_order.cond.py_kernels != kernels
    assert torch.ops.higher_order.cond.py_kernels == kernels
    assert torch.compile is compiler
    assert torch.equal(gru(F[:, None])[0], plain)
    found: list[torch.Tensor] = []
    with ft.emulate("H100", functions="torch", fp32="tf32", unknown="one"):  # of this thread alone
        thread = threading.Thread(target=lambda: found.append(gru(F[:, None])[0]))
        thread.start()
        thread.join()
    assert torch.equal(found[0], plain)


def test_caches_are_bounded() -> None:
    with warnings.catch_warnings(), ft.emulate("H100", functions="torch", unknown="one") as gpu:
        warnings.simplefilter("error")
        assert isinstance(gpu._run._plans, Bounded)
        assert isinstance(gpu._run._lines, Bounded)
        for columns in range(1, 40):
            A @ A[:, :columns]
    last = Bounded[int, int](full=8)
    for number in range(100):
        last.keep(number, number)
    assert list(last) == list(range(92, 100))


def test_every_operator_of_torch_has_a_kind() -> None:
    kept = dict(KINDS)
    answers = {}
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space != "aten":
            continue
        try:
            func = getattr(getattr(torch.ops.aten, packet), overload or "default")
        except (AttributeError, RuntimeError):  # an overload that torch shows nobody
            continue
        answers[name] = kind_of(func).answer
    KINDS.clear()
    KINDS.update(kept)
    assert len(answers) > 2000
    told = [name for name, answer in answers.items() if answer == "whole"]
    assert {"aten::relu", "aten::mm", "aten::exp", "aten::gru.input"}.isdisjoint(told)
