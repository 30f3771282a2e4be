"""The SIMD vectors of the kernels against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from fastmma.kernels.llvm import simd

LANES = 16


def address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def values(dtype: Any, seed: int, lanes: int = LANES) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.floating):
        return rng.choice([0.0, -0.0, 1.0, -1.5, 3.25, np.inf, -np.inf, np.nan, 1e-40, 7.0], lanes).astype(dtype)
    limits = np.iinfo(dtype)
    return np.where(
        rng.random(lanes) < 0.3, rng.integers(-3 if limits.min else 0, 4, lanes), rng.integers(limits.min, limits.max, lanes)
    ).astype(dtype)


def bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


@njit
def conversions(x: Any, out: Any, source: Any, target: Any) -> None:
    simd.store(simd.convert(simd.load(x, source, LANES), target), out)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.uint8, np.int32), (np.int8, np.int32), (np.int32, np.int16), (np.int32, np.int32), (np.int64, np.int32), (np.uint32, np.int64),
        (np.int32, np.float32), (np.uint32, np.float32), (np.int32, np.float64), (np.float32, np.float64), (np.float64, np.float32),
    ],
)  # fmt: skip
def test_conversions(source: Any, target: Any) -> None:
    x = values(source, 7)
    out = np.zeros(LANES, target)
    conversions(address(x), address(out), source, target)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, x.astype(target))


@njit
def to_integers(x: Any, out: Any, wide: Any, y: Any) -> None:
    simd.store(simd.integer_part(simd.load(x, np.float32, LANES)), out)
    simd.store(simd.convert(simd.load(x, np.float32, LANES), np.int32), out + 4 * LANES)
    simd.store(simd.integer_part(simd.load(y, np.float64, LANES)), wide)
    simd.store(simd.truncated(simd.load(y, np.float64, LANES)), wide + 8 * LANES)


def test_truncation() -> None:
    x = np.array(
        [0.0, -0.0, 0.99, -0.99, 1.5, -1.5, 2.0**30, -(2.0**30), 2147483520.0, -2147483648.0, 5e-39, 7.9, 8.0, -8.1, 3.0, -3.0], np.float32
    )
    y = np.concatenate([x[:12].astype(np.float64), [np.inf, -np.inf, 1e300, 0.5 - 2**-54]])
    out, wide = np.zeros((2, LANES), np.int32), np.zeros((2, LANES))
    to_integers(address(x), address(out), address(wide), address(y))
    np.testing.assert_array_equal(out, np.stack([x.astype(np.int32)] * 2))
    np.testing.assert_array_equal(bits(wide), bits(np.stack([np.trunc(y)] * 2)))


@njit
def multiply_add(x: Any, out: Any, a: float, b: float, c: float) -> float:
    v = simd.load(x, np.float64, 8)
    simd.store(simd.fma(v, v, -1.0), out)
    return simd.fma(a, b, c)


def test_fma_rounds_once() -> None:
    x = 1 + np.arange(8) * 2.0**-30
    out = np.zeros(8)
    assert multiply_add(address(x), address(out), 1 + 2.0**-30, 1 - 2.0**-30, -1.0) == -(2.0**-60)
    np.testing.assert_array_equal(out, np.arange(8) * 2.0**-29 + np.arange(8) ** 2 * 2.0**-60)


@njit
def picked(start: Any, stride: int, itemsize: int, count: int) -> Any:
    if itemsize == 2:
        total = np.int64(simd.load_scalar(start, np.uint16))
        total += np.int64(simd.load_scalar(start + (stride if count > 1 else 0), np.uint16))
        return total + np.int64(simd.load_scalar(start + (2 * stride if count > 2 else 0), np.uint16))
    total = np.int64(simd.load_scalar(start, np.uint8))
    total += np.int64(simd.load_scalar(start + (stride if count > 1 else 0), np.uint8))
    return total + np.int64(simd.load_scalar(start + (2 * stride if count > 2 else 0), np.uint8))


@njit
def two_picked(start: Any, stride: int, itemsize: int, count: int) -> Any:
    return picked(start, stride, itemsize, min(count, 2))


@pytest.mark.parametrize("itemsize", [1, 2])
def test_an_offset_that_becomes_zero_keeps_the_access(itemsize: int) -> None:
    x = np.arange(5, 15)
    # compiled first, so that it is inlined in the form in which it went to the code generator
    assert picked(address(x), 8, itemsize, 3) == 18
    assert two_picked(address(x), 8, itemsize, 9) == 16
