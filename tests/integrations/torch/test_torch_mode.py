"""The mode: what it sees, what it passes on, and that it leaves no trace."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.nn import functional  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402

BF16 = torch.bfloat16


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to(dtype)


WIDE = np.exp2(np.random.default_rng(1).integers(-14, 1, (64, 2048))).astype(np.float32)
A = (drawn(64, 2048, dtype=torch.float32) * torch.from_numpy(WIDE)).to(BF16)
GPU = ft.mm(A, A.t(), target="H100")


def is_emulated() -> bool:
    return torch.equal(A @ A.t(), GPU)


def test_an_exception_inside_restores_the_state() -> None:
    gpu = ft.emulate("H100")
    assert not is_emulated()
    with pytest.raises(ZeroDivisionError), gpu:
        raise ZeroDivisionError
    assert not is_emulated()
    with gpu, gpu:
        assert is_emulated()
    assert not is_emulated()


def test_the_innermost_wins() -> None:
    with ft.emulate("A100", unknown="one") as outer, ft.emulate("H100") as inner:
        assert is_emulated()
    assert (outer.report.emulated + outer.report.assumed, inner.report.emulated + inner.report.assumed) == (0, 1)


def test_it_decorates() -> None:
    @ft.emulate("H100")
    def product(x: torch.Tensor) -> torch.Tensor:
        """Its own words."""
        return x @ x.t()

    assert torch.equal(product(A), GPU)
    assert product.__doc__ == "Its own words."


def test_threads_are_apart() -> None:
    found: dict[str, bool] = {}

    def other() -> None:
        found["without"] = is_emulated()
        with gpu:
            found["with"] = is_emulated()
        found["after"] = is_emulated()

    with ft.emulate("H100") as gpu:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert is_emulated()
    assert found == {"without": False, "with": True, "after": False}


def test_inference_mode_hides_nothing() -> None:
    with ft.emulate("H100", unknown="one") as gpu, torch.inference_mode():
        assert torch.equal(A @ A.t(), GPU)
        assert torch.equal(functional.linear(A, A), GPU)
        assert torch.equal(torch.matmul(A, A.t()), GPU)
        assert torch.equal(torch.einsum("ik,jk->ij", A, A), GPU)
        assert torch.equal(torch.tensordot(A, A, dims=([1], [1])), GPU)
        assert torch.equal(torch.inner(A, A), GPU)
    gpu.report.assert_all_emulated(assumed=True)
    assert gpu.report.emulated + gpu.report.assumed == 6


def attended(**options: Any) -> list[torch.Tensor]:
    heads = (4, 2, 2) if options.get("enable_gqa") else (2, 2, 2)
    leaves = [drawn(1, heads[seed], 16, 8, seed=seed).requires_grad_() for seed in range(3)]
    out = functional.scaled_dot_product_attention(*leaves, **options)
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), leaves)]


MASK = torch.ones(16, 16).tril().bool()
ONE_PART = {(16, 16, 8): 1, (16, 8, 16): 1, (8, 16, 16): 1}


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": MASK}, {"enable_gqa": True}],
    ids=["plain", "causal", "scaled", "masked", "shared"],
)
def test_attention_is_taken_apart_forward_and_backward(options: dict[str, Any]) -> None:
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with ft.emulate("H100", plans=ONE_PART, functions="torch") as gpu:
            found = attended(**options)
        with (
            ft.emulate("H100", plans=ONE_PART, functions="torch") as math,
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        ):
            wanted = attended(**options)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)
    assert [torch.equal(each, other) for each, other in zip(found, wanted, strict=True)] == [True] * 4
    # a GPU computes the one by a fused kernel, whose products nobody knows, and the other as it is written
    assert (gpu.report.emulated, gpu.report.assumed) == (0, 9)
    assert (math.report.emulated, math.report.assumed) == (6, 0)
    assert {line.operator for line, _ in gpu.report.lines("passed")} >= {"aten._softmax.default", "aten.sum.default"}


@pytest.mark.parametrize("inference", [False, True])
def test_attention_may_be_passed_or_refused(inference: bool) -> None:
    q = drawn(1, 2, 16, 8)
    plain = functional.scaled_dot_product_attention(q, q, q)
    with torch.inference_mode(inference), ft.emulate("H100", attention="pass") as gpu:
        assert torch.equal(functional.scaled_dot_product_attention(q, q, q), plain)
    if not inference:
        assert [line.operator for line, _ in gpu.report.lines("passed")] == ["aten._scaled_dot_product_flash_attention_for_cpu.default"]
    with ft.emulate("H100", attention="error", other="pass", functions="torch"), pytest.raises(fastmma.NotEmulatedError, match="attention"):
        functional.scaled_dot_product_attention(q, q, q)
    with torch.inference_mode(inference), ft.emulate("H100", attention="math") as gpu:
        functional.scaled_dot_product_attention(q, q, q)
    # math attention of 16-bit tensors multiplies in float32, unless torch's settings say otherwise
    assert [line for line, _ in gpu.report.lines("passed") if "bmm" in line.operator]


def test_what_is_assumed_is_warned_of_once_and_reported() -> None:
    a, b = drawn(6, 2999), drawn(2999, 5)
    with ft.emulate("H100") as gpu, pytest.warns(ft.AssumedWarning, match="not known to have the library's bits"):
        a @ b
    assert gpu.report.assumed == 1
    with warnings.catch_warnings(), gpu:
        warnings.simplefilter("error")
        a @ b
    gpu.report.assert_all_emulated(assumed=True)
    with pytest.raises(AssertionError, match=r"test_torch_mode\.py:\d+"):
        gpu.report.assert_all_emulated()
    with ft.emulate("H100", unknown="error"), pytest.raises(fastmma.TargetError, match="is predicted to add as"):
        a @ b
    with ft.emulate("H100", plans={(6, 5, 2999): 3}) as told:
        found = a @ b
    assert told.report.emulated == 1
    wanted = fastmma.gemm(ft.to_numpy(a), ft.to_numpy(b), preset="cublas", split_k=3, out_dtype="bf16")
    assert ft.to_numpy(found).tobytes() == wanted.tobytes()


def test_it_goes_with_checkpoint_autocast_and_function_transforms() -> None:
    w = drawn(16, 32, dtype=torch.float32).requires_grad_()
    x = drawn(8, 32, dtype=torch.float32)
    with ft.emulate("H100", unknown="one", functions="torch") as gpu, torch.autocast("cpu", dtype=BF16):
        y = torch.utils.checkpoint.checkpoint(lambda t: functional.linear(t, w), x, use_reentrant=False)
        y.backward(torch.ones_like(y))
        mapped = torch.vmap(lambda row: (row[None].to(BF16) @ w.detach().to(BF16).t())[0])(x)
        slope = torch.func.grad(lambda t: (t.to(BF16) @ w.detach().to(BF16).t()).float().sum())(x)
    assert [line.operator for line, _ in gpu.report.lines("passed", "unseen")] == ["aten.sum.default"]
    assert gpu.report.emulated + gpu.report.assumed == 5
    assert torch.equal(y.detach(), ft.linear(x.to(BF16), w.detach().to(BF16)))
    assert torch.equal(mapped, y.detach())
    assert slope.shape == x.shape


def test_wrong_options_are_errors() -> None:
    wrong: list[dict[str, Any]] = [{"other": "skip"}, {"unknown": "two"}, {"fp32": "bf16"}, {"libary": "cublas"}, {"threads": 0}]
    plans: list[Any] = [[(8, 8, 8)], {(8, 8): 2}, {(8, 8, 8.0): 2}, {(8, 8, 8): 0}, {(8, 8, 8): True}, {(8, 8, 8): "split"}]
    for options in wrong + [{"plans": each} for each in plans]:
        with pytest.raises(fastmma.OperandError):
            ft.emulate("H100", **options)
    with pytest.raises(fastmma.TargetError):
        ft.emulate("H1000")


def test_only_what_is_reported_is_refused_in_strict_mode() -> None:
    a = drawn(16, 32, dtype=torch.float16)
    assert ft.mm(a, a.t(), target="H100", strict=True).dtype is torch.float16
    with pytest.raises(fastmma.TargetError, match="reported"):
        ft.mm(a, a.t(), target="sm_87", strict=True)


def test_the_report_prints_and_counts() -> None:
    with ft.emulate("H100") as gpu:
        for _ in range(3):
            A @ A.t()
    said = gpu.report.to_dict()
    assert (said["target"], said["emulated"], said["calls"][0]["count"]) == ("sm_90a", 3, 3)
    assert "aten.mm.default" in str(gpu.report)
    gpu.report.clear()
    assert gpu.report.lines() == []
