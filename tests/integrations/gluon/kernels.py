"""Gluon kernels for Hopper, as users write them: what a GPU ran, and what is replayed here."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def scale_and_add(x, y, out, factor, N: gl.constexpr, num_warps: gl.constexpr):
    """Copy to shared memory by cp.async, two blocks in flight; multiply and add in f32."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [num_warps, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])
    rows = gl.arange(0, 8, gl.SliceLayout(1, layout))
    columns = gl.arange(0, 128, gl.SliceLayout(0, layout))
    offsets = rows[:, None] * N + columns[None, :]
    buffers_x = gl.allocate_shared_memory(gl.float32, [2, 8, 128], shared)
    buffers_y = gl.allocate_shared_memory(gl.float32, [2, 8, 128], shared)
    base = gl.program_id(0) * 8 * N
    async_copy.async_load(buffers_x.index(0), x + base + offsets)
    async_copy.async_load(buffers_y.index(0), y + base + offsets)
    async_copy.commit_group()
    for start in range(0, N, 128):
        turn = (start // 128) % 2
        if start + 128 < N:
            async_copy.async_load(buffers_x.index(1 - turn), x + base + start + 128 + offsets)
            async_copy.async_load(buffers_y.index(1 - turn), y + base + start + 128 + offsets)
        async_copy.commit_group()
        async_copy.wait_group(1)
        a = buffers_x.index(turn).load(layout)
        b = buffers_y.index(turn).load(layout)
        gl.store(out + base + start + offsets, a * factor + b)
        gl.barrier()


@gluon.jit
def transpose(x, out, M: gl.constexpr, N: gl.constexpr, num_warps: gl.constexpr):
    """Transpose a matrix: rows in, columns out, through a conversion of layouts and through padded shared memory."""
    row_major: gl.constexpr = gl.BlockedLayout([1, 2], [4, 8], [num_warps, 1], [1, 0])
    column_major: gl.constexpr = gl.BlockedLayout([2, 1], [8, 4], [1, num_warps], [0, 1])
    padded: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[N, 4]], [M, N], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, row_major))
    columns = gl.arange(0, N, gl.SliceLayout(0, row_major))
    values = gl.load(x + rows[:, None] * N + columns[None, :])
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [M, N], padded, values)
    values = gl.convert_layout(values, column_major) + memory.load(column_major)
    rows = gl.arange(0, M, gl.SliceLayout(1, column_major))
    columns = gl.arange(0, N, gl.SliceLayout(0, column_major))
    gl.store(out + columns[None, :] * M + rows[:, None], values)


@gluon.jit
def one_product(a_desc, b_desc, c_desc, d_desc, IN_REGISTERS: gl.constexpr, COLUMNS: gl.constexpr, K: gl.constexpr,
                IMPRECISE: gl.constexpr, num_warps: gl.constexpr):  # fmt: skip
    """Multiply one tile by wgmma: A from shared memory or from registers, B by rows of k or by columns."""
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    a_smem = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    mbarrier.expect(done, a_desc.block_type.nbytes + b_desc.block_type.nbytes + c_desc.block_type.nbytes)
    tma.async_load(a_desc, [0, 0], done, a_smem)
    tma.async_load(b_desc, [0, 0], done, b_smem)
    tma.async_load(c_desc, [0, 0], done, c_smem)
    mbarrier.wait(done, phase=0)
    mbarrier.invalidate(done)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, COLUMNS, K])
    b = b_smem.permute((1, 0))
    if IN_REGISTERS:
        a = a_smem.load(gl.DotOperandLayout(0, layout, 32 // a_desc.dtype.primitive_bitwidth))
    else:
        a = a_smem
    c = c_smem.load(layout)
    if IMPRECISE:
        d = warpgroup_mma(a, b, c, is_async=True, max_num_imprecise_acc=IMPRECISE)
    else:
        d = warpgroup_mma(a, b, c, is_async=True)
    d = warpgroup_mma_wait(num_outstanding=0, deps=(d,))
    d_smem = gl.allocate_shared_memory(d_desc.dtype, d_desc.block_type.shape, d_desc.layout)
    d_smem.store(d)
    fence_async_shared()
    tma.async_store(d_desc, [0, 0], d_smem)
    tma.store_wait(pendings=0)


@gluon.jit
def load_tiles(a_desc, b_desc, row, column, k, a, b, ready, pred=True):
    mbarrier.expect(ready, a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=pred)
    tma.async_load(a_desc, [row, k], ready, a, pred)
    tma.async_load(b_desc, [k, column], ready, b, pred)


@gluon.jit
def pipelined(a_desc, b_desc, c_desc, STAGES: gl.constexpr, num_warps: gl.constexpr):
    """Multiply matrices persistently: STAGES tiles on their way, one wgmma in flight while the next tiles are asked for."""
    M: gl.constexpr = c_desc.block_type.shape[0]
    N: gl.constexpr = c_desc.block_type.shape[1]
    K: gl.constexpr = a_desc.block_type.shape[1]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, N, 256 // a_desc.dtype.primitive_bitwidth])
    columns = gl.cdiv(c_desc.shape[1], N)
    tiles = gl.cdiv(c_desc.shape[0], M) * columns
    steps = gl.cdiv(a_desc.shape[1], K)
    loaded = 0
    used = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row = tile // columns * M
        column = tile % columns * N
        for step in gl.static_range(STAGES - 1):
            slot = loaded % STAGES
            load_tiles(a_desc, b_desc, row, column, step * K, a_smem.index(slot), b_smem.index(slot), ready.index(slot), step < steps)
            loaded += step < steps
        acc = gl.zeros((M, N), gl.float32, layout)
        for step in range(steps):
            slot = used % STAGES
            mbarrier.wait(ready.index(slot), used // STAGES & 1)
            acc = warpgroup_mma(a_smem.index(slot), b_smem.index(slot), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            used += 1
            ahead = step + STAGES - 1
            free = loaded % STAGES
            # the wgmma before this one read that stage, and is done
            load_tiles(a_desc, b_desc, row, column, ahead * K, a_smem.index(free), b_smem.index(free), ready.index(free), ahead < steps)
            loaded += ahead < steps
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        tma.store_wait(pendings=0)
        c_smem.store(acc.to(c_desc.dtype))
        fence_async_shared()
        tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(pendings=0)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(ready.index(stage))


@gluon.jit
def produce(a_desc, b_desc, a_smem, b_smem, ready, free, row, column, STAGES: gl.constexpr):
    for step in range(gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])):
        slot = step % STAGES
        mbarrier.wait(free.index(slot), (step // STAGES & 1) ^ 1)
        k = step * a_desc.block_type.shape[1]
        load_tiles(a_desc, b_desc, row, column, k, a_smem.index(slot), b_smem.index(slot), ready.index(slot))


@gluon.jit
def consume(a_desc, c_desc, bias, a_smem, b_smem, ready, free, row, column, STAGES: gl.constexpr, num_warps: gl.constexpr):
    M: gl.constexpr = c_desc.block_type.shape[0]
    N: gl.constexpr = c_desc.block_type.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, N, 256 // a_desc.dtype.primitive_bitwidth])
    acc = gl.zeros((M, N), gl.float32, layout)
    for step in range(gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])):
        slot = step % STAGES
        mbarrier.wait(ready.index(slot), step // STAGES & 1)
        acc = warpgroup_mma(a_smem.index(slot), b_smem.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(free.index(slot), count=1)
    added = gl.load(bias + column + gl.arange(0, N, gl.SliceLayout(0, layout)))
    acc = gl.maximum(acc + added[None, :], 0.0)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c_smem.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(pendings=0)


@gluon.jit
def specialised(a_desc, b_desc, c_desc, bias, STAGES: gl.constexpr, num_warps: gl.constexpr):
    """Multiply matrices, add a bias and cut at zero: one partition loads, another multiplies."""
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    row = gl.program_id(0) * c_desc.block_type.shape[0]
    column = gl.program_id(1) * c_desc.block_type.shape[1]
    gl.warp_specialize(
        [
            (consume, (a_desc, c_desc, bias, a_smem, b_smem, ready, free, row, column, STAGES, num_warps)),
            (produce, (a_desc, b_desc, a_smem, b_smem, ready, free, row, column, STAGES)),
        ],
        [1],
        [24],
    )


@gluon.jit
def small_product(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, WIDTH: gl.constexpr, num_warps: gl.constexpr):
    """Multiply by mma.sync, whose operands come from registers."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [num_warps, 1], [16, 8])
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [num_warps, 1], [1, 0])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, WIDTH)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, WIDTH)
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))
    inner = gl.arange(0, K, gl.SliceLayout(0, plain))
    x = gl.load(a + rows[:, None] * K + inner[None, :])
    rows = gl.arange(0, K, gl.SliceLayout(1, plain))
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))
    y = gl.load(b + rows[:, None] * N + columns[None, :])
    acc = gl.zeros((M, N), gl.float32, layout)
    acc = mma_v2(gl.convert_layout(x, left), gl.convert_layout(y, right), acc)
    rows = gl.arange(0, M, gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(c + rows[:, None] * N + columns[None, :], acc)


@gluon.jit
def softmax(x, out, N: gl.constexpr, num_warps: gl.constexpr):
    """Normalise rows, each spread over lanes and warps."""
    layout: gl.constexpr = gl.BlockedLayout([2, 2], [2, 16], [1, num_warps], [1, 0])
    rows = gl.program_id(0) * 4 + gl.arange(0, 4, gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, gl.SliceLayout(0, layout))
    values = gl.load(x + rows[:, None] * N + columns[None, :])
    largest = gl.max(values, 1)
    powers = gl.exp2((values - largest[:, None]) * 1.4426950408889634)
    total = gl.sum(powers, 1)
    gl.store(out + rows[:, None] * N + columns[None, :], powers / total[:, None])


@gluon.jit
def attention(q_desc, k_desc, v_desc, o_desc, scale, STEPS: gl.constexpr, num_warps: gl.constexpr):
    """Attend: one tile of queries to STEPS tiles of keys, the probabilities multiplied from registers."""
    M: gl.constexpr = q_desc.block_type.shape[0]
    D: gl.constexpr = q_desc.block_type.shape[1]
    N: gl.constexpr = k_desc.block_type.shape[0]
    q_smem = gl.allocate_shared_memory(q_desc.dtype, q_desc.block_type.shape, q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, k_desc.block_type.shape, k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, v_desc.block_type.shape, v_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, q_desc.block_type.nbytes)
    first = gl.program_id(0) * M
    tma.async_load(q_desc, [first, 0], ready, q_smem)
    mbarrier.wait(ready, 0)
    phase = 1
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    acc = gl.zeros((M, D), gl.float32, o_layout)
    largest = gl.full((M,), float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
    total = gl.zeros((M,), gl.float32, gl.SliceLayout(1, s_layout))
    for step in range(STEPS):
        mbarrier.expect(ready, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
        tma.async_load(k_desc, [step * N, 0], ready, k_smem)
        tma.async_load(v_desc, [step * N, 0], ready, v_smem)
        mbarrier.wait(ready, phase)
        phase ^= 1
        scores = gl.zeros((M, N), gl.float32, s_layout)
        scores = warpgroup_mma(q_smem, k_smem.permute((1, 0)), scores, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        scores = scores * scale
        new = gl.maximum(largest, gl.max(scores, 1))
        powers = gl.exp2(scores - new[:, None])
        shrink = gl.exp2(largest - new)
        total = total * shrink + gl.sum(powers, 1)
        acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, o_layout))[:, None]
        p = gl.convert_layout(powers.to(q_desc.dtype), p_layout)
        acc = warpgroup_mma(p, v_smem, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        largest = new
    acc = acc / gl.convert_layout(total, gl.SliceLayout(1, o_layout))[:, None]
    o_smem = gl.allocate_shared_memory(o_desc.dtype, o_desc.block_type.shape, o_desc.layout)
    o_smem.store(acc.to(o_desc.dtype))
    fence_async_shared()
    tma.async_store(o_desc, [first, 0], o_smem)
    tma.store_wait(0)


@gluon.jit
def cluster_softmax(x, out, N: gl.constexpr, CLUSTER: gl.constexpr, num_warps: gl.constexpr):
    """Normalise four rows, each spread over the CTAs of a cluster."""
    layout: gl.constexpr = gl.BlockedLayout([2, 2], [2, 16], [1, num_warps], [1, 0], CLUSTER)
    rows = gl.program_id(0) * 4 + gl.arange(0, 4, gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, gl.SliceLayout(0, layout))
    values = gl.load(x + rows[:, None] * N + columns[None, :])
    powers = gl.exp2(values - gl.max(values, 1)[:, None])
    gl.store(out + rows[:, None] * N + columns[None, :], powers / gl.sum(powers, 1)[:, None])


@gluon.jit
def cluster_transpose(x, out, M: gl.constexpr, N: gl.constexpr, BY_ROWS: gl.constexpr, BY_COLUMNS: gl.constexpr, num_warps: gl.constexpr):
    """Transpose a matrix of which each CTA of a cluster loads rows and stores columns."""
    row_major: gl.constexpr = gl.BlockedLayout([1, 2], [4, 8], [num_warps, 1], [1, 0], BY_ROWS)
    column_major: gl.constexpr = gl.BlockedLayout([2, 1], [8, 4], [1, num_warps], [0, 1], BY_COLUMNS)
    rows = gl.arange(0, M, gl.SliceLayout(1, row_major))
    columns = gl.arange(0, N, gl.SliceLayout(0, row_major))
    values = gl.convert_layout(gl.load(x + rows[:, None] * N + columns[None, :]), column_major)
    rows = gl.arange(0, M, gl.SliceLayout(1, column_major))
    columns = gl.arange(0, N, gl.SliceLayout(0, column_major))
    gl.store(out + columns[None, :] * M + rows[:, None], values)


@gluon.jit
def cluster_product(a_desc, b_desc, c_desc, STEPS: gl.constexpr, CLUSTER: gl.constexpr, COLUMNS: gl.constexpr, num_warps: gl.constexpr):
    """Multiply by wgmma in each CTA of a cluster, whose operands the TMA multicasts: a buffer for each step."""
    M: gl.constexpr = a_desc.block_type.shape[0]
    K: gl.constexpr = a_desc.block_type.shape[1]
    N: gl.constexpr = b_desc.block_type.shape[1]
    a = gl.allocate_shared_memory(a_desc.dtype, [STEPS, M, K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STEPS, K, N], b_desc.layout)
    ready = mbarrier.allocate_mbarrier(batch=STEPS)
    for step in gl.static_range(STEPS):
        mbarrier.init(ready.index(step), count=1)
    for step in gl.static_range(STEPS):
        mbarrier.expect(ready.index(step), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [gl.program_id(0) * M, step * K], ready.index(step), a.index(step), multicast=True)
        tma.async_load(b_desc, [step * K, 0], ready.index(step), b.index(step), multicast=True)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, COLUMNS, 16], CLUSTER)
    acc = gl.zeros((M, N), gl.float32, layout)
    for step in gl.static_range(STEPS):
        mbarrier.wait(ready.index(step), 0)
        acc = warpgroup_mma(a.index(step), b.index(step), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [gl.program_id(0) * M, 0], c)
    tma.store_wait(0)
