"""Pools and interpolations have the bits of PyTorch 2.11 on an H100 and an H200, and gradients where a GPU repeats them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from reference import torch_pools  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")


def test_recorded_pools_are_emulated_and_equal() -> None:
    for call in torch_pools.recorded():
        with ft.emulate("H200") as gpu:
            found = torch_pools.run(call)
        assert [torch_pools.checksum(each) for each in found] == call.sums, call
        names = [line.operator for line, _ in gpu.report.lines("passed", "assumed", "unseen")]
        assert not [name for name in names if "pool" in name or "upsample" in name], call


def test_what_overlaps_in_an_order_that_is_not_known_is_told() -> None:
    x = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
    last = x.contiguous(memory_format=torch.channels_last)
    for images, pool in (
        (last, lambda y: torch.nn.functional.avg_pool2d(y, 3, 1, 1)),
        (last, lambda y: torch.nn.functional.adaptive_avg_pool2d(y, 3)),
        (x, lambda y: torch.nn.functional.adaptive_avg_pool2d(y, 3)),
    ):
        y = images.clone().requires_grad_()
        with ft.emulate("H200") as gpu:
            pool(y).sum().backward()
        told = [line.operator for line, _ in gpu.report.lines("passed")]
        assert [name for name in told if "pool" in name and "backward" in name], told
        assert y.grad is not None
        assert y.grad.is_contiguous(memory_format=torch.channels_last) == (images is last)
