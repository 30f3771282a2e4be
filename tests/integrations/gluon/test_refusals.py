"""Gluon kernels that no such GPU runs: errors that name the line and say what to do, where LLVM would end the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton import knobs  # noqa: E402
from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory  # noqa: E402
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma  # noqa: E402
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: E402

import fastmma.triton  # noqa: E402

LINE = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
PAIRS = gl.constexpr(gl.BlockedLayout([2], [32], [4], [0]))


@gluon.jit
def copy(given, out):
    memory = gl.allocate_shared_memory(given.dtype, given.block_type.shape, given.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, given.block_type.nbytes)
    tma.async_load(given, [0, 0], ready, memory)
    mbarrier.wait(ready, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    rows, columns = gl.arange(0, 64, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + rows[:, None] * 64 + columns[None, :], memory.load(layout))


@gluon.jit
def fence(out):
    fence_async_shared()
    gl.store(out + gl.arange(0, 128, LINE), 1.0)


@gluon.jit
def multiply(out):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    memory = gl.allocate_shared_memory(gl.float16, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
    total = warpgroup_mma(memory, memory, gl.zeros((64, 64), gl.float32, layout), is_async=False)
    gl.store(out + gl.arange(0, 64, gl.SliceLayout(1, layout)), gl.sum(total, 1))


@gluon.jit
def allocate(out):
    memory = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], 1))
    layout: gl.constexpr = gl.BlockedLayout([1, 64], [32, 1], [4, 1], [1, 0])
    gl.store(out + gl.arange(0, 128, gl.SliceLayout(1, layout)), gl.sum(gl.convert_layout(memory.load(), layout), 1))


@gluon.jit
def mix_layouts(out):
    gl.store(out + gl.arange(0, 128, LINE), gl.load(out + gl.arange(0, 128, PAIRS)))


def copied() -> None:
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float32)
    copy[(1,)](TensorDescriptor.from_tensor(torch.zeros(64, 64), [64, 64], layout), torch.zeros(64, 64))


def launching(kernel: Any) -> Callable[[], None]:
    return lambda: kernel[(1,)](torch.zeros(128))


# what is launched, for which GPU, and what the error says
REFUSED = {
    "tma": (copied, "A100", r"tma\.async_load \(.*test_refusals\.py:\d+\): sm_80 has no such instruction; .* async_copy"),
    "fence": (launching(fence), "A100", r"fence_async_shared \(.*:\d+\): sm_80 has no such instruction"),
    "wgmma on a B200": (launching(multiply), "B200", r"warpgroup_mma \(.*:\d+\): sm_100a has no such instruction; .*tcgen05_mma"),
    "wgmma on an RTX 5090": (launching(multiply), "RTX 5090", r"warpgroup_mma \(.*:\d+\): sm_120a has no such instruction"),
    "tensor memory": (launching(allocate), "H100", r"allocate: .*test_refusals\.py:\d+: def allocate.*what it printed above"),
    "layouts": (launching(mix_layouts), "H100", r"mix_layouts: .*Layout mismatch .*test_refusals\.py:\d+: gl\.store"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_such_gpu_runs_is_refused(name: str) -> None:
    launch, gpu, told = REFUSED[name]
    with pytest.raises(fastmma.NotEmulatedError, match=told), fastmma.triton.interpret(gpu):
        launch()


def test_a_hook_of_the_compilers_stages_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def hook(*given: Any) -> tuple[str, str]:
        seen.append(len(given))
        return "of a test", "of a test"

    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", hook)
    out = torch.zeros(128)
    with knobs.compilation.scope(), fastmma.triton.interpret("H100"):
        knobs.compilation.always_compile = True
        fence[(1,)](out)
    assert out.sum() == 128
    assert {0, 5} <= set(seen)
    assert knobs.runtime.add_stages_inspection_hook is hook


@gluon.jit
def exchange(places, found):
    index = gl.arange(0, 128, LINE)
    gl.store(found + index, gl.atomic_cas(places + index, index // 2, index + 1000))


def test_exchanges_of_what_is_expected() -> None:
    places, found = torch.arange(128, dtype=torch.int32) % 3, torch.zeros(128, dtype=torch.int32)
    before, index = places.clone(), torch.arange(128, dtype=torch.int32)
    with fastmma.triton.interpret("H100") as report:
        exchange[(1,)](places, found)
    assert torch.equal(found, before)
    assert torch.equal(places, torch.where(before == index // 2, index + 1000, before))
    assert not report.lines("passed", "unseen")
