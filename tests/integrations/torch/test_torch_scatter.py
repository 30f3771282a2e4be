"""What meets at a place: neutral where the order of additions cannot matter; and calls of single elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

ZEROS, ONES, X = torch.zeros(5), torch.ones(5), torch.linspace(-1, 2, 3)


def _told(call: Callable[[], object]) -> list[str]:
    with ft.emulate("H200") as gpu:
        call()
    return [line.operator for line, _ in gpu.report.lines("passed", "unseen", "assumed")]


@pytest.mark.parametrize(
    ("into", "places", "is_told"), [(ONES, [4, 0, 2], False), (ZEROS, [1, 1, 0], False), (ONES, [1, 1, 0], True), (ZEROS, [1, 1, 1], True)]
)
def test_additions_whose_order_matters_are_told(into: torch.Tensor, places: list[int], is_told: bool) -> None:
    index = torch.tensor(places)
    for call in (
        lambda: into.scatter_add(0, index, X),
        lambda: into.put(index, X, accumulate=True),
        lambda: into.expand(2, 5).contiguous().T.contiguous().scatter_add(0, index[:, None].expand(3, 2), X[:, None].expand(3, 2)),
    ):
        assert bool(_told(call)) == is_told


@pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
def test_gradients_of_gathered_logits_are_emulated() -> None:
    logits = torch.linspace(-2, 2, 28).reshape(4, 7).requires_grad_()
    index = torch.tensor([[1], [0], [6], [3]])
    assert not _told(lambda: torch.log_softmax(logits, -1).gather(1, index).sum().backward())
    assert _told(lambda: logits.gather(1, torch.zeros(4, 3, dtype=torch.int64)).sum().backward()) == ["aten.scatter_add.default"]


@pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
def test_calls_of_single_elements_and_of_none() -> None:
    x, halves = torch.tensor([[3.1034889], [-19.737383]]), torch.linspace(-1, 3, 900).bfloat16()
    with ft.emulate("H200") as gpu:
        assert torch.equal(torch.linalg.vector_norm(x, 3, 1), x.abs()[:, 0])  # powers would give another last bit
        assert torch.logsumexp(torch.tensor(0.5), 0) == 0.5
        assert torch.trace(torch.diag(X)) == X.sum()
        assert torch.zeros(0, 3).sum(0).tolist() == [0, 0, 0]
        assert torch.equal(halves.cumsum(0, dtype=torch.float32), halves.float().cumsum(0))
    assert not gpu.report.lines("passed", "unseen", "assumed")
    with ft.emulate("H200") as gpu:
        mean, rstd = (torch.zeros(2, 1, dtype=torch.bfloat16) for _ in range(2))
        torch.ops.aten.native_layer_norm_backward(x, x, [1], mean.float(), rstd.float(), None, None, [True, False, False])
        with pytest.raises(RuntimeError):
            torch.ops.aten.native_layer_norm_backward(x, x, [1], mean, rstd, None, None, [True, False, False])
