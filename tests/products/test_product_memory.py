"""Memory of a product beyond its operands and its result: what docs/speed.md says of it."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma.kernels.matrices import loans

pytestmark = pytest.mark.best_kernels
PANEL = 64  # columns of B
SLACK = 1 << 18  # bytes of everything that is small


def peak(dtype: object, m: int, n: int, k: int) -> int:
    """Bytes at the peak of a product that takes over no memory, operands and result not counted."""
    a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)  # type: ignore[call-overload]
    out = fastmma.gemm(a, b, target="sm_90a", threads=1)
    loans._kept.clear()
    tracemalloc.start()
    try:
        fastmma.gemm(a, b, target="sm_90a", threads=1, out=out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("dtype", "bytes_of_one"), [(np.float16, 12.5), (ml_dtypes.float8_e4m3fn, 8.5)])
def test_a_product_takes_memory_for_a_packed_and_a_panel_of_b(dtype: object, bytes_of_one: float) -> None:
    m, n, k = 1088, 512, 1024
    found = peak(dtype, m, n, k)
    packed = bytes_of_one * m * k
    assert packed * 0.9 <= found <= packed + PANEL * (bytes_of_one * k + 8 * m) + SLACK


def test_memory_does_not_grow_with_the_product() -> None:
    part = 1 << 24  # elements of A
    for m in (8192, 16384):
        assert peak(np.int8, m, 32, part // 4096) <= part * 1.1 + SLACK
