"""The products of a model, and the numbers of rows for which they have the same bits."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from reference.cases import cases

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma  # noqa: E402
from fastmma.functions.attention import flash  # noqa: E402
from fastmma.torch import ModelInvariance, compare_models, invariance  # noqa: E402
from fastmma.torch.attention_rows import same_attention  # noqa: E402


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
    stacks = [(names, layer.n, layer.k) for names, layer in found.layers if layer.k == 4096 and layer.n == 3]
    assert stacks == [(("",), 3, 4096)]
    convolved = invariance(torch.nn.Conv1d(4, 4, 3), torch.zeros(1, 4, 8), target="H200", rows=(1, 2))
    assert convolved.others == ("aten.convolution.default",)
    assert convolved.is_invariant is None
    assert "not looked into: aten.convolution.default" in str(convolved)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(fastmma.FastmmaError, match="H1000"):
        invariance(torch.nn.Linear(8, 8), torch.zeros(1, 8), target="H1000")


class Layer(torch.nn.Module):
    """A layer of a small Llama."""

    def __init__(self, dim: int = 512, heads: int = 8, wide: int = 5632) -> None:
        super().__init__()
        self.heads = heads
        for name, outputs, inputs in (("qkv", 3 * dim, dim), ("o_proj", dim, dim), ("up_proj", wide, dim), ("down_proj", dim, wide)):
            setattr(self, name, torch.nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down_proj(self.up_proj(x))


def _of_layer(batch: int = 1, length: int = 16, **options: Any) -> ModelInvariance:
    given = {"target": "H200", "rows": range(1, 65)} | options
    return invariance(Layer(), torch.zeros(batch, length, 512, dtype=torch.bfloat16), **given)


def test_ranks_share_k_of_some_products_and_columns_of_others() -> None:
    alone, ring, tree = _of_layer(), _of_layer(ranks=4), _of_layer(ranks=4, all_reduce="tree")
    shared = {name: found.sharing for names, found in tree.layers for name in names}
    assert {name: each.cut for name, each in shared.items()} == {"qkv": "n", "up_proj": "n", "o_proj": "k", "down_proj": "k"}
    found = compare_models(alone, tree)
    by_name = {name: each.equal for names, each in found.layers for name in names}
    assert (by_name["qkv"], by_name["o_proj"], by_name["down_proj"], found.equal) == (True, False, False, False)
    assert found.layers[0][1].differ
    assert "down_proj" in str(found).splitlines()[0] + str(found).splitlines()[3]
    assert compare_models(tree, _of_layer(ranks=4, all_reduce="tree")).equal is True
    assert compare_models(tree, ring).equal is False
    # where a ring begins depends on the place in the result
    assert compare_models(ring, ring).equal is None
    assert ring.same(8, 64) is not True
    of_h100 = compare_models(alone, _of_layer(target="H100", least_rate=0.9999))
    assert (of_h100.equal, of_h100.layers[0][0], of_h100.attention) == (False, ("down_proj",), ((("",), True),))
    with pytest.raises(fastmma.OperandTypeError, match="first and second must be"):
        compare_models(alone, Layer())


def test_products_that_ranks_cannot_share_are_named() -> None:
    found = _of_layer(ranks=3)
    assert found.is_invariant is not True
    assert any("512 cannot be cut into equal parts for 3 ranks" in each for each in found.others)


@cases(
    "kernel, batch, length, groups, decode",
    [
        ("FLASH_ATTENTION", 1, 16, 1, True),
        ("FLASH_ATTENTION", 1, 512, 2, True),
        ("FLASH_ATTENTION", 1, 2048, 1, False),
        ("", 2, 256, 1, False),
        ("", 8, 1, 1, None),
    ],
)
def test_attention_is_grouped_by_the_kernel_and_its_parts(kernel: str, batch: int, length: int, groups: int, decode: bool | None) -> None:
    chosen = torch.nn.attention.sdpa_kernel([getattr(torch.nn.attention.SDPBackend, kernel)]) if kernel else nullcontext()
    with chosen:
        found = _of_layer(batch, length, rows=[length, 8 * length, 64 * length])
    ((names, attention),) = found.attention
    assert names == ("",)
    assert (len(attention.groups), attention.decode) == (groups, decode), str(attention)
    assert attention.same(length, 64 * length) is (groups == 1)
    assert ("cudnn" if length == 256 else "flash") in str(found)
    assert same_attention(attention, attention) is True


def test_sequences_of_a_group_have_the_bits_of_a_call_of_so_many() -> None:
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.FLASH_ATTENTION]):
        ((_, found),) = _of_layer(1, 640, rows=[640, 2 * 640, 3 * 640, 640 * 16]).attention
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal((1, 8, 640, 64)).astype(np.float16) for _ in range(3)]
    results = {count: flash(*(np.repeat(each, count, 0) for each in operands), causal=True)[0][0, 0] for count in (1, 2, 3, 16)}
    for count, result in results.items():
        assert (result.tobytes() == results[1].tobytes()) is (found.group_of(count) == found.group_of(1)), count
    assert len(found.groups) > 1
    for length in (512, 2048):
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.FLASH_ATTENTION]):
            ((_, found),) = _of_layer(1, length, rows=[length]).attention
        q, k, v = (rng.standard_normal((1, 8, length, 64)).astype(np.float16) for _ in range(3))
        among, alone = (flash(q[:, :, -count:], k, v, causal=True)[0][:, :, -1] for count in (length, 1))
        assert (among.tobytes() == alone.tobytes()) is found.decode, length
