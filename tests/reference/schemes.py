"""Schemes and rules typed from the specifications, and whole arrays quantised by `quantisation`, block by block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.scaling import ScaledArray
from reference import quantisation as exact

# scheme: element, extents of a block along the axis, across it and elsewhere (0: the whole), rules; typed from the specifications
MX = ("floor", "ceil", "rceil", "even")
POWERS = ("rceil", "floor", "ceil", "even")
FLOAT = ("amax", "deepgemm", "te")
EXPECTED = {
    "mxfp8_e4m3": ("e4m3", (32, 1, 1), MX),
    "mxfp8_e5m2": ("e5m2", (32, 1, 1), MX),
    "mxfp6_e3m2": ("e3m2", (32, 1, 1), MX),
    "mxfp6_e2m3": ("e2m3", (32, 1, 1), MX),
    "mxfp4": ("e2m1", (32, 1, 1), MX),
    "nvfp4": ("e2m1", (16, 1, 1), ("amax", "torchao", "te")),
    "nvfp4_16x16": ("e2m1", (16, 16, 1), ("amax", "torchao", "te")),
    "fp8_tensor": ("e4m3", (0, 0, 0), FLOAT),
    "fp8_tensor_e5m2": ("e5m2", (0, 0, 0), FLOAT),
    "fp8_row": ("e4m3", (0, 1, 1), FLOAT),
    "fp8_row_e5m2": ("e5m2", (0, 1, 1), FLOAT),
    "fp8_tensor_e4m3fnuz": ("e4m3fnuz", (0, 0, 0), FLOAT),
    "fp8_tensor_e5m2fnuz": ("e5m2fnuz", (0, 0, 0), FLOAT),
    "fp8_row_e4m3fnuz": ("e4m3fnuz", (0, 1, 1), FLOAT),
    "fp8_row_e5m2fnuz": ("e5m2fnuz", (0, 1, 1), FLOAT),
    "fp8_1x128": ("e4m3", (128, 1, 1), FLOAT),
    "fp8_1x128_e5m2": ("e5m2", (128, 1, 1), FLOAT),
    "fp8_128x128": ("e4m3", (128, 128, 1), FLOAT),
    "fp8_128x128_e5m2": ("e5m2", (128, 128, 1), FLOAT),
    "fp8_1x128_ue8m0": ("e4m3", (128, 1, 1), POWERS),
    "fp8_128x128_ue8m0": ("e4m3", (128, 128, 1), POWERS),
    "int8_row": ("s8", (0, 1, 1), ("amax",)),
}
PAIRS = [(scheme, rule) for scheme, (_, _, rules) in EXPECTED.items() for rule in rules]
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
RNG = np.random.default_rng(20)


def blocks(shape: tuple[int, ...], scheme: str, axis: int) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """The place of each scale, and the part of the array that it serves."""
    along, across, rest = EXPECTED[scheme][1]
    axis %= len(shape)
    other = max((d for d in range(len(shape)) if d != axis), default=-1)
    sizes = [(along if d == axis else across if d == other else rest) or max(extent, 1) for d, extent in enumerate(shape)]
    counts = [-(-extent // size) for extent, size in zip(shape, sizes, strict=True)]
    for place in itertools.product(*map(range, counts)):
        yield place, tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, sizes, strict=True))


def slowly(
    x: NDArray, scheme: str, axis: int, rule: str, rounding: str = "nearest", seed: int = 0
) -> tuple[NDArray, NDArray, float | None]:
    """Codes of elements, scales (codes of one byte, or float32), and the global scale."""
    element, _, _ = EXPECTED[scheme]
    p = exact.F64 if x.dtype == np.float64 else exact.F32
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = x.astype(np.float64)
    codes, places = np.empty(x.shape, np.uint8), np.arange(x.size).reshape(x.shape)
    scales: dict[tuple[int, ...], float] = {}
    overall = None
    if scheme.startswith("nvfp4"):
        overall = exact.nvfp4_global(wide.ravel().tolist(), rule, p)
    for place, part in blocks(x.shape, scheme, axis):
        block = wide[part].ravel().tolist()
        ready: Callable[[float], float] | None = None
        if rule in MX:
            scale: float = exact.mx_scale(block, element, rule)
        elif overall is not None:
            scale, ready = exact.nvfp4_block(block, overall, rule, p)
        else:
            scale, ready = exact.float_block(block, element, rule, p)
        scales[place] = scale
        found = []
        for value, index in zip(block, places[part].ravel().tolist(), strict=True):
            random = exact.splitmix64(seed, index) if rounding == "stochastic" else 0
            if ready is None:
                found.append(exact.mx_element(value, int(scale), element, rounding, random))
            else:
                found.append(exact.code_of(ready(value), element, rounding, random))
        codes[part] = np.array(found, np.uint8).reshape(codes[part].shape)
    last = max(scales, default=(-1,) * x.ndim)
    table = np.array(list(scales.values()), np.float32 if rule in FLOAT and overall is None else np.uint8)
    stored = None if overall is None else p.div(1.0, overall) if rule == "te" else overall
    return codes, table.reshape([i + 1 for i in last]), None if stored is None else exact.to_f32(stored)


def agree(q: ScaledArray, wanted: tuple[NDArray, NDArray, float | None]) -> None:
    codes, scales, overall = wanted
    # the codes of floats with fewer than 8 bits are the whole byte
    assert np.array_equal(q.elements.view(np.uint8), codes)
    got = q.scales if scales.dtype == np.float32 else q.scales.view(np.uint8)
    assert np.array_equal(got, scales, equal_nan=scales.dtype == np.float32)
    assert q.global_scale == overall or (overall is not None and math.isnan(overall) and np.isnan(q.global_scale))


def adversarial(shape: tuple[int, ...], dtype: type, kind: str) -> NDArray:
    """Ordinary, widely spread, tied, tiny and huge numbers."""
    info = ml_dtypes.finfo(dtype)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    if kind == "normal":
        x = RNG.standard_normal(shape)
    elif kind == "spread":
        x = RNG.standard_normal(shape) * np.exp2(RNG.integers(-12, 12, shape))
    elif kind == "ties":
        x = RNG.integers(-255, 256, shape) * np.exp2(RNG.integers(-7, 1, shape))
    elif kind == "tiny":
        x = RNG.integers(-300, 301, shape) * np.exp2(RNG.integers(0, 14, shape)) * float(info.smallest_subnormal)
    else:  # any finite bits
        raw = RNG.integers(0, 1 << (8 * bits.itemsize), shape, dtype=np.uint64).astype(bits).view(dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return np.where(np.isfinite(raw), raw, dtype(0)).astype(dtype)
    return x.astype(dtype)
