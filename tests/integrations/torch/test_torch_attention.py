"""Attention inside `emulate` against an H200: the kernel that torch takes, its results, gradients, strides and random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from reference import torch_attention  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402
from fastmma.kernels.functions.bitcode import find_bitcode  # noqa: E402
from fastmma.torch import generators  # noqa: E402

pytestmark = pytest.mark.skipif(find_bitcode() is None, reason="libdevice is not on this machine")
RECORDED = torch_attention.recorded()
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "flashdet": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
PRECISE = 2.0**-20  # as far as a number drawn from 32 bits is known from a float32


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def attended(call: torch_attention.Call, leaves: list[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
    options = {"dropout_p": call["dropout"], "scale": call["scale"], "enable_gqa": call["heads"] != call["key_heads"]}
    return functional.scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=call["causal"] and mask is None, **options)


@pytest.mark.parametrize("seed", sorted(RECORDED["choices"]))
def test_torch_takes_the_kernel_that_it_takes_on_an_h200(seed: str) -> None:
    found = []
    for index in range(len(RECORDED["choices"][seed])):
        call = torch_attention.draw_call(int(seed), index)
        (q, k, v), mask, _ = torch_attention.operands(int(seed), index, call, values=False)
        options = {"is_causal": call["causal"] and mask is None, "enable_gqa": call["heads"] != call["key_heads"]}
        with ft.emulate("H200"):
            found.append(torch._fused_sdp_choice(q, k, v, mask, call["dropout"], **options))
    assert found == RECORDED["choices"][seed]


def name_of(run: dict[str, Any]) -> str:
    return f"{run['kernel']}-{run['seed']}-{run['index']}"


@pytest.mark.parametrize("run", RECORDED["runs"], ids=name_of)
def test_results_are_those_of_an_h200(run: dict[str, Any]) -> None:
    call = torch_attention.draw_call(run["seed"], run["index"])
    leaves, mask, gradient = torch_attention.operands(run["seed"], run["index"], call)
    torch.use_deterministic_algorithms(run["kernel"] == "flashdet")
    with ft.emulate("H200") as gpu, sdpa_kernel(KERNELS[run["kernel"]]):
        torch.manual_seed(1000 + run["index"])
        if call["dropout"]:
            generators.take(4)
        out = attended(call, leaves, mask)
        results = {"y": out.detach()}
        forward = gpu.report.assumed
        if call["grad"]:
            wanted = {**dict(zip(("dq", "dk", "dv"), leaves, strict=True)), "dm": mask}
            wanted = {name: wanted[name] for name in run["digests"] if name != "y"}
            results |= dict(zip(wanted, torch.autograd.grad(out, list(wanted.values()), gradient), strict=True))
    assert forward == gpu.report.passed == gpu.report.unseen == 0
    assert {name: list(each.stride()) for name, each in results.items()} == run["strides"]
    claimed = gpu.report.assumed == 0
    assert all(run["repeats"].values()) or not claimed
    for name, each in results.items():
        assert torch_attention.digest(each) == run["digests"][name] or (name == "dq" and not claimed), name
    if call["dropout"]:
        assert generators.default().offset == 4 + drawn_by(run["kernel"], call)


def drawn_by(kernel: str, call: torch_attention.Call) -> int:
    """How many numbers a kernel draws; each call of a generator takes a multiple of four."""
    heads = call["batch"] * call["heads"]
    return 32 * heads if kernel.startswith("flash") else -(-heads * call["queries"] * call["keys"] // 4) * 4


def halves(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def told(report: ft.Report, status: str) -> set[str]:
    return {line.operator.removeprefix("aten.").removesuffix(".default") for line, _ in report.lines(status)}


def test_what_is_not_known_is_assumed() -> None:
    one, many = halves(1, 2, 1, 32), halves(1, 2, 300, 32)
    with ft.emulate("H200") as gpu:
        assert functional.scaled_dot_product_attention(one, many, many).shape == one.shape
    assert not told(gpu.report, "emulated")
    assert gpu.report.assumed
    with ft.emulate("H200", attention="error"), pytest.raises(fastmma.NotEmulatedError):
        functional.scaled_dot_product_attention(one, many, many)
    with ft.emulate("H200"), sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        attend(many.float())


def test_cudnns_reads_of_other_addresses_and_queries_without_keys_are_assumed() -> None:
    whole = halves(1, 2, 64, 69)
    hidden = torch.ones(64, 64, dtype=torch.bool).index_fill(0, torch.tensor([5]), False)
    for x, mask in ((whole[..., 3:-2], None), (whole[..., :64].contiguous(), hidden)):
        with ft.emulate("H200") as gpu, sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            functional.scaled_dot_product_attention(x, x, x, mask)
        assert gpu.report.assumed
    with ft.emulate("H200") as gpu, sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        attend(whole[..., :64].contiguous())
    gpu.report.assert_all_emulated()


def test_queries_that_see_no_key_have_no_gradients() -> None:
    x = halves(1, 2, 8, 32).float().requires_grad_()
    mask = torch.ones(8, 8, dtype=torch.bool).index_fill(0, torch.tensor([5]), False)
    with ft.emulate("H200") as gpu, sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        (found,) = torch.autograd.grad(functional.scaled_dot_product_attention(x, x.detach(), x.detach(), mask).sum(), x)
    gpu.report.assert_all_emulated()
    assert found[:, :, 5].eq(0).all()
    assert found[:, :, :5].isfinite().all()


def attend(q: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, q, q)


def test_gradients_are_the_same_outside_in_checkpoints_and_in_inference() -> None:
    q, k, v = (halves(2, 3, 40, 64, seed=seed).requires_grad_() for seed in range(3))
    with ft.emulate("H200"):
        out = functional.scaled_dot_product_attention(q, k, v)
        wanted = torch.autograd.grad(out, (q, k, v), out.detach(), retain_graph=True)
        again = torch.utils.checkpoint.checkpoint(functional.scaled_dot_product_attention, q, k, v, use_reentrant=False)
        inside = torch.autograd.grad(again, (q, k, v), out.detach())
        with torch.inference_mode():
            assert torch.equal(functional.scaled_dot_product_attention(q, k, v), out)
    outside = torch.autograd.grad(out, (q, k, v), out.detach())
    for found in (inside, outside):
        assert all(map(torch.equal, found, wanted))


def test_kernels_that_operators_call_are_computed_too() -> None:
    aten = torch.ops.aten
    q, k, v, grad = (halves(2, 3, 40, 64, seed=seed) for seed in range(4))
    rows = [each.transpose(1, 2) for each in (grad, q, k, v)]
    bias = halves(2, 3, 40, 40)
    whole = 0.0, True
    with ft.emulate("H200") as gpu:
        out, logs, *_ = flash = aten._scaled_dot_product_flash_attention(q, k, v, *whole)
        one, one_logs, *drawn = aten._flash_attention_forward(*rows[1:], None, None, 40, 40, *whole, False)
        wanted = aten._scaled_dot_product_flash_attention_backward(grad, q, k, v, out, logs, None, None, 40, 40, *whole, *flash[6:8])
        found = aten._flash_attention_backward(*rows, one, one_logs, None, None, 40, 40, *whole, *drawn[:2])
        assert torch.equal(out, one.transpose(1, 2))
        assert all(torch.equal(each, other.transpose(1, 2)) for each, other in zip(wanted, found, strict=True))
        out, logs, *drawn = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)
        one, one_logs, *_ = aten._efficient_attention_forward(*rows[1:], bias, None, None, 40, 40, 0.0, 0, True)
        wanted = aten._scaled_dot_product_efficient_attention_backward(grad, q, k, v, bias, out, logs, *drawn, 0.0, [True] * 4)
        found = aten._efficient_attention_backward(*rows, bias, one, None, None, 40, 40, one_logs, 0.0, *drawn, 0, True)
        assert all(torch.equal(each, other.transpose(1, 2)) for each, other in zip(wanted[:3], found[:3], strict=True))
        assert torch.equal(wanted[3], found[3])
        gpu.report.assert_all_emulated()
        laid = [each.flatten(0, 1) for each in rows]
        starts = torch.tensor([0, 40, 80], dtype=torch.int32)
        few, few_logs, *drawn = aten._flash_attention_forward(*laid[1:], starts, starts, 40, 40, *whole, False)
        assert torch.equal(few, flash[0].transpose(1, 2).flatten(0, 1))
        wanted = aten._scaled_dot_product_flash_attention_backward(grad, q, k, v, *flash[:2], None, None, 40, 40, *whole, *flash[6:8])
        found = aten._flash_attention_backward(*laid, few, few_logs, starts, starts, 40, 40, *whole, *drawn[:2])
        assert all(torch.equal(each.transpose(1, 2).flatten(0, 1), other) for each, other in zip(wanted, found, strict=True))
        gpu.report.assert_all_emulated()
        with pytest.raises(fastmma.NotEmulatedError, match="not known"):
            aten._flash_attention_forward(*laid[1:], starts.long(), starts, 40, 40, *whole, False)


def test_sequences_of_several_lengths() -> None:
    """By torch's function of it, with gradients."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    q, k, v = (halves(90, 4, 64, seed=seed).requires_grad_() for seed in range(3))
    starts = torch.tensor([0, 30, 31, 90], dtype=torch.int32)
    with ft.emulate("H200") as gpu:
        out = varlen.varlen_attn(q, k, v, starts, starts, 59, 59, window_size=(20, 0))
        found = torch.autograd.grad(out, (q, k, v), out.detach())
    gpu.report.assert_all_emulated()
    assert all(each.isfinite().all() for each in found)


def test_layers_of_torch_take_it() -> None:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, dtype=torch.bfloat16)
    x = halves(2, 33, 64).requires_grad_()
    with ft.emulate("H200") as gpu:
        layer(x).sum().backward()
    gpu.report.assert_all_emulated()
    assert {"_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"} <= told(gpu.report, "emulated")
