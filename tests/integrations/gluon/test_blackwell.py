"""Kernels for a B200: tcgen05 on tensor memory has the bits of fastmma's own product by the same instruction."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon.language.nvidia.blackwell import (  # noqa: E402
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: E402

import fastmma  # noqa: E402
from fastmma.triton import RaceError, interpret  # noqa: E402


@gluon.jit
def loads(a_desc, b_desc, a_smem, b_smem, ready, free):
    for step in range(gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])):
        slot = step % 2
        mbarrier.wait(free.index(slot), (step // 2 & 1) ^ 1)
        mbarrier.expect(ready.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma.async_load(a_desc, [0, step * a_desc.block_type.shape[1]], ready.index(slot), a_smem.index(slot))
        tma.async_load(b_desc, [step * a_desc.block_type.shape[1], 0], ready.index(slot), b_smem.index(slot))


@gluon.jit
def multiplications(a_desc, a_smem, b_smem, total, ready, free, done, IN_TENSOR_MEMORY: gl.constexpr, COMMITS: gl.constexpr):
    shape: gl.constexpr = a_desc.block_type.shape
    layout: gl.constexpr = TensorMemoryLayout(shape, col_stride=1)
    a_tmem = allocate_tensor_memory(a_desc.dtype, shape, layout)
    for step in range(gl.cdiv(a_desc.shape[1], shape[1])):
        slot = step % 2
        mbarrier.wait(ready.index(slot), step // 2 & 1)
        if IN_TENSOR_MEMORY:
            a_tmem.store(a_smem.index(slot).load(a_tmem.get_reg_layout()))
            tcgen05_mma(a_tmem, b_smem.index(slot), total, use_acc=step > 0)
            tcgen05_commit(done.index(1))
            mbarrier.wait(done.index(1), step & 1)
            mbarrier.arrive(free.index(slot), count=1)
        else:
            tcgen05_mma(a_smem.index(slot), b_smem.index(slot), total, use_acc=step > 0)
            if COMMITS:
                tcgen05_commit(free.index(slot))
            else:
                mbarrier.arrive(free.index(slot), count=1)
    tcgen05_commit(done.index(0))


@gluon.jit
def product(a_desc, b_desc, c_desc, IN_TENSOR_MEMORY: gl.constexpr, COMMITS: gl.constexpr):
    """Multiply matrices of one tile of rows and columns: one partition loads, another multiplies, the third stores."""
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [2] + a_desc.block_type.shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [2] + b_desc.block_type.shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(2):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=1)
        mbarrier.init(done.index(slot), count=1)
    layout: gl.constexpr = TensorMemoryLayout(c_desc.block_type.shape, col_stride=1)
    total = allocate_tensor_memory(gl.float32, c_desc.block_type.shape, layout)
    gl.warp_specialize(
        [
            (store, (c_desc, total, c_smem, done)),
            (loads, (a_desc, b_desc, a_smem, b_smem, ready, free)),
            (multiplications, (a_desc, a_smem, b_smem, total, ready, free, done, IN_TENSOR_MEMORY, COMMITS)),
        ],
        [1, 4],
    )


@gluon.jit
def store(c_desc, total, c_smem, done):
    mbarrier.wait(done.index(0), 0)
    c_smem.store(total.load())
    fence_async_shared()
    tma.async_store(c_desc, [0, 0], c_smem)
    tma.store_wait(0)


def run(rows: int, in_tensor_memory: bool, commits: bool = True) -> None:
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((rows, 256), (256, 64)))
    c = torch.empty(rows, 64)
    boxes = ([rows, 64], [64, 64], [rows, 64])
    descriptors = []
    for tensor, box in zip((torch.from_numpy(a), torch.from_numpy(b), c), boxes, strict=True):
        layout = gl.NVMMASharedLayout.get_default_for(box, gl.float16 if tensor.dtype == torch.float16 else gl.float32)
        descriptors.append(TensorDescriptor.from_tensor(tensor, box, layout))
    with interpret("B200") as report:
        product[(1,)](*descriptors, in_tensor_memory, commits)
    report.assert_all_emulated()
    opcode = str(fastmma.tcgen05.instruction("f16", "f32", "f16", "f16", m=rows, n=64))
    assert np.array_equal(fastmma.gemm(a, b, instruction=opcode, target="B200"), c.numpy())


@pytest.mark.parametrize(("rows", "in_tensor_memory"), [(128, False), (128, True), (64, False)])
def test_products(rows: int, in_tensor_memory: bool) -> None:
    run(rows, in_tensor_memory)


def test_a_buffer_that_is_free_before_the_tensor_core_read_it() -> None:
    with pytest.raises(RaceError, match=r"tma\.async_load .* writes 8192 bytes that tcgen05_mma .* reads"):
        run(64, False, commits=False)
