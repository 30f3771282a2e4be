"""Chains of fused multiply-adds in register tiles, against the same chains element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmma.kernels.fma import f64, m8n8k4
from fastmma.kernels.fma.chains import is_large
from fastmma.verification.inputs import codes

SHAPES = ((77, 132, 61), (4, 1028, 33), (131, 520, 25), (600, 4, 100), (5, 4096, 4))
KINDS = ("special", "bits", "tiny", "mid")


def drawn(fmt: str, kind: str, shape: tuple[int, int], seed: int) -> NDArray[Any]:
    return codes(fmt, kind, shape[0] * shape[1], np.random.default_rng(seed)).reshape(shape)


def operands(fmts: tuple[str, str], kind: str, shape: tuple[int, int, int]) -> list[NDArray[Any]]:
    rows, depth, columns = shape
    return [drawn(*each, seed) for seed, each in enumerate(((fmts[0], kind, (rows, depth)), (fmts[0], kind, (depth, columns))))] + [
        drawn(fmts[1], kind, (rows, columns), 2)
    ]


def by_threes(gemm: Any, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any]) -> NDArray[Any]:
    """Three rows at a time, which are no large product."""
    result = np.empty(out.shape, out.dtype)
    for row in range(0, len(a), 3):
        few = slice(row, row + 3)
        assert not is_large(len(a[few]), b.shape[1], a.shape[1])
        gemm(a[few], b, None if c is None else c[few], result[few])
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_f64(kind: str) -> None:
    for shape in SHAPES:
        a, b, c = (each.view(np.float64) for each in operands(("f64", "f64"), kind, shape))
        assert is_large(len(a), b.shape[1], a.shape[1])
        for start, threads in ((c, 1), (None, 3)):
            expected = by_threes(lambda x, y, z, d: f64.gemm("rn", x, y, z, d, 1), a, b, start, c)
            out = np.full((2 * len(a), 2 * b.shape[1]), 7.0)[::-2, 1::2]
            f64.gemm("rn", a, b, start, out, threads)
            np.testing.assert_array_equal(out.view(np.uint64), expected.view(np.uint64))
            turned = np.asfortranarray(a), b[::-1][::-1], None if start is None else np.asfortranarray(start)
            f64.gemm("rn", *turned, out, threads)
            np.testing.assert_array_equal(out.view(np.uint64), expected.view(np.uint64))
        expected = by_threes(lambda x, y, z, d: f64.gemm("rn", x, y, z, d, 1), a, b, c, c)
        f64.gemm("rn", a, b, c, c, 2)
        np.testing.assert_array_equal(c.view(np.uint64), expected.view(np.uint64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fmt", "pairs"), [("f32", False), ("f16", True), ("f32", True), ("f16", False)])
def test_m8n8k4(fmt: str, pairs: bool, kind: str) -> None:
    for shape in SHAPES[:3]:
        a, b, c = operands(("f16", fmt), kind, shape)
        for start, threads in ((c, 1), (None, 3)):
            expected = by_threes(lambda x, y, z, d: m8n8k4.gemm(x, y, z, d, pairs, 1), a, b, start, c)
            out = np.zeros((2 * len(a), b.shape[1]), c.dtype)[::2]
            m8n8k4.gemm(np.asfortranarray(a), b, start, out, pairs, threads)
            np.testing.assert_array_equal(out, expected)
        expected = by_threes(lambda x, y, z, d: m8n8k4.gemm(x, y, z, d, pairs, 1), a, b, c, c)
        m8n8k4.gemm(a, b, c, c, pairs, 2)
        np.testing.assert_array_equal(c, expected)
