"""Kernels whose barriers are wrong: the accesses that nothing orders, or the waits that never end, are named with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma  # noqa: E402
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: E402

import fastmma.triton  # noqa: E402

LAYOUT = gl.constexpr(gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))


@gluon.jit
def double(given, out, ready, filled, LEFT_OUT: gl.constexpr):
    """Load a tile, double it and store it, in two partitions' turns; one step may be left out."""
    memory = gl.allocate_shared_memory(given.dtype, given.block_type.shape, given.layout)
    if LEFT_OUT != "expect":
        mbarrier.expect(ready, given.block_type.nbytes)
    tma.async_load(given, [0, 0], ready, memory)
    if LEFT_OUT != "wait":
        mbarrier.wait(ready, 0)
    values = memory.load(LAYOUT)
    memory.store(values + values)
    if LEFT_OUT != "fence":
        fence_async_shared()
    if LEFT_OUT != "arrive":
        mbarrier.arrive(filled, count=1)
    gl.warp_specialize([(reload, (given, ready, memory, LEFT_OUT)), (save, (out, filled, memory, LEFT_OUT))], [1])


@gluon.jit
def reload(given, ready, memory, LEFT_OUT: gl.constexpr):
    if LEFT_OUT == "order":
        mbarrier.expect(ready, given.block_type.nbytes)
        tma.async_load(given, [0, 0], ready, memory)


@gluon.jit
def save(out, filled, memory, LEFT_OUT: gl.constexpr):
    mbarrier.wait(filled, 0)
    tma.async_store(out, [0, 0], memory)
    if LEFT_OUT != "store_wait":
        tma.store_wait(0)
    memory.store(gl.full(out.block_type.shape, 0.0, gl.float32, gl.BlockedLayout([1, 4], [4, 8], [1, 1], [1, 0])))


@gluon.jit
def doubled(given, out, LEFT_OUT: gl.constexpr):
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    filled = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    if LEFT_OUT != "init":
        mbarrier.init(ready, count=1)
    mbarrier.init(filled, count=1)
    double(given, out, ready, filled, LEFT_OUT)


def run(left_out: str) -> bool:
    x, y = torch.arange(2048, dtype=torch.float32).reshape(32, 64), torch.zeros(32, 64)
    layout = gl.NVMMASharedLayout.get_default_for([32, 64], gl.float32)
    descriptors = (TensorDescriptor.from_tensor(tensor, [32, 64], layout) for tensor in (x, y))
    with fastmma.triton.interpret("H100"):
        doubled[(1,)](*descriptors, left_out)
    return bool(torch.equal(y, x + x))


# what is left out, the error, what it says, and a piece of a line that it names
WRONG = [
    ("wait", "RaceError", ("smem.load", "tma.async_load"), "values = memory.load("),
    ("store_wait", "RaceError", ("smem.store", "tma.async_store"), "memory.store(gl.full("),
    ("order", "RaceError", ("tma.async_store", "tma.async_load"), "tma.async_store(out,"),
    ("fence", "RaceError", ("fence_async_shared is missing", "smem.store"), "memory.store(values + values)"),
    ("expect", "DeadlockError", ("mbarrier.wait", "misses 1 of 1 arrivals and -8192 bytes"), "mbarrier.wait(ready, 0)"),
    ("arrive", "DeadlockError", ("partition 1", "misses 1 of 1 arrivals"), "mbarrier.wait(filled, 0)"),
    ("init", "BarrierError", ("mbarrier.expect", "not initialised"), "mbarrier.expect(ready, given"),
]


@pytest.mark.parametrize(("left_out", "error", "says", "piece"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_left_out(left_out: str, error: str, says: tuple[str, ...], piece: str) -> None:
    with pytest.raises(getattr(fastmma.triton, error)) as found:
        run(left_out)
    text = str(found.value)
    assert all(part in text for part in says), text
    line = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if piece in line)
    assert f"test_barriers.py:{line})" in text


def test_nothing_is_left_out() -> None:
    assert run("nothing")
