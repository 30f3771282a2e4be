"""Kernels that run here and on a GPU: `run(device, record)` calls ``record(name, tensor)`` for each result, of the same inputs.

``python recorded_kernels.py FILE`` on a machine with an H100 or H200 writes the recording that test_triton_recordings.py replays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, d, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr, ACC: tl.constexpr, IM: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    tile = rm[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=ACC)
    if HOW == "start":
        acc = tl.load(c + tile).to(ACC)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        if HOW == "add":
            acc += tl.dot(x, y, out_dtype=ACC, max_num_imprecise_acc=IM)
        elif HOW == "decay":
            acc = acc * 0.7
            acc += tl.dot(x, y, out_dtype=ACC, max_num_imprecise_acc=IM)
        elif HOW == "scale":
            acc += tl.dot(x, y, out_dtype=ACC, max_num_imprecise_acc=IM) * 1.3
        elif HOW == "minus":
            acc = acc - tl.dot(x, y, out_dtype=ACC, max_num_imprecise_acc=IM)
        elif HOW == "two":
            acc += tl.dot(x, y, out_dtype=ACC) + tl.dot(x + x, y * y, out_dtype=ACC)
        elif HOW == "again":
            p = tl.dot(x, y, out_dtype=ACC)
            acc += p
            acc += tl.abs(p)
        elif HOW == "ieee":
            acc = tl.dot(x, y, acc, input_precision="ieee")
        else:
            acc = tl.dot(x, y, acc, out_dtype=ACC, max_num_imprecise_acc=IM)
    if HOW == "after":
        acc = acc + tl.load(c + tile)
    if HOW == "axpby":
        acc = 0.3 * acc + 0.7 * tl.load(c + tile)
    tl.store(d + tile, acc.to(d.dtype.element_ty))


@triton.jit
def dequantised(a, b, s, d, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :]).to(x.dtype) * tl.load(s + rn)[None, :]
        acc = tl.dot(x, y, acc)
    tl.store(d + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def batched(a, b, d, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rb = tl.arange(0, B)[:, None, None]
    rm = tl.arange(0, M)
    rn = tl.arange(0, N)
    rk = tl.arange(0, K)
    x = tl.load(a + rb * M * K + rm[None, :, None] * K + rk[None, None, :])
    y = tl.load(b + rb * K * N + rk[None, :, None] * N + rn[None, None, :])
    tl.store(d + rb * M * N + rm[None, :, None] * N + rn[None, None, :], tl.dot(x, y))


@triton.jit
def transposed(a, b, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rm = tl.arange(0, M)
    rn = tl.arange(0, N)
    rk = tl.arange(0, K)
    x = tl.load(a + rk[:, None] * M + rm[None, :])
    y = tl.load(b + rn[:, None] * K + rk[None, :])
    tl.store(d + rm[:, None] * N + rn[None, :], tl.dot(tl.trans(x), y.T))


@triton.jit
def scaled(
    a, b, s, t, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, SA: tl.constexpr, SB: tl.constexpr
):
    PA: tl.constexpr = 2 if FA == "e2m1" else 1
    PB: tl.constexpr = 2 if FB == "e2m1" else 1
    rm = tl.arange(0, M)
    rn = tl.arange(0, N)
    rg = tl.arange(0, K // 32)
    ra = tl.arange(0, K // PA)
    rb = tl.arange(0, K // PB)
    x = tl.load(a + rm[:, None] * (K // PA) + ra[None, :])
    y = tl.load(b + rb[:, None] * N + rn[None, :])
    u = None
    v = None
    if SA:
        u = tl.load(s + rm[:, None] * (K // 32) + rg[None, :])
    if SB:
        v = tl.load(t + rn[:, None] * (K // 32) + rg[None, :])
    tl.store(d + rm[:, None] * N + rn[None, :], tl.dot_scaled(x, u, FA, y, v, FB))


@triton.jit
def reduced(a, d, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    x = tl.load(a + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if AXIS == 1:
        tl.store(d + tl.arange(0, M), tl.sum(x, 1))
    else:
        tl.store(d + tl.arange(0, N), tl.sum(x, 0))


@triton.jit
def total(a, d, N: tl.constexpr):
    tl.store(d + tl.program_id(0), tl.sum(tl.load(a + tl.program_id(0) * N + tl.arange(0, N)), 0))


@triton.jit
def dot_reduced(a, b, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    x = tl.load(a + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    y = tl.load(b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    if AXIS == 1:
        tl.store(d + tl.arange(0, M), tl.sum(tl.dot(x, y), 1))
    else:
        tl.store(d + tl.arange(0, N), tl.sum(tl.dot(x, y), 0))


B, H, F, E, G, S = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
NAMES = {B: "bf16", H: "f16", F: "f32", E: "e4m3", G: "e5m2", S: "s8"}


def inputs(seed: int, device: str) -> Callable[..., Any]:
    """Draws tensors: sums of integers, so that they are the same everywhere."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int, dtype: Any, codes: int = 0) -> Any:
        if codes:
            return torch.from_numpy(rng.integers(0, codes, shape).astype("u1")).to(device)
        values = torch.from_numpy((rng.integers(-(2**20), 2**20, (3, *shape)).sum(0) / 2**20).astype("f4"))
        return ((values * 40).to(dtype) if dtype == S else values.to(dtype)).to(device)

    return draw


def matmuls() -> Iterator[tuple[Any, Any, int, int, int, int, str, Any, int | None, int]]:
    """Types of a and b, block M, N, K, K, how sums start, their type, max_num_imprecise_acc, warps."""
    for how in ("dot", "start", "add", "decay", "scale", "minus", "two", "after", "axpby", "again"):
        for m, n, warps in ((64, 32, 4), (32, 128, 4), (128, 16, 8), (16, 64, 1)):
            for dtype in (B, H) if how in ("again", "two") else (B, H, F):
                yield dtype, dtype, m, n, 32, 192, how, tl.float32, None, warps
    for how in ("dot", "add", "scale"):
        for m, n, warps in ((64, 128, 4), (16, 32, 2), (128, 64, 8)):
            for pair in ((E, E), (G, G), (E, G), (G, E)):
                for imprecise in (None, 0, 32, 64):
                    yield *pair, m, n, 64, 320, how, tl.float32, imprecise, warps
    for m, n, warps in ((64, 64, 4), (32, 16, 4), (128, 32, 4)):
        for how in ("dot", "add", "start"):
            yield H, H, m, n, 64, 256, how, tl.float16, None, warps
        yield S, S, m, n, 128, 384, "dot", tl.int32, None, warps
        yield F, F, m, n, 32, 96, "ieee", tl.float32, None, warps


def run(device: str, record: Callable[[str, Callable[[], Any]], None], seed: int = 77) -> None:
    """Run all kernels."""
    draw = inputs(seed, device)
    for left, right, m, n, block, k, how, sums, imprecise, warps in matmuls():
        a, b = draw(2 * m, k, dtype=left), draw(k, 2 * n, dtype=right)
        c = draw(2 * m, 2 * n, dtype=F)
        out = torch.int32 if left == S else H if sums == tl.float16 else F

        def product(a=a, b=b, c=c, out=out, m=m, n=n, block=block, k=k, how=how, sums=sums, imprecise=imprecise, warps=warps):
            d = torch.empty(c.shape, dtype=out, device=device)
            matmul[(2, 2)](a, b, c, d, k, 2 * n, m, n, block, how, sums, imprecise, num_warps=warps)
            return d

        record(f"matmul {how} {NAMES[left]} {NAMES[right]} {m} {n} {block} {sums} {imprecise} {warps}", product)
    for narrow in (S, E, G):
        for dtype in (B, H):
            for m in (16, 64):
                a, b, s = draw(m, 128, dtype=dtype), draw(128, 64, dtype=narrow), draw(64, dtype=dtype)

                def weights(a=a, b=b, s=s, m=m):
                    d = torch.empty(m, 64, dtype=F, device=device)
                    dequantised[(1, 1)](a, b, s, d, 128, 64, m, 64, 64)
                    return d

                record(f"dequantised {NAMES[narrow]} {NAMES[dtype]} {m}", weights)
    for dtype in (B, H, F, E):
        for m, n, k in ((16, 32, 64), (64, 32, 32)):
            a, b = draw(4, m, k, dtype=dtype), draw(4, k, n, dtype=dtype)

            def batch(a=a, b=b, m=m, n=n, k=k):
                d = torch.empty(4, m, n, dtype=F, device=device)
                batched[(1,)](a, b, d, 4, m, n, k)
                return d

            record(f"batched {NAMES[dtype]} {m} {n} {k}", batch)

            def turned(a=a, b=b, m=m, n=n, k=k):
                d = torch.empty(m, n, dtype=F, device=device)
                transposed[(1,)](a[0], b[0], d, m, n, k)
                return d

            record(f"transposed {NAMES[dtype]} {m} {n} {k}", turned)
    widths = {"e4m3": (E, 1), "e5m2": (G, 1), "e2m1": (torch.uint8, 2), "bf16": (B, 1), "fp16": (H, 1)}
    for left, right in (
        ("e4m3", "e4m3"),
        ("e5m2", "e4m3"),
        ("e2m1", "e2m1"),
        ("e4m3", "e2m1"),
        ("bf16", "e2m1"),
        ("e2m1", "bf16"),
        ("e4m3", "bf16"),
        ("fp16", "e2m1"),
    ):
        for m in (16, 128):
            (ta, wa), (tb, wb) = widths[left], widths[right]
            a = draw(m, 128 // wa, dtype=ta, codes=256 if wa == 2 else 0)
            b = draw(128 // wb, 64, dtype=tb, codes=256 if wb == 2 else 0)
            s, t = draw(m, 4, dtype=F, codes=17) + 119, draw(64, 4, dtype=F, codes=17) + 119

            def product(a=a, b=b, s=s, t=t, m=m, left=left, right=right):
                d = torch.empty(m, 64, dtype=F, device=device)
                scaled[(1,)](a, b, s, t, d, m, 64, 128, left, right, left[0] == "e", right[0] == "e")
                return d

            record(f"scaled {left} {right} {m}", product)
    for m, n in ((16, 16), (4, 256), (64, 64), (128, 32), (1, 2048)):
        for warps in (1, 4, 8):
            a = draw(m, n, dtype=F)
            for axis in (0, 1):

                def along(a=a, m=m, n=n, axis=axis, warps=warps):
                    d = torch.empty((n, m)[axis], dtype=F, device=device)
                    reduced[(1,)](a, d, m, n, axis, num_warps=warps)
                    return d

                record(f"reduced {m} {n} {warps} {axis}", along)
    for n in (64, 128, 1024, 4096):
        for warps in (1, 4, 8):
            a = draw(16, n, dtype=F)

            def rows(a=a, n=n, warps=warps):
                d = torch.empty(16, dtype=F, device=device)
                total[(16,)](a, d, n, num_warps=warps)
                return d

            record(f"total {n} {warps}", rows)
    for m, n, warps in ((64, 64, 4), (16, 64, 4), (128, 32, 8)):
        a, b = draw(m, 32, dtype=H), draw(32, n, dtype=H)
        for axis in (0, 1):

            def sums(a=a, b=b, m=m, n=n, axis=axis, warps=warps):
                d = torch.empty((n, m)[axis], dtype=F, device=device)
                dot_reduced[(1,)](a, b, d, m, n, 32, axis, num_warps=warps)
                return d

            record(f"dot reduced {m} {n} {warps} {axis}", sums)


def part(index: int, parts: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Every so-manieth result of the GPU, and what its compiler refused."""
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    turn = count()

    def keep(name: str, call: Callable[[], Any]) -> None:
        if next(turn) % parts == index:
            try:
                found[name] = call().cpu().numpy()
            except Exception as error:
                refused[name] = f"{type(error).__name__}: {error}"[:300]

    run("cuda", keep)
    return found, refused


if __name__ == "__main__":
    workers = 12  # compilers, for the kernels take no time
    with get_context("spawn").Pool(workers) as pool:
        results = pool.starmap(part, [(index, workers) for index in range(workers)])
    np.savez_compressed(sys.argv[1], **{name: array for found, _ in results for name, array in found.items()})
    print(torch.cuda.get_device_name(), "Triton", triton.__version__, "refused:", [refused for _, refused in results if refused])
