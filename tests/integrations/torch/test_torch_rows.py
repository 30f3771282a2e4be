"""The products of a model, and the numbers of rows for which they have the same bits."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma  # noqa: E402
from fastmma.torch import invariance  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4096, 14336, bias=False, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(14336, 4096, bias=False, dtype=torch.bfloat16)
        self.out = torch.nn.Linear(4096, 4096, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, *, attend: bool = False) -> torch.Tensor:
        y = self.out(self.down(self.up(x)))
        return y @ y.transpose(-1, -2) if attend else y


def test_products_of_a_model_are_found_and_compared() -> None:
    found = invariance(Block(), torch.zeros(2, 3, 4096, dtype=torch.bfloat16), target="H200", rows=range(1, 129))
    assert [names for names, _ in found.layers] == [("down",), ("out",), ("up",)]
    for (_, layer), (n, k, bias) in zip(found.layers, [(4096, 14336, False), (4096, 4096, True), (14336, 4096, False)], strict=True):
        assert layer == fastmma.invariance(n, k, dtype="bf16", target="H200", rows=range(1, 129), bias=bias)
    assert found.is_invariant is False
    assert str(found).startswith("down\n  bf16 on H200, N = 4096, K = 14336: 128 numbers of rows, 3 groups")


def test_what_is_not_looked_into_is_named() -> None:
    model = Block()
    found = invariance(model, {"x": torch.zeros(1, 3, 4096, dtype=torch.bfloat16), "attend": True}, target="H200", rows=(1, 2))
    assert found.others == ("aten.bmm.default",)
    assert found.is_invariant is None
    assert "not looked into: aten.bmm.default" in str(found)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(fastmma.FastmmaError, match="H1000"):
        invariance(torch.nn.Linear(8, 8), torch.zeros(1, 8), target="H1000")
