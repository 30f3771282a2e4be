"""The GPU side as far as it goes without a GPU: PTX that ptxas assembles, errors that say what is missing. With one, silicon itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reference.ptxas import complaints, needs_ptxas

import fastmma
from fastmma.backends.gpu import device
from fastmma.backends.gpu.movement_ptx import movement_kernel
from fastmma.backends.gpu.multiplication_ptx import Selectors, loop_kernel, warpgroup_kernel
from fastmma.backends.gpu.ptx import ptx_version
from fastmma.backends.gpu.silicon import immediates
from fastmma.host.errors import BackendError, OperandError, TargetError
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.instruction import Instruction, Movement
from fastmma.verification import replay

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
without_gpu = pytest.mark.skipif(device.available(), reason="there is an NVIDIA GPU with CuPy")


def kernel_of(ins: Instruction | Movement, target: str) -> str:
    if isinstance(ins, Movement):
        return movement_kernel(ins, target, memory_bytes=2048)
    if ins.op == "wgmma":
        return warpgroup_kernel(ins, target, image_bytes=4096, immediates=immediates(ins))
    return loop_kernel(ins, target)


def sample(target: str) -> list[Instruction | Movement]:
    """One opcode of every kind of instruction and every set of types, wgmma at its narrowest."""
    found: dict[object, Instruction | Movement] = {}
    for ins in fastmma.instructions(target):
        if isinstance(ins, Movement) and ins.unknown:
            continue
        kind = (ins.op, ins.rows, ins.bits) if isinstance(ins, Movement) else (ins.op, ins.types, ins.sparse, ins.scale_vec_size, ins.kind)
        found.setdefault(kind, ins)
    return list(found.values())


@needs_ptxas
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_ptxas_assembles_the_kernel_of_every_kind_of_instruction(target: str, tmp_path: Path) -> None:
    tried = sample(target)
    assert complaints([kernel_of(ins, target) for ins in tried], target, tmp_path) == "", tried


def test_the_opcode_is_in_the_text_once_with_its_selectors() -> None:
    sparse = fastmma.instruction("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    text = loop_kernel(sparse, "sm_80", Selectors(sparsity=3))
    assert text.count(sparse.opcode) == 1
    assert "%metadata, 3;" in text
    assert ptx_version(sparse, "sm_80") == (8, 5)


def test_kernels_refuse_what_they_cannot_be() -> None:
    f16, wgmma = (fastmma.instruction(text) for text in (F16, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"))
    with pytest.raises(TargetError, match="illegal on sm_75"):
        loop_kernel(f16, "sm_75")
    with pytest.raises(OperandError, match="shared memory"):
        loop_kernel(wgmma, "sm_90a")
    with pytest.raises(OperandError, match="no wgmma"):
        warpgroup_kernel(f16, "sm_90a", image_bytes=512)
    with pytest.raises(OperandError, match="multiple of 512"):
        warpgroup_kernel(wgmma, "sm_90a", image_bytes=100)


MEMORY, ADDRESSES, LANES = np.zeros(1024, np.uint8), np.arange(32) % 8 * 16, np.zeros((32, 1), np.uint32)
MOVEMENTS: dict[str, Callable[[str], object]] = {
    "ldmatrix": lambda backend: fastmma.warp.ldmatrix("ldmatrix.sync.aligned.m8n8.x1.b16", MEMORY, ADDRESSES, backend=backend),
    "stmatrix": lambda backend: fastmma.warp.stmatrix("stmatrix.sync.aligned.m8n8.x1.b16", MEMORY, ADDRESSES, LANES, backend=backend),
    "movmatrix": lambda backend: fastmma.warp.movmatrix("movmatrix.sync.aligned.m8n8.trans.b16", LANES[:, 0], backend=backend),
    "wmma_load": lambda backend: fastmma.warp.wmma_load(
        "wmma.load.a.sync.aligned.row.m16n16k16.f16", MEMORY, target="sm_90a", backend=backend
    ),
    "wmma_store": lambda backend: fastmma.warp.wmma_store(
        "wmma.store.d.sync.aligned.row.m16n16k16.f32", MEMORY, np.zeros((32, 8), np.uint32), target="sm_90a", backend=backend
    ),
}


HALVES, WORDS, WGMMA = np.ones((16, 16), np.float16), np.zeros((32, 4), np.uint32), "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
TILE, WARPGROUP = Descriptor(0, leading=128, stride=256), np.zeros((128, 4), np.uint32)
BAD_CALLS: dict[str, Callable[[str], object]] = {
    "shape": lambda backend: fastmma.gemm(HALVES, HALVES[:3], target="sm_90a", backend=backend),
    "dtype": lambda backend: fastmma.gemm(HALVES.astype(np.uint32), HALVES, target="sm_90a", backend=backend),
    "out": lambda backend: fastmma.gemm(HALVES, HALVES, out=np.zeros(3, np.float32), target="sm_90a", backend=backend),
    "split": lambda backend: fastmma.gemm(HALVES, HALVES, split_k=0, target="sm_90a", backend=backend),
    "preset": lambda backend: fastmma.gemm(HALVES, HALVES, preset="none", target="sm_90a", backend=backend),
    "matmul": lambda backend: fastmma.matmul(HALVES, HALVES[0, 0], target="sm_90a", backend=backend),
    "tile": lambda backend: fastmma.mma(F16, HALVES, HALVES, HALVES, target="sm_90a", backend=backend),
    "registers": lambda backend: fastmma.warp.mma(F16, WORDS, WORDS, WORDS, target="sm_90a", backend=backend),
    "threads": lambda backend: fastmma.warp.mma(F16, WORDS, WORDS[:, :2], WORDS, target="sm_90a", threads=0, backend=backend),
    "illegal": lambda backend: fastmma.warp.mma(F16, WORDS, WORDS[:, :2], WORDS, target="sm_75", backend=backend),
    "unknown": lambda backend: fastmma.gemm(HALVES, HALVES, target="sm_91", backend=backend),
    "memory": lambda backend: fastmma.warpgroup.mma(WGMMA, WARPGROUP, WARPGROUP, TILE, memory=MEMORY[:9], backend=backend),
    "sign": lambda backend: fastmma.warpgroup.mma(WGMMA, WARPGROUP, WARPGROUP, TILE, memory=MEMORY, imm_scale_a=2, backend=backend),
    "load": lambda backend: fastmma.warp.wmma_load(
        "wmma.load.a.sync.aligned.row.m16n16k16.f16", MEMORY[:9], target="sm_90a", backend=backend
    ),
    "address": lambda backend: fastmma.warp.ldmatrix("ldmatrix.sync.aligned.m8n8.x1.b16", MEMORY, ADDRESSES + 1, backend=backend),
}


@pytest.mark.parametrize("backend", ["reference", "cupy", "cupy-emulate"])
@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_the_errors_of_the_cpu(name: str, backend: str) -> None:
    with pytest.raises(fastmma.FastmmaError) as on_cpu:
        BAD_CALLS[name]("numba")
    with pytest.raises(type(on_cpu.value)) as elsewhere:
        BAD_CALLS[name](backend)
    assert str(elsewhere.value) == str(on_cpu.value)


def test_another_gpu_says_what_it_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "native_target", lambda: "sm_90a")
    calls: list[Callable[[], object]] = [
        lambda: fastmma.gemm(HALVES, HALVES, target="sm_80", backend="cupy"),
        lambda: fastmma.mma(F16, HALVES, HALVES[:, :8], WORDS[:16, :1].repeat(8, 1).view(np.float32), target="sm_80", backend="cupy"),
        lambda: fastmma.warp.mma(F16, WORDS, WORDS[:, :2], WORDS, target="sm_80", backend="cupy"),
    ]
    for call in calls:
        with pytest.raises(TargetError, match="the GPU here executes sm_90, sm_90a, not sm_80"):
            call()


def test_shared_memory_of_a_block_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "native_target", lambda: "sm_90a")
    large = np.zeros(48 * 1024 + 16, np.uint8)
    with pytest.raises(OperandError, match="at most 49152 bytes, not 49168"):
        fastmma.warpgroup.mma(WGMMA, WARPGROUP, WARPGROUP, TILE, memory=large, backend="cupy")
    with pytest.raises(OperandError, match="at most 49152 bytes, not 49168"):
        fastmma.warp.ldmatrix("ldmatrix.sync.aligned.m8n8.x1.b16", large, ADDRESSES, backend="cupy")


def test_empty_batches_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "native_target", lambda: "sm_90a")
    none = [array[None][:0] for array in (WARPGROUP, WORDS, MEMORY, ADDRESSES, LANES)]
    results = [
        fastmma.warpgroup.mma(WGMMA, none[0], none[0], TILE, memory=MEMORY, backend="cupy"),
        fastmma.warp.mma(F16, none[1], none[1][..., :2], none[1], target="sm_90a", backend="cupy"),
        fastmma.warp.ldmatrix("ldmatrix.sync.aligned.m8n8.x1.b16", none[2], none[3], backend="cupy"),
        fastmma.warp.movmatrix("movmatrix.sync.aligned.m8n8.trans.b16", none[4][..., 0], backend="cupy"),
    ]
    assert [result.shape for result in results] == [(0, 128, 4), (0, 32, 4), (0, 32, 1), (0, 32)]


def test_device_memory_has_the_byte_order_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_cupy", lambda: SimpleNamespace(asarray=lambda host: host))
    words = np.arange(12, dtype=">u4").reshape(3, 4)[:, ::2]
    sent = device.to_device(words)
    assert sent.dtype.isnative
    assert sent.flags.c_contiguous
    np.testing.assert_array_equal(sent, words)


@without_gpu
@pytest.mark.parametrize("name", MOVEMENTS)
def test_without_a_gpu_the_backend_says_so(name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: MOVEMENTS[name]("cupy"),
        *(lambda target=target: fastmma.gemm(HALVES, HALVES, target=target, backend="cupy") for target in ("sm_90a", "native")),  # type: ignore[misc]
    ]
    for call in calls:
        with pytest.raises(BackendError, match=r"cupy|GPU"):
            call()


@pytest.mark.parametrize("name", MOVEMENTS)
def test_movements_know_the_backends(name: str) -> None:
    with pytest.raises(BackendError, match="there is no backend 'cuda'"):
        MOVEMENTS[name]("cuda")
    np.testing.assert_array_equal(MOVEMENTS[name]("reference"), MOVEMENTS[name]("numba"))


@pytest.mark.gpu
def test_silicon_agrees_with_the_emulator() -> None:
    report = replay.compare_with_gpu(0.0, warps=64)
    assert [outcome.worst for outcome in report.outcomes if outcome.wrong] == []
