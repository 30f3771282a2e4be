"""Calls of a form that was met before have the bits and the lines in the report that a first call has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference.cases import cases  # noqa: E402
from reference.torch_reports import drawn  # noqa: E402
from torch.nn import functional  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402
from fastmma.torch import kept_products  # noqa: E402
from fastmma.torch.places import belong_to  # noqa: E402

F32 = torch.float32
Call = Callable[[Any, Any], Any]
# of x and y, two of a kind; what differs between calls of one function must not be taken for the same
CALLS: tuple[Call, ...] = (
    lambda x, y: x @ y,
    lambda _, y: y @ y,
    lambda x, y: x.t() @ y,
    lambda x, y: torch.addmm(x, x, y),
    lambda x, y: torch.addmm(x[0], x, y),
    lambda x, y: torch.addmm(x[0], y, y, beta=0.5, alpha=2),
    lambda x, y: torch.baddbmm(x[None], x[None], y[None], beta=0),
    lambda x, y: x[1:9, 1:9] @ y[1:9, 1:9],
)
FUNCTIONS: tuple[Call, ...] = (
    lambda x, _: torch.exp(x),
    lambda x, _: torch.exp(x.t()),
    lambda x, _: torch.exp(x[:, ::2]),
    lambda x, _: torch.exp(x[0, 0]),
    lambda x, y: torch.addcmul(x, x, y),
    lambda x, y: torch.addcmul(x, y, y),
    lambda x, y: torch.addcmul(x, y, x),
    lambda x, y: torch.addcmul(x, y, x[0], value=0.3),
    lambda x, y: x.clone().lerp_(y, 0.3),
    lambda x, y: x.clone().add_(y, alpha=0.3),
    lambda x, y: torch.add(x, y, alpha=-0.0),
    lambda x, y: torch.add(x, y, alpha=0.0),
    lambda x, _: torch.add(x, 1, alpha=0.3),
    lambda x, y: torch.add(x, y[0, 0], alpha=0.3),
    lambda x, _: x / 3,
    lambda x, _: x / 3.5,
    lambda x, _: x.abs() ** 1.7,
    lambda x, y: torch.atan2(x, y.t()),
    lambda x, y: torch.floor_divide(x, y.abs() + 1),
    lambda x, _: functional.gelu(x, approximate="tanh"),
    lambda x, _: functional.gelu(x),
    lambda x, _: torch.softmax(x.repeat(1, 2), -1),
    lambda x, _: torch.log_softmax(x.repeat(1, 2)[None], 2),
    lambda x, _: torch.softmax(x.flatten(), 0),
    lambda x, _: torch.softmax(x.flatten()[1:], 0),
    lambda x, _: torch.softmax(x.t(), 0),
    lambda x, _: functional.hardtanh(x.clone().requires_grad_()).sum(),
)
SUMS: tuple[Call, ...] = (
    lambda x, _: x.sum(),
    lambda x, _: x.sum(0),
    lambda x, _: x.sum([0, 1]),
    lambda x, _: x.sum(1, keepdim=True),
    lambda x, _: x.sum(1, dtype=F32),
    lambda x, _: x[1:].sum(1),
    lambda x, _: x[:, 1:].sum(1),
    lambda x, _: x.t().mean(0),
    lambda x, _: x.cumsum(1),
    lambda x, _: x.amax(1),
    lambda x, _: torch.softmax(x, 0),
    lambda x, _: torch.softmax(x, 1),
    lambda x, _: torch.log_softmax(x, 1),
    lambda x, _: functional.layer_norm(x, [24]),
    lambda x, _: functional.layer_norm(x, [24, 24]),
    lambda x, _: functional.layer_norm(x.flatten()[1:25], [24]),
    lambda x, y: functional.layer_norm(x, [24], y.flatten()[1:25]),
    lambda x, y: functional.layer_norm(x, [24], y[0]),
    lambda x, y: functional.layer_norm(x, [24], y[0], x[1]),
    lambda x, y: functional.layer_norm(x, [24], x[1], y[0]),
    lambda x, y: functional.layer_norm(x, [24], y[0], x[1], 0.5),
    lambda x, y: functional.rms_norm(x, [24], y[0]),
    lambda x, _: functional.rms_norm(x, [24, 24]),
    lambda x, y: functional.rms_norm(x, [24], y[0], 0.5),
    lambda x, y: functional.rms_norm(x, [24], y.flatten()[1:25]),
    lambda x, y: gradients(lambda *given: functional.rms_norm(given[0], [24], given[1]), x, y[0]),
    lambda x, _: x.mean(),
    lambda x, _: x.mean([-1], keepdim=True),
    lambda x, _: x.flatten()[1:].sum(),
    lambda x, _: x.t().sum(0),
    lambda x, y: gradients(lambda *given: functional.layer_norm(given[0], [24], given[1], given[2]), x, y[0], x[1]),
    lambda x, y: gradients(lambda *given: functional.layer_norm(given[0], [24]), x, y[0]),
    lambda x, _: gradients(lambda given: torch.log_softmax(given, 1), x),
    lambda x, _: gradients(lambda given: functional.nll_loss(given, torch.arange(24)), x),
    lambda x, _: gradients(lambda given: functional.embedding(torch.tensor([3, 0, 3, 7]), given), x),
)


def gradients(function: Any, *given: Any) -> Any:
    """The gradients of a sum of what a function returns, side by side; zeros where there is none."""
    leaves = [each.clone().requires_grad_() for each in given]
    found = torch.autograd.grad((function(*leaves) * 3).sum(), leaves, allow_unused=True)
    return torch.cat([torch.zeros(1) if each is None else each.flatten().float() for each in found])


def run(call: Call, x: Any, y: Any, *, first: bool) -> tuple[Any, list[Any]]:
    """The result and the report's lines of a call, of which the first one is known alone or not at all."""
    if first:
        kept_products._kept.cache_clear()
    with ft.emulate("H200", unknown="one") as gpu:
        found = call(x, y)
    return found, gpu.report.lines()


@cases("dtype", [torch.bfloat16, F32])
@cases("call", CALLS + FUNCTIONS + SUMS)
def test_calls_of_a_known_form_are_like_first_ones(dtype: Any, call: Call) -> None:
    if call not in CALLS and libdevice.release() is None:
        pytest.skip("no libdevice whose release is known")
    x, y, other = drawn(3, 24, 24, dtype=dtype).unbind()
    for pair in ((x, y), (y, other), (other, other)):
        found, lines = run(call, *pair, first=True)
        for before in ((x, y), (y, y)):
            run(call, *before, first=True)
            again, its_lines = run(call, *pair, first=False)
            assert torch.equal(again, found)
            assert torch.equal(again.signbit(), found.signbit())
            assert again.stride() == found.stride()
            assert its_lines == lines


def test_calls_are_counted_where_they_are_made() -> None:
    if libdevice.release() is None:
        pytest.skip("no libdevice whose release is known")
    x = torch.ones(8, 8)
    with ft.emulate("H200", unknown="one") as gpu:
        for _ in range(3):
            x @ x
            torch.exp(x)
        before = gpu.report.mark()
        for _ in range(2):
            x @ x
        with belong_to("model.py:7"):
            for _ in range(4):
                x @ x
        within = gpu.report.lines()
        later = gpu.report.between(before, gpu.report.mark())
    assert within == gpu.report.lines()
    assert [number for _, number in within] == [3, 3, 2, 4]
    products = [line for line, _ in within if line.operator == "aten.mm.default"]
    first, second, told = (line.where for line in products)
    assert int(second.rpartition(":")[2]) == int(first.rpartition(":")[2]) + 4
    assert told == "model.py:7"
    assert later == products[1:]


def test_a_report_that_is_cleared_counts_anew() -> None:
    x = torch.ones(8, 8)
    with ft.emulate("H200", unknown="one") as gpu:
        for calls in (3, 2):
            gpu.report.clear()
            for _ in range(calls):
                x @ x
            assert [number for _, number in gpu.report.lines()] == [calls]
