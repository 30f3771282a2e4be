"""Kernels in the form of Triton's tutorials run unchanged, and compute what torch does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from fastmma.triton import Report, interpret  # noqa: E402


def drawn(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def kinds(report: Report) -> set[str]:
    return {operation for operation, _ in report.passed}


# fused softmax


@triton.jit
def softmax_kernel(out, source, source_stride, out_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        offsets = tl.arange(0, BLOCK_SIZE)
        mask = offsets < n_cols
        values = tl.load(source + row * source_stride + offsets, mask=mask, other=-float("inf"))
        numerator = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(x: Any) -> Any:
    device = triton.runtime.driver.active.get_active_torch_device()
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    y = torch.empty_like(x)
    kernel = softmax_kernel.warmup(y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK_SIZE=block, num_stages=2, num_warps=8, grid=(1,))
    kernel._init_handles()
    occupancy = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * 8)
    occupancy = min(occupancy, properties["max_shared_mem"] // kernel.metadata.shared)
    programs = min(properties["multiprocessor_count"] * occupancy, n_rows)
    kernel[(programs, 1, 1)](y, x, x.stride(0), y.stride(0), n_rows, n_cols, block, 2)
    return y


def test_softmax() -> None:
    x = drawn(23, 77)
    with interpret("H100") as report:
        y = softmax(x)
    torch.testing.assert_close(y, torch.softmax(x, 1))
    assert "tl.dot" not in str(report)


# matrix multiplication


def configurations() -> list[Any]:
    return [
        triton.Config({"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}, num_stages=3, num_warps=4),
        triton.Config({"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}, num_stages=4, num_warps=2),
    ]


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0)
    tl.assume(stride_am > 0)
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(tl.float16)
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e5m2])
def test_matmul(dtype: Any) -> None:
    a, b = drawn(100, 72, dtype=dtype), drawn(60, 72, seed=1, dtype=dtype).T
    c = torch.empty((100, 60), dtype=torch.float16)

    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(100, meta["BLOCK_SIZE_M"]) * triton.cdiv(60, meta["BLOCK_SIZE_N"]),)

    with interpret("H100") as report:
        matmul_kernel[grid](a, b, c, 100, 60, 72, *a.stride(), *b.stride(), *c.stride(), ACTIVATION="leaky_relu")
    expected = torch.nn.functional.leaky_relu(a.float() @ b.float(), 0.01)
    torch.testing.assert_close(c.float(), expected, rtol=2e-2, atol=2e-2)
    report.assert_all_emulated()
    assert "m64n32" in str(report)
    assert "compiled" in str(report)


# grouped GEMM


@triton.jit
def grouped_matmul_kernel(
    group_a_ptrs,
    group_b_ptrs,
    group_c_ptrs,
    group_gemm_sizes,
    g_lds,
    group_size,
    NUM_SM: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
):
    tile_idx = tl.program_id(0)
    last_problem_end = 0
    for g in range(group_size):
        gm = tl.load(group_gemm_sizes + g * 3)
        gn = tl.load(group_gemm_sizes + g * 3 + 1)
        gk = tl.load(group_gemm_sizes + g * 3 + 2)
        num_m_tiles = tl.cdiv(gm, BLOCK_SIZE_M)
        num_n_tiles = tl.cdiv(gn, BLOCK_SIZE_N)
        num_tiles = num_m_tiles * num_n_tiles
        while tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
            lda = tl.load(g_lds + g * 3)
            ldb = tl.load(g_lds + g * 3 + 1)
            ldc = tl.load(g_lds + g * 3 + 2)
            a_ptr = tl.load(group_a_ptrs + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(group_b_ptrs + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(group_c_ptrs + g).to(tl.pointer_type(tl.float16))
            tile_idx_in_gemm = tile_idx - last_problem_end
            offs_am = (tile_idx_in_gemm // num_n_tiles) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
            offs_bn = (tile_idx_in_gemm % num_n_tiles) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
            offs_k = tl.arange(0, BLOCK_SIZE_K)
            a_ptrs = a_ptr + offs_am[:, None] * lda + offs_k[None, :]
            b_ptrs = b_ptr + offs_k[:, None] * ldb + offs_bn[None, :]
            accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
            for _ in range(0, tl.cdiv(gk, BLOCK_SIZE_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                accumulator += tl.dot(tl.load(a_ptrs), tl.load(b_ptrs))
                a_ptrs += BLOCK_SIZE_K
                b_ptrs += BLOCK_SIZE_K * ldb
            tl.store(c_ptr + ldc * offs_am[:, None] + offs_bn[None, :], accumulator.to(tl.float16))
            tile_idx += NUM_SM
        last_problem_end = last_problem_end + num_tiles


def test_grouped_gemm() -> None:
    sizes = [(64, 32, 64), (32, 64, 32), (32, 32, 96)]
    a = [drawn(m, k, dtype=torch.float16, seed=m + k) for m, _, k in sizes]
    b = [drawn(k, n, dtype=torch.float16, seed=n + k) for _, n, k in sizes]
    c = [torch.empty((m, n), dtype=torch.float16) for m, n, _ in sizes]
    pointers = [torch.tensor([one.data_ptr() for one in group]) for group in (a, b, c)]
    shapes = torch.tensor(sizes, dtype=torch.int32).flatten()
    strides = torch.tensor([(k, n, n) for _, n, k in sizes], dtype=torch.int32).flatten()
    with interpret("H100") as report:
        grouped_matmul_kernel[(2,)](*pointers, shapes, strides, 3, NUM_SM=2, BLOCK_SIZE_M=32, BLOCK_SIZE_N=32, BLOCK_SIZE_K=32)
    for x, y, z in zip(a, b, c, strict=True):
        torch.testing.assert_close(z.float(), x.float() @ y.float(), rtol=1e-2, atol=1e-2)
    report.assert_all_emulated()


# fused attention


@triton.jit
def attention_inner(
    acc, l_i, m_i, q, k_ptr, v_ptr, start_m, qk_scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGE: tl.constexpr
):
    if STAGE == 1:
        lo, hi = 0, start_m * BM
    else:
        lo, hi = start_m * BM, (start_m + 1) * BM
    offs_m = start_m * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    for start_n in tl.range(lo, hi, BN):
        start_n = tl.multiple_of(start_n, BN)
        k = tl.load(k_ptr + (start_n + offs_n)[None, :] * D + offs_d[:, None])
        qk = tl.dot(q, k)
        if STAGE == 2:
            mask = offs_m[:, None] >= (start_n + offs_n[None, :])
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_ij = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptr + (start_n + offs_n)[:, None] * D + offs_d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        l_i = l_i * alpha + l_ij
        m_i = m_ij
    return acc, l_i, m_i


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, m_ptr, out_ptr, sm_scale, N_CTX, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    start_m = tl.program_id(0)
    offset = tl.program_id(1).to(tl.int64) * N_CTX * D
    offs_m = start_m * BM + tl.arange(0, BM)
    rows = offs_m[:, None] * D + tl.arange(0, D)[None, :]
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    q = tl.load(q_ptr + offset + rows)
    scale = sm_scale * 1.44269504
    acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, k_ptr + offset, v_ptr + offset, start_m, scale, D, BM, BN, 1)
    acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, k_ptr + offset, v_ptr + offset, start_m, scale, D, BM, BN, 2)
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(m_ptr + tl.program_id(1) * N_CTX + offs_m, m_i)
    tl.store(out_ptr + offset + rows, acc.to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention(dtype: Any) -> None:
    heads, length, width = 2, 128, 32
    q, k, v = (drawn(heads, length, width, dtype=dtype, seed=seed) for seed in range(3))
    out, maxima = torch.empty_like(q), torch.empty(heads, length)
    with interpret("H100") as report:
        attention[(length // 64, heads)](q, k, v, maxima, out, 0.5, length, D=width, BM=64, BN=32)
    scores = torch.einsum("hmd,hnd->hmn", q.float(), k.float()) * 0.5
    expected = torch.softmax(scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf), -1) @ v.float()
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)
    assert "wgmma" in str(report)
    assert not report.notes
    assert "tl.dot" not in kinds(report)


# layer norm


@triton.jit
def layer_norm_forward(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        _mean += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    rstd = 1 / tl.sqrt(tl.sum(_var, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        x_hat = (tl.load(X + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        tl.store(Y + cols, x_hat * tl.load(W + cols, mask=mask) + tl.load(B + cols, mask=mask), mask=mask)


@triton.jit
def layer_norm_backward(DX, DY, DW, X, W, Mean, Rstd, Lock, stride, N, GROUPS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < N
    lock_id = row % GROUPS
    Lock += lock_id
    Count = Lock + GROUPS
    DW = DW + lock_id * N + cols
    x = tl.load(X + row * stride + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + row * stride + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    rstd = tl.load(Rstd + row)
    xhat = tl.where(mask, (x - tl.load(Mean + row)) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + row * stride + cols, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm(dtype: Any) -> None:
    x, w, b = drawn(6, 100, dtype=dtype), drawn(100, dtype=dtype, seed=1), drawn(100, dtype=dtype, seed=2)
    y, dx = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = torch.empty(6), torch.empty(6)
    dy, dw, locks = drawn(6, 100, dtype=dtype, seed=3), torch.zeros(2, 100), torch.zeros(4, dtype=torch.int32)
    with interpret("H100") as report:
        layer_norm_forward[(6,)](x, y, w, b, mean, rstd, x.stride(0), 100, 1e-5, BLOCK_SIZE=64, num_warps=2)
        layer_norm_backward[(6,)](dx, dy, dw, x, w, mean, rstd, locks, x.stride(0), 100, GROUPS=2, BLOCK_SIZE=128)
    inputs = [one.float().requires_grad_() for one in (x, w, b)]
    expected = torch.nn.functional.layer_norm(inputs[0], (100,), inputs[1], inputs[2], 1e-5)
    expected.backward(dy.float())
    for actual, wanted in ((y, expected), (dx, inputs[0].grad), (dw.sum(0), inputs[1].grad)):
        torch.testing.assert_close(actual.float(), wanted, rtol=2e-2, atol=2e-2)
    assert report.emulated["+", "fused multiply-add"] > 0


def test_the_reference_of_layer_norm_on_a_cpu_is_outside_its_own_tolerance() -> None:
    rows, columns = 1151, 64
    x, w, grad = drawn(rows, columns, dtype=torch.float16), drawn(columns, seed=1, dtype=torch.float16), 0.1 * drawn(rows, columns, seed=2)

    def of_weights(dtype: Any) -> Any:
        weights = w.to(dtype).detach().requires_grad_()
        torch.nn.functional.layer_norm(x.to(dtype) / 2 - 2.3, (columns,), weights).backward(grad.half().to(dtype))
        return weights.grad.double()

    exact = of_weights(torch.float64)
    assert (of_weights(torch.float16) - exact).abs().max() > 1e-2
    assert (of_weights(torch.float32) - exact).abs().max() < 1e-4
