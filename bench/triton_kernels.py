"""Triton kernels for measurements: a product, softmax, layer norm and attention, with the launches that are timed."""

# ruff: noqa: N803 - the names of kernels

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn, rk = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        acc += tl.dot(x, tl.load(b + (k + rk)[:, None] * N + rn[None, :]))
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    inside = columns < n
    values = tl.load(x + tl.program_id(0) * n + columns, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + tl.program_id(0) * n + columns, powers / tl.sum(powers, 0), mask=inside)


@triton.jit
def layer_norm(x, y, w, b, n, eps, B: tl.constexpr):
    columns = tl.arange(0, B)
    inside = columns < n
    values = tl.load(x + tl.program_id(0) * n + columns, mask=inside, other=0.0)
    rest = tl.where(inside, values - tl.sum(values, 0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(rest * rest, 0) / n + eps)
    result = rest * scale * tl.load(w + columns, mask=inside) + tl.load(b + columns, mask=inside)
    tl.store(y + tl.program_id(0) * n + columns, result, mask=inside)


@triton.jit
def attention(q, k, v, out, scale, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    start = tl.program_id(1) * T * D
    rm, rn, rd = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + start + rm[:, None] * D + rd[None, :])
    largest, total, acc = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for j in range(0, T, BN):
        keys = tl.load(k + start + (j + rn)[:, None] * D + rd[None, :])
        values = tl.load(v + start + (j + rn)[:, None] * D + rd[None, :])
        scores = tl.dot(queries, tl.trans(keys)) * scale
        larger = tl.maximum(largest, tl.max(scores, 1))
        powers, factor = tl.exp2(scores - larger[:, None]), tl.exp2(largest - larger)
        total = total * factor + tl.sum(powers, 1)
        acc = tl.dot(powers.to(values.dtype), values, acc * factor[:, None])
        largest = larger
    tl.store(out + start + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(out.dtype.element_ty))


def launches() -> dict[str, Callable[[], object]]:
    """The launches, by name."""
    generator = torch.Generator().manual_seed(1)
    a, b, c = (torch.randn(256, 256, generator=generator).bfloat16() for _ in range(3))
    x, y, w = (torch.randn(rows, 1000, generator=generator) for rows in (64, 64, 1))
    q, k, v, out = (torch.randn(4, 256, 64, generator=generator).half() for _ in range(4))
    return {
        "product, 256 x 256 x 256, bf16": lambda: matmul[4, 4](a, b, c, 256, 256, 64, 64, 64),
        "softmax, 64 rows of 1000": lambda: softmax[64,](x, y, 1000, 1024),
        "layer norm, 64 rows of 1000": lambda: layer_norm[64,](x, y, w, w, 1000, 1e-5, 1024),
        "attention, 4 heads, 256 x 64, f16": lambda: attention[4, 4](q, k, v, out, 0.18, 256, 64, 64, 64),
    }
