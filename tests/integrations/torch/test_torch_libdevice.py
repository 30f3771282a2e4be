"""Functions need NVIDIA's libdevice: which one is here is named, and without it they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.nn import functional  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma import NotEmulatedError  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402
from fastmma.kernels.functions import bitcode  # noqa: E402

X = torch.linspace(-2, 2, 64).reshape(8, 8)


def stepped() -> None:
    weight = X.clone().requires_grad_()
    weight.grad = X.clone()
    torch.optim.AdamW([weight]).step()


CALLS: dict[str, Callable[[], Any]] = {
    "a function": X.exp,
    "a sum": lambda: X.sum(0),
    "softmax": lambda: functional.softmax(X, -1),
    "a norm": lambda: functional.layer_norm(X, (8,)),
    "a loss": lambda: functional.cross_entropy(X, torch.arange(8)),
    "dropout": lambda: functional.dropout(X, 0.5),
    "attention": lambda: functional.scaled_dot_product_attention(*[X.reshape(1, 1, 8, 8).bfloat16()] * 3),
    "an optimizer": stepped,
}


@pytest.fixture(params=[None, "of another release"])
def other(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """No libdevice, or one of a release that is not known."""
    place = tmp_path / bitcode.FILE if request.param else None
    monkeypatch.setattr(bitcode, "find_bitcode", lambda: place)
    monkeypatch.setattr(bitcode, "file_digest", lambda *_: request.param or "")
    return place


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_are_refused_with_what_to_install(other: Any, call: Callable[[], Any]) -> None:
    what = "not on this machine" if other is None else f"{other} is of a release that is not known"
    with ft.emulate("H100", unknown="one"), pytest.raises(NotEmulatedError, match=r"pip install nvidia-nvvm==13\.0\.\*") as refused:
        call()
    assert what in str(refused.value)
    with ft.emulate("H100", functions="torch", unknown="one") as gpu:
        call()
    assert gpu.report.passed or gpu.report.assumed


@pytest.mark.usefixtures("other")
def test_products_and_neutral_operations_need_none() -> None:
    with ft.emulate("H100") as gpu:
        y = torch.relu(X.bfloat16() @ X.bfloat16()) + 1
    assert y.shape == X.shape
    gpu.report.assert_all_emulated()


@pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
def test_a_report_names_the_release_and_says_what_differs() -> None:
    name, others = libdevice.required_release()
    with ft.emulate("H100") as gpu:
        X.exp()
        X.asinh()
    lines = {line.operator: (line.status, line.how) for line, _ in gpu.report.lines("emulated", "passed")}
    assert lines["aten.exp.default"] == ("emulated", f"PyTorch 2.11 for CUDA 13.0 on an H100 and an H200, libdevice of {name}")
    status, how = lines["aten.asinh.default"]
    assert ("pip install" in how, status) == (("asinhf" in others), "passed" if "asinhf" in others else "emulated")


OLDER = libdevice.RELEASES["5c2fae37c86e68c3"]
OTHERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "gelu": ("erff", lambda: functional.gelu(X)),
    "a power": ("powf", lambda: X.abs() ** 1.7),
    "an arc": ("atanf", X.atan),
    "a norm of order 3": ("", lambda: torch.linalg.vector_norm(X, 3)),
    "powers of a list": ("", lambda: torch._foreach_pow([X.abs()], 1.7)),
}


@pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
def test_what_calls_a_function_of_another_release_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libdevice, "release", lambda: OLDER)
    for name, (function, call) in OTHERS.items():
        with ft.emulate("H100") as gpu:
            call()
        lines = [line for line, _ in gpu.report.lines("passed")]
        assert lines, name
        assert not function or f"{function} of Triton 3.2 to 3.8's libdevice is not that of CUDA 13.0" in lines[-1].how
    weight = torch.nn.Parameter(X.clone())
    weight.grad = X.clone()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ft.emulate("H100") as gpu:
        scaler.scale(torch.ones(()))
        scaler.step(torch.optim.Adam([weight], fused=True))
    assert "aten._fused_adam_.default" in [line.operator for line, _ in gpu.report.lines("passed")]
    assert torch.equal(weight.grad, X / 4)  # once
    with ft.emulate("H100") as gpu:
        functional.layer_norm(functional.softmax(X.exp() ** 2, -1), (8,)).tanh().sum()
    gpu.report.assert_all_emulated()
    with pytest.raises(NotEmulatedError, match="powf of Triton"):
        libdevice.call("powf", [2.0], [3.0])
