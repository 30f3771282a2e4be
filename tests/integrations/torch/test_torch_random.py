"""Random numbers, lists of tensors and optimizers, as an H200 computed them (`reference.torch_random`, `reference.torch_lists`)."""

from __future__ import annotations

import zlib

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import torch_lists, torch_random  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402
from fastmma.torch import generators  # noqa: E402

CALLS, CLAIMED = 371, 97  # of 371 and 97

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="the extra 'functions' is not installed")


def test_random_numbers_and_offsets_are_the_gpus() -> None:
    equal = 0
    for case in torch_random.recorded():
        with ft.emulate("H200", as_cuda=True) as gpu:
            for (found, offsets), (wanted, at) in zip(torch_random.run(case), case["results"], strict=True):
                assert [torch_random.checksum(each, case["of"]) for each in found] == wanted, case
                assert offsets == at, case
                equal += 1
        assert not gpu.report.lines("passed", "unseen") or any(row[3] == "f64" for row in case["calls"]), (case, gpu.report)
    assert equal == CALLS


def test_lists_and_optimizers_are_the_gpus() -> None:
    claimed = 0
    for case in torch_lists.recorded():
        with ft.emulate("H200", as_cuda=True) as gpu:
            found = torch_lists.run(case)
        if not gpu.report.lines("passed", "unseen", "assumed"):
            sums = [torch_random.checksum(each, case["of"], torch_lists.WHOLE, torch_lists.SAMPLES) for each in found]
            assert sums == case["results"], case
            claimed += 1
    assert claimed == CLAIMED


def drawn(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return functional.dropout(torch.ones(1000), 0.5)


def test_a_seed_begins_the_gpus_sequence_before_and_within() -> None:
    torch.manual_seed(5)
    with ft.emulate("H200") as gpu:
        first = functional.dropout(torch.ones(1000), 0.5)
        second = functional.dropout(torch.ones(1000), 0.5)
        assert torch.equal(drawn(5), first)
        assert not torch.equal(first, second)
        assert generators.take(1) == (5, 4)
        cpu = torch.Generator().manual_seed(5)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(3), torch.rand(3, generator=cpu))  # new tensors are the CPU's
        assert generators.take(1) == (5, 0)
    assert gpu.report.emulated == 3
    with ft.emulate("H200", functions="torch") as plain:
        assert not torch.equal(drawn(5), first)
    assert plain.report.passed


def test_checkpoints_draw_again_what_was_drawn() -> None:
    x = torch.linspace(-1, 1, 512)

    def gradient(way: str) -> torch.Tensor:
        torch.manual_seed(3)
        leaf = x.clone().requires_grad_()
        body = lambda y: functional.dropout(y * y, 0.5)  # noqa: E731
        out = body(leaf) if way == "plain" else checkpoint(body, leaf, use_reentrant=way == "reentrant")
        torch.rand(4)
        (functional.dropout(out, 0.5)).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    with ft.emulate("H200"):
        plain = gradient("plain")
        assert all(torch.equal(gradient(way), plain) for way in ("reentrant", "not reentrant"))


def test_a_pretended_gpu_has_generators() -> None:
    with ft.emulate("H200", as_cuda=True):
        own = torch.Generator(device="cuda").manual_seed(9)
        state = own.get_state()
        first = torch.randn(5, device="cuda", generator=own)
        own.set_state(state)
        assert torch.equal(torch.randn(5, device="cuda", generator=own), first)
        assert (own.get_offset(), own.device.type, own.initial_seed()) == (4, "cuda", 9)
        assert all(isinstance(each, torch.Generator) for each in (own, torch.Generator()))
        torch.cuda.manual_seed(9)
        assert torch.equal(torch.randn(5, device="cuda"), first)
        before = torch.cuda.get_rng_state()
        torch.poisson(torch.ones(3))
        assert torch.cuda.get_rng_state()[8] == before[8] + 20


def test_what_comes_after_unknown_draws_is_passed() -> None:
    with ft.emulate("H200") as gpu:
        torch.manual_seed(0)
        torch.ops.aten._sample_dirichlet(torch.ones(3))
        functional.rrelu(torch.ones(3), training=True)
        functional.dropout(torch.ones(3), 0.5)
        assert gpu.report.emulated == 1
        torch.bernoulli(torch.ones(3), out=torch.empty(3))  # of which it is not known how much it draws
        functional.dropout(torch.ones(3), 0.5)
        assert gpu.report.emulated == 1
        drawn(0)
    assert gpu.report.emulated == 2


# of an H200 with PyTorch 2.11, seed 1717: a format, a shape, the arguments, and a checksum of the codes
TRUNCATED = (
    (torch.float32, (12,), {"mean": -3.0, "std": 1.0, "a": -2.0, "b": 2.0}, 4015646677),
    (torch.float32, (9,), {"mean": 0.5, "std": 3.0, "a": -1.0, "b": 2.5}, 428923632),
    (torch.bfloat16, (3, 21), {"std": 0.02}, 2304995254),
    (torch.float16, (102,), {"std": 0.02}, 1818327569),
)


@pytest.mark.skipif("erfinvf" in (libdevice.release() or ("", ()))[1], reason="erfinv of another libdevice")
def test_truncated_normal_numbers_are_those_of_the_recorded_version() -> None:
    for dtype, shape, arguments, checksum in TRUNCATED:
        torch.manual_seed(1717)
        with ft.emulate("H200") as gpu:
            found = torch.nn.init.trunc_normal_(torch.empty(shape, dtype=dtype), **arguments)
        gpu.report.assert_all_emulated()
        codes = found.view(torch.int32 if dtype is torch.float32 else torch.int16).numpy()
        assert zlib.crc32(codes.tobytes()) == checksum, (dtype, shape)


def test_a_device_that_is_named_may_be_the_cpu() -> None:
    with ft.emulate("H200") as gpu:
        torch.rand_like(torch.ones(3), device="cpu")
    assert gpu.report.passed == 1
    torch.manual_seed(5)
    with ft.emulate("H200", as_cuda=True) as gpu:
        torch.rand_like(torch.ones(3), device="cuda")
    assert gpu.report.emulated == 1
