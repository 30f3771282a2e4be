"""CUDA's autocast for tensors on the CPU, and calls of an H200 within it and around it."""

from __future__ import annotations

import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import torch_autocast  # noqa: E402
from torch.nn import functional  # noqa: E402

import fastmma.torch  # noqa: E402
from fastmma.functions import autocast, libdevice  # noqa: E402

needs_libdevice = pytest.mark.skipif(libdevice.release() is None, reason="no release of libdevice that is known")


LARGE = ("div_floor", "remainder")  # whose quotients of float16 tensors, where they are large, had another result in another call


@needs_libdevice
@pytest.mark.parametrize("kind", sorted(torch_autocast.KINDS))
def test_calls_have_an_h200s_bits(kind: str) -> None:
    known = libdevice.release()
    assert known is not None
    # of another release than the recorded one
    others = {each.removesuffix("f") for each in known[1]}
    calls = [call for call in torch_autocast.recorded() if call.kind == kind and call.given.get("name") not in others]
    assert len(calls) > 30
    for call in calls:
        with warnings.catch_warnings(), fastmma.torch.emulate("H200", fp32="ieee") as gpu:
            warnings.simplefilter("ignore")
            found = [torch_autocast.describe(each) for each in torch_autocast.run(call)]
        if gpu.report.passed and call.given["name"] in LARGE and (call.given["fmt"], call.given["table"]) == ("f16", "bi"):
            continue
        assert gpu.report.passed + gpu.report.assumed + gpu.report.unseen == 0, call
        assert found == call.results, call


def _weights() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(size, generator=generator) for size in ((4, 8), (8, 8)))
    return x, w.requires_grad_()


def test_a_weight_is_cast_once_in_a_region() -> None:
    x, w = _weights()
    with fastmma.torch.emulate("H100", as_cuda=True, unknown="one"), torch.autocast("cuda", torch.bfloat16):
        y = functional.linear(functional.linear(x, w), w)
        assert len({id(cast) for _, cast in autocast._local.casts.values()}) == 1
        with torch.no_grad():
            assert not functional.linear(x, w).requires_grad
        y.sum().backward()
    assert y.dtype is torch.bfloat16
    assert w.grad is not None
    assert w.grad.dtype is torch.float32
    assert not autocast._local.casts


def test_other_threads_and_cpus_regions_are_torchs() -> None:
    x, w = _weights()
    seen: list[torch.dtype] = []

    def elsewhere() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autocast("cuda", torch.bfloat16):
                seen.append(functional.linear(x, w).dtype)

    with fastmma.torch.emulate("H100", unknown="one"):
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        with torch.autocast("cpu", torch.bfloat16):
            seen.append(functional.linear(x, w).dtype)
        with torch.autocast("cuda", torch.float16), torch.autocast("cuda", enabled=False):
            seen.append(functional.linear(x, w).dtype)
    assert seen == [torch.float32, torch.bfloat16, torch.float32]
    kernel = torch._C._dispatch_dump("aten::linear")
    assert "AutocastCUDA: registered at /" in kernel
    assert "functions/autocast.py" not in kernel


def test_what_torch_refuses_on_a_gpu_is_refused() -> None:
    x = torch.rand(4)
    with fastmma.torch.emulate("H100"), torch.autocast("cuda", torch.bfloat16):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            functional.binary_cross_entropy(x, x)
        with pytest.raises(RuntimeError, match="prioritize"):
            torch.dot(x.half(), x)
