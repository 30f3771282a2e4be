"""Integer sums that are long enough to wrap, and where they are clamped."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases

from fastmma.kernels.integer import int8

pytestmark = pytest.mark.each_path
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def run(a: Any, b: Any, c: Any, period: int | None = None) -> NDArray[np.int32]:
    """`int8.gemm` into an array that was full of other numbers."""
    out = np.full((a.shape[0], b.shape[1]), 0x5A5A5A5A, np.int32)
    int8.gemm(a, b, c, out, period is not None, period or 32, 2)
    return out


def expected(a: Any, b: Any, c: Any, period: int | None) -> NDArray[np.int32]:
    """``c + a b`` wrapped, or clamped after every `period` elements of k."""
    a, b = a.astype(np.int64), b.astype(np.int64)
    d = np.zeros((len(a), b.shape[1]), np.int64) if c is None else c.astype(np.int64)
    if period is None:
        return (d + a @ b).astype(np.uint64).astype(np.uint32).view(np.int32)
    for k in range(0, a.shape[1], period):
        d = np.clip(d + a[:, k : k + period] @ b[k : k + period], INT_MIN, INT_MAX)
    return d.astype(np.int32)


def test_the_place_of_the_clamp_shows() -> None:
    rng = np.random.default_rng(0)
    signs = rng.choice(np.array([-1, 1]), (23, 40)).repeat(16, 1)
    a = (signs * rng.integers(100, 128, signs.shape)).astype(np.int8)
    b = rng.integers(100, 128, (640, 75)).astype(np.int8)
    c = rng.choice(np.array([INT_MIN, INT_MAX], np.int32), (23, 75))
    results = [run(a, b, c, period) for period in (16, 32, 64, 640)]
    for period, result in zip((16, 32, 64, 640), results, strict=True):
        np.testing.assert_array_equal(result, expected(a, b, c, period))
    assert not any((one == other).all() for one, other in itertools.combinations(results, 2))


@cases(("x", "y"), [(-128, -128), (-128, 127), (255, 255), (255, -128), (-128, 255)])
@cases("period", [None, 64])
def test_sums_past_int32(x: int, y: int, period: int | None) -> None:
    k = 140_003
    a, b = np.full((3, k), x, np.int8 if x < 128 else np.uint8), np.full((k, 9), y, np.int8 if y < 128 else np.uint8)
    a[1, ::3] = 0
    assert abs(k * x * y) > 2**31
    np.testing.assert_array_equal(run(a, b, None, period), expected(a, b, None, period))
