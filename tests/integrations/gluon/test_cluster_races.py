"""Kernels of clusters: what nothing orders between two CTAs is named with both, and those that are right are not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon.language.nvidia.blackwell import (  # noqa: E402
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import async_store, cluster, mbarrier, tma  # noqa: E402
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: E402

import fastmma.triton  # noqa: E402

ROWS = gl.constexpr(gl.BlockedLayout([1, 2], [4, 8], [4, 1], [1, 0], [[1, 0]]))
COLUMNS = gl.constexpr(gl.BlockedLayout([1, 2], [4, 8], [4, 1], [1, 0], [[0, 1]]))
SAME = gl.constexpr(gl.BlockedLayout([1, 2], [4, 8], [4, 1], [1, 0], [[0, 0]]))


@gluon.jit
def reload(given, out, ORDER: gl.constexpr):
    """Let both CTAs sum tiles that the first one multicasts to them into the same buffers."""
    memory = gl.allocate_shared_memory(given.dtype, given.block_type.shape, given.layout)
    ready = mbarrier.allocate_mbarrier()
    empty = mbarrier.allocate_mbarrier(two_ctas=ORDER == "arrivals of both")
    mbarrier.init(ready, count=1)
    mbarrier.init(empty, count=1)
    total = gl.zeros(given.block_type.shape, gl.float32, SAME)
    for step in range(4):
        mbarrier.expect(ready, given.nbytes_per_cta)
        tma.async_load(given, [step * 32, 0], ready, memory, multicast=True)
        mbarrier.wait(ready, step & 1)
        total += memory.load(SAME)
        if ORDER == "cluster barrier":
            gl.barrier(cluster=True)
        elif ORDER == "relaxed barrier":
            cluster.barrier(relaxed=True)
        elif ORDER == "barrier of each CTA":
            gl.barrier()
        elif ORDER != "nothing":
            mbarrier.arrive(empty, from_cta=0 if ORDER == "arrival of the first" else None)
            mbarrier.wait(empty, step & 1)
    rows, columns = gl.arange(0, 32, gl.SliceLayout(1, SAME)), gl.arange(0, 64, gl.SliceLayout(0, SAME))
    gl.store(out + rows[:, None] * 64 + columns[None, :], total)


def reloaded(order: str) -> bool:
    x, y = torch.arange(8192, dtype=torch.float32).reshape(128, 64), torch.zeros(32, 64)
    layout = gl.NVMMASharedLayout.get_default_for([32, 64], gl.float32, cga_layout=[[0, 0]])
    with fastmma.triton.interpret("H100"):
        reload[(1,)](TensorDescriptor.from_tensor(x, [32, 64], layout), y, order, num_ctas=2)
    return bool(torch.equal(y, x.reshape(4, 32, 64).sum(0)))


@gluon.jit
def exchange(given, out, ORDER: gl.constexpr):
    """Transpose what two CTAs hold: each stores its rows into the shared memory of both, and loads its columns."""
    rows, columns = gl.arange(0, 64, gl.SliceLayout(1, ROWS)), gl.arange(0, 64, gl.SliceLayout(0, ROWS))
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0], [[0, 1]]))
    if ORDER.endswith("async store"):
        stored = mbarrier.allocate_mbarrier()
        mbarrier.init(stored, count=1)
        mbarrier.expect(stored, 8192)
        async_store(memory, gl.load(given + rows[:, None] * 64 + columns[None, :]), stored)
        if ORDER == "a waited async store":
            mbarrier.wait(stored, 0)
    else:
        memory.store(gl.load(given + rows[:, None] * 64 + columns[None, :]))
    if ORDER == "cluster barrier":
        gl.barrier(cluster=True)
    elif ORDER == "barrier of each CTA":
        gl.barrier()
    values = memory.load(COLUMNS)
    rows, columns = gl.arange(0, 64, gl.SliceLayout(1, COLUMNS)), gl.arange(0, 64, gl.SliceLayout(0, COLUMNS))
    gl.store(out + columns[None, :] * 64 + rows[:, None], values)


def exchanged(order: str) -> bool:
    x, y = torch.arange(4096, dtype=torch.float32).reshape(64, 64), torch.zeros(64, 64)
    with fastmma.triton.interpret("H100"):
        exchange[(1,)](x, y, order, num_ctas=2)
    return bool(torch.equal(y, x.T))


@gluon.jit
def multiply(a_desc, b_desc, out, ORDER: gl.constexpr):
    """Multiply by pairs of CTAs, whose operands each CTA loads for itself."""
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    total = allocate_tensor_memory(gl.float32, [256, 64], TensorMemoryLayout([128, 64], 1, cga_layout=[[1, 0]], two_ctas=True))
    ready = mbarrier.allocate_mbarrier(two_ctas=ORDER != "a load's barrier of each CTA")
    empty = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(empty, count=1)
    for step in range(3):
        mbarrier.expect(ready, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [0, step * 64], ready, a)
        tma.async_load(b_desc, [step * 64, 0], ready, b)
        mbarrier.wait(ready, step & 1)
        tcgen05_mma(a, b, total, use_acc=step > 0)
        tcgen05_commit(empty)
        mbarrier.wait(empty, step & 1)
    layout: gl.constexpr = gl.BlockedLayout([1, 64], [32, 1], [4, 1], [1, 0], [[1, 0]])
    rows, columns = gl.arange(0, 256, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + rows[:, None] * 64 + columns[None, :], gl.convert_layout(total.load(), layout))


def multiplied(order: str) -> bool:
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randint(-4, 5, shape, generator=generator).to(torch.float16) for shape in ((256, 192), (192, 64)))
    out = torch.zeros(256, 64)
    layouts = (
        gl.NVMMASharedLayout.get_default_for(box, gl.float16, cga_layout=basis)
        for box, basis in (([256, 64], [[1, 0]]), ([64, 64], [[0, 1]]))
    )
    boxes = ([256, 64], [64, 64])
    a, b = (TensorDescriptor.from_tensor(tensor, box, layout) for tensor, box, layout in zip((x, y), boxes, layouts, strict=True))
    with fastmma.triton.interpret("B200"):
        multiply[(1,)](a, b, out, order, num_ctas=2)
    return bool(torch.equal(out, x.float() @ y.float()))


RIGHT = (
    (reloaded, "cluster barrier"),
    (reloaded, "arrivals of both"),
    (exchanged, "cluster barrier"),
    (exchanged, "a waited async store"),
    (multiplied, "each waits"),
)
# a kernel, what should order its CTAs and does not, the two accesses, and a piece of a line that is named
WRONG = (
    (reloaded, "nothing", ("tma.async_load", "of CTA 0 writes", "of CTA 1 reads"), "total += memory.load(SAME)"),
    (reloaded, "barrier of each CTA", ("of CTA 0 writes", "of CTA 1 reads"), "total += memory.load(SAME)"),
    (reloaded, "relaxed barrier", ("of CTA 0 writes", "of CTA 1 reads"), "total += memory.load(SAME)"),
    (reloaded, "arrival of each", ("of CTA 0 writes", "of CTA 1 reads"), "total += memory.load(SAME)"),
    (reloaded, "arrival of the first", ("of CTA 0 writes", "of CTA 1 reads"), "total += memory.load(SAME)"),
    (exchanged, "nothing", ("of CTA 0 reads", "of CTA 1 writes"), "values = memory.load(COLUMNS)"),
    (exchanged, "barrier of each CTA", ("of CTA 0 reads", "of CTA 1 writes"), "values = memory.load(COLUMNS)"),
    (exchanged, "an async store", ("of CTA 0 reads", "async_store"), "values = memory.load(COLUMNS)"),
    (multiplied, "a load's barrier of each CTA", ("tcgen05_mma", "of CTA 0 reads", "of CTA 1 writes"), "tcgen05_mma(a, b, total"),
)


@pytest.mark.parametrize(("run", "order"), RIGHT, ids=lambda one: getattr(one, "__name__", one))
def test_what_is_ordered(run, order: str) -> None:
    assert run(order)


@pytest.mark.parametrize(("run", "order", "says", "piece"), WRONG, ids=lambda one: getattr(one, "__name__", None))
def test_what_nothing_orders(run, order: str, says: tuple[str, ...], piece: str) -> None:
    with pytest.raises(fastmma.triton.RaceError) as found:
        run(order)
    text = str(found.value)
    assert all(part in text for part in says), text
    line = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if piece in line)
    assert f"test_cluster_races.py:{line})" in text, text
