"""Elements of shared memory that tensors of indices name."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402

from fastmma.triton import interpret  # noqa: E402


@gluon.jit
def moved(values, order, scattered, gathered, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    places = gl.arange(0, N, layout)
    index = gl.load(order + places)
    memory = gl.allocate_shared_memory(gl.float32, [N], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    memory.scatter(gl.load(values + places), index, axis=0)
    gl.store(scattered + places, memory.load(layout))
    gl.store(gathered + places, memory.gather(index, axis=0))


def test_scatter_and_gather() -> None:
    values, order = torch.arange(256, dtype=torch.float32), torch.randperm(256, generator=torch.Generator().manual_seed(1)).int()
    scattered, gathered = torch.empty(256), torch.empty(256)
    with interpret("H100") as report:
        moved[(1,)](values, order, scattered, gathered, 256)
    report.assert_all_emulated()
    assert torch.equal(scattered[order], values)
    assert torch.equal(gathered, values)
