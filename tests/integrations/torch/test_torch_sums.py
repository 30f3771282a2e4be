"""Sums, softmax, norms and losses under `emulate`: what torch asks for reaches the functions, and the report says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from reference.cases import cases  # noqa: E402
from torch.nn import functional  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice, losses, norms, reduce, softmax  # noqa: E402

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
DTYPES = {torch.float32: np.float32, torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16}
ONE, TWO = [257], [3, 1500]


def drawn(shape: list[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).to(dtype)


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().numpy().astype(DTYPES[tensor.dtype])


CALLS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "sum": (lambda x: x.sum(1), lambda x: reduce.reduce_sum(x, 1)),
    "sum of all": (torch.sum, reduce.reduce_sum),
    "sum in float32": (lambda x: x.sum(0, dtype=torch.float32), lambda x: reduce.reduce_sum(x, 0, dtype=np.float32)),
    "mean": (lambda x: x.mean((0, 1), keepdim=True), lambda x: reduce.reduce_mean(x, (0, 1), keepdims=True)),
    "amax": (lambda x: x.amax(1), lambda x: reduce.reduce_max(x, 1)),
    "var": (lambda x: x.var(1), lambda x: reduce.reduce_variance(x, 1)),
    "std": (lambda x: x.std(0, correction=0), lambda x: reduce.reduce_variance(x, 0, correction=0, root=True)),
    "norm": (lambda x: torch.linalg.vector_norm(x, 2, 1), lambda x: reduce.reduce_norm(x, 2, 1)),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: reduce.reduce_logsumexp(x, 1)),
    "softmax": (lambda x: x.softmax(1), lambda x: softmax.softmax(x, 1)),
    "log_softmax": (lambda x: x.log_softmax(0), lambda x: softmax.softmax(x, 0, log=True)),
    "layer_norm": (lambda x: functional.layer_norm(x, [1500]), lambda x: norms.layer_norm(x, [1500], None, None, 1e-5)[0]),
    "rms_norm": (lambda x: functional.rms_norm(x, [1500], None, 1e-6), lambda x: norms.rms_norm(x, [1500], None, 1e-6)[0]),
}


@cases("dtype", [torch.float32, torch.float16, torch.bfloat16])
@cases("name", list(CALLS))
def test_calls_reach_the_functions(name: str, dtype: torch.dtype) -> None:
    of_torch, of_arrays = CALLS[name]
    x = drawn(TWO, dtype)
    with ft.emulate("H200") as gpu:
        found = of_torch(x)
    assert not gpu.report.lines("passed", "assumed", "unseen")
    wanted = of_arrays(array(x))
    assert found.dtype in DTYPES
    assert DTYPES[found.dtype] == wanted.dtype
    assert array(found).tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_rms_norm_is_one_kernel_forward_and_backward() -> None:
    x, w = drawn(TWO, torch.bfloat16).requires_grad_(), drawn([1500], torch.bfloat16, 1).requires_grad_()
    g = drawn(TWO, torch.bfloat16, 2)
    with ft.emulate("H200") as gpu:
        found = functional.rms_norm(x, [1500], w, 1e-6)
        found.backward(g)
    gpu.report.assert_all_emulated()
    result, rstd = norms.rms_norm(array(x), [1500], array(w), 1e-6)
    dx, dw = norms.rms_norm_backward(array(g), array(x), [1500], rstd, array(w))
    assert x.grad is not None
    assert w.grad is not None
    for tensor, wanted in ((found, result), (x.grad, dx), (w.grad, dw)):
        assert array(tensor).tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_float16_becomes_float32_within_the_softmax() -> None:
    x = drawn([2, 5000], torch.float16).requires_grad_()
    with ft.emulate("H200") as gpu:
        found = torch.softmax(x, -1, dtype=torch.float32)
        found.backward(drawn([2, 5000], torch.float32, 3))
    gpu.report.assert_all_emulated()
    assert array(found).tobytes() == softmax.softmax(array(x), 1, dtype=np.float32).tobytes()
    assert x.grad is not None
    assert x.grad.dtype is torch.float16


def test_function_transforms_take_rms_norm_apart_and_it_is_assumed() -> None:
    def total(t: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(t, [8]).sum()

    x = drawn([2, 8], torch.float32)
    with ft.emulate("H200") as gpu:
        slope = torch.func.grad(total)(x)
    assert slope.shape == x.shape
    assert gpu.report.lines("assumed")


def test_glu_of_an_odd_size_is_torchs_error() -> None:
    with ft.emulate("H200"), pytest.raises(RuntimeError, match="must be even"):
        functional.glu(torch.ones(5))


def test_losses_reach_leaves() -> None:
    x, y = drawn([64, 100], torch.float32).requires_grad_(), torch.arange(64) % 100
    with ft.emulate("H200") as gpu:
        loss = functional.cross_entropy(x, y)
        loss.backward()
    gpu.report.assert_all_emulated()
    logarithms = softmax.softmax(array(x), 1, log=True)
    assert array(loss).tobytes() == losses.nll_loss(logarithms, y.numpy(), "mean")[0].tobytes()
    assert x.grad is not None


@cases("what", ["float64", "H100 PCIe", "A100", "left to torch"])
def test_what_is_not_known_is_passed(what: str) -> None:
    x = drawn([40, 300], torch.float32)
    x = x.double() if what == "float64" else x
    options = {"functions": "torch"} if what == "left to torch" else {}
    with ft.emulate(what if what in ("H100 PCIe", "A100") else "H200", **options) as gpu:
        found = x.sum(-1)
    assert torch.equal(found, x.sum(-1))
    assert [line.operator for line, _ in gpu.report.lines("passed")] == ["aten.sum.dim_IntList"]


def test_whole_numbers_stay_neutral() -> None:
    with ft.emulate("H200") as gpu:
        torch.arange(10).sum()
    assert not gpu.report.lines("emulated", "passed")
