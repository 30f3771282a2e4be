"""Layers that an H100 computed: what is called emulated has its bits."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import torch_layers  # noqa: E402
from reference.cases import cases  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

CALLS = torch_layers.recorded()
pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="the extra 'functions' is not installed")


@cases(
    ("kind", "target", "rates"),
    [
        ("batch_norm", "H100", {("emulated", True): 65, ("passed", False): 7}),
        ("attention", "H200", {("emulated", True): 13, ("assumed", True): 3}),
    ],
)
def test_what_is_called_emulated_has_an_h100s_bits(kind: str, target: str, rates: dict[tuple[str, bool], int]) -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    for call in CALLS:
        if call.kind != kind:
            continue
        with ft.emulate(target, unknown="one") as gpu:
            found = torch_layers.run(call)
        equal = all(sum_ in (None, torch_layers.checksum(each)) for each, sum_ in zip(found, call.checksums, strict=True))
        status = next((each for each in ("unseen", "passed", "assumed") if gpu.report.lines(each)), "emulated")
        assert equal or status != "emulated", call
        counts[status, equal] += 1
    assert counts == rates


def test_a_batch_norm_trains_as_a_module_does() -> None:
    x = torch.randn(6, 8, 5, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    layer = torch.nn.BatchNorm2d(8, dtype=torch.bfloat16)
    with ft.emulate("H100") as gpu:
        y = layer(x)
        y.square().sum().backward()
    gpu.report.assert_all_emulated()
    assert layer.weight.grad is not None
    assert layer.num_batches_tracked == 1
    torch.testing.assert_close(layer.running_mean.float(), 0.1 * x.float().mean((0, 2, 3)), rtol=0.02, atol=0.002)
    with ft.emulate("H100") as gpu:
        layer(x.float().to(torch.bfloat16).permute(0, 1, 3, 2))  # of which no kernel was recorded
        torch.nn.functional.batch_norm(x.float(), None, None, torch.ones(8), torch.ones(8), True)  # which cuDNN computes
    assert [line.operator for line, _ in gpu.report.lines("passed")] == ["aten.native_batch_norm.default"] * 2
