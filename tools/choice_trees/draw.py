"""Draw products to ask about: of layers, of random sizes aligned or not, deep ones, vectors; a seed draws the same again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 20_000  # products of a seed
_BF16, _F16, _E4M3, _F32 = 14, 2, 28, 0  # cudaDataType_t
_COMPUTE_F16, _COMPUTE_F32, _COMPUTE_TF32 = 64, 68, 77  # cublasComputeType_t
_COMPUTE_TYPE = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
_PLAIN, _BIASED = 32 << 20, 1 << 20  # bytes of workspace that PyTorch lends


class Kind(NamedTuple):
    """Products that a tree is about: types by the numbers of cuBLASLt, bytes of workspace, a mask of reductions (0: all), and more."""

    dtype: int
    result: int
    compute: int = _COMPUTE_F32
    scale: int = _F32
    workspace: int = _PLAIN
    reductions: int = 0
    bias: bool = False
    scales: bool = False
    fast: bool = False
    stack: bool = False


KINDS = {
    "bf16": Kind(_BF16, _BF16),
    "f16": Kind(_F16, _F16),
    "tf32": Kind(_F32, _F32, _COMPUTE_TF32),
    "f32": Kind(_F32, _F32),
    "e4m3": Kind(_E4M3, _BF16, workspace=_BIASED, scales=True),
    "e4m3_fast": Kind(_E4M3, _BF16, workspace=_BIASED, scales=True, fast=True),
    "e4m3_bias": Kind(_E4M3, _BF16, workspace=_BIASED, scales=True, bias=True),
}
KINDS |= {f"{name}_bias": KINDS[name]._replace(bias=True, workspace=_BIASED) for name in ("bf16", "f16", "tf32", "f32")}
KINDS |= {f"{name}_stack": KINDS[name]._replace(stack=True) for name in ("bf16", "f16", "tf32", "f32")}
# as `torch.backends.cuda.matmul` asks with allow_fp16_accumulation, and without reductions in reduced precision
KINDS |= {
    name.replace("f16", "f16acc"): KINDS[name]._replace(compute=_COMPUTE_F16, scale=_F16) for name in ("f16", "f16_bias", "f16_stack")
}
KINDS |= {
    f"{fmt}_wide{end}": KINDS[fmt + end]._replace(reductions=_COMPUTE_TYPE) for fmt in ("bf16", "f16") for end in ("", "_bias", "_stack")
}
_SHARES = {"any": 0.30, "decode": 0.18, "prefill": 0.17, "vector": 0.10, "small": 0.13, "deep": 0.12}
_HIDDEN = np.array([64, 96, 128, 192, 256, 320, 384, 448, 512, 576, 640, 768, 896, 1024, 1152, 1280, 1344, 1408, 1536, 1600, 1664, 1792])
_MODELS = np.concatenate([_HIDDEN, np.arange(2048, 32769, 128), [36864, 49152, 50257, 50272, 51200, 65024, 100352, 128256, 151936, 256000]])


def _sizes(rng: np.random.Generator, count: int, least: int, most: int) -> NDArray[np.int64]:
    """Draw log-uniform sizes in multiples of 1 to 256."""
    drawn, step = np.exp(rng.uniform(np.log(least), np.log(most), count)), 1 << rng.integers(0, 9, count)
    whole = np.maximum((drawn / step).astype(np.int64), 1) * step
    return np.where(whole > most, np.maximum(drawn.astype(np.int64), 1), whole)


def _layers(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw dimensions of layers, some of them split over 2, 4 or 8 GPUs."""
    whole, over = rng.choice(_MODELS, count), 1 << rng.choice(4, count, p=[0.6, 0.16, 0.14, 0.1])
    step = 1 << rng.integers(4, 9, count)
    others = np.maximum((np.exp(rng.uniform(np.log(64), np.log(30000), count)) / step).astype(np.int64), 1) * step
    return np.where(rng.random(count) < 0.5, np.where(whole % (over * 8) == 0, whole // over, whole), others)


def draw(name: str, seed: int, count: int = BLOCK) -> NDArray[np.int32]:
    """Draw products of a kind.

    Returns
    -------
    (count, 5) array
        As `fastmma.products.cublas.features.measure` takes them.
    """
    rng = np.random.Generator(np.random.PCG64([seed, *name.encode()]))
    group = rng.choice(list(_SHARES), count, p=list(_SHARES.values()))
    m, n, k = (_sizes(rng, count, 1, 20480) for _ in range(3))
    layout = rng.choice(4, count)
    layer = (group == "decode") | (group == "prefill")
    rows = np.where(rng.random(count) < 0.5, _sizes(rng, count, 129, 16384), 1 << rng.integers(7, 15, count))
    m = np.where(group == "decode", rng.integers(1, 129, count), np.where(group == "prefill", rows, m))
    n, k = np.where(layer, _layers(rng, count), n), np.where(layer, _layers(rng, count), k)
    layout = np.where(layer, rng.choice(4, count, p=[0.22, 0.66, 0.10, 0.02]), layout)
    first, other = rng.random(count) < 0.5, _sizes(rng, count, 1, 65536)
    m = np.where(group == "vector", np.where(first, 1, other), m)
    n = np.where(group == "vector", np.where(first, other, 1), n)
    m, n, k = (np.where(group == "small", np.exp(rng.uniform(0, np.log(4097), count)).astype(np.int64), size) for size in (m, n, k))
    m, n = (np.where(group == "deep", _sizes(rng, count, 1, 1024), size) for size in (m, n))
    k = np.where(group == "deep", _sizes(rng, count, 2048, 262144), k)
    stack: NDArray[Any] = np.ones(count, np.int64)
    if KINDS[name].stack:
        stack = 1 + np.exp(rng.uniform(0, np.log(512), count)).astype(np.int64)
        m, n, k = np.minimum(m, 4096), np.minimum(n, 4096), np.minimum(k, 16384)
    if KINDS[name].scales:
        layout, n, k = np.ones(count, np.int64), -(-n // 16) * 16, -(-k // 16) * 16
    return np.stack([layout, m, n, k, stack], 1).astype(np.int32)
