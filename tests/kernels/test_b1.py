"""The single-bit kernels against exact int64 arithmetic, on every path that this machine can run."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from reference.cases import cases
from reference.integer_products import SHAPES, accumulators, bits, expected_bits, force

from fastmma.kernels.integer import b1


@pytest.fixture(params=["host", "portable"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's best path, and the portable one."""
    force(request.param, monkeypatch)


on_every_path = pytest.mark.usefixtures("path")


@pytest.mark.parametrize("operation", ["xor", "and"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@on_every_path
def test_bits(operation: str, threads: int, transposed: bool) -> None:
    for seed, (m, n, k) in enumerate([*SHAPES, (9, 140, 33), (3, 129, 5003), (300, 20, 256)]):
        a, b, c = bits(seed, (m, k), bool), bits(seed + 1, (k, n)), accumulators(seed, (m, n))
        if transposed:
            a, b = np.asfortranarray(a), np.asfortranarray(b)
        for start in (c, None):
            out = np.full((m, n), 77, np.int32)
            b1.gemm(a, b, start, out, operation, threads)
            np.testing.assert_array_equal(out, expected_bits(a, b, start, operation))


@cases("operation", ["xor", "and"])
@cases("k", [1, 31, 32, 33, 63, 64, 65, 1537])
@on_every_path
def test_padding_counts_nothing(operation: str, k: int) -> None:
    for x, y in itertools.product((0, 1, 255), repeat=2):
        a, b = np.full((4, k), x, np.uint8), np.full((k, 130), y, np.uint8)
        out = np.full((4, 130), 77, np.int32)
        b1.gemm(a, b, None, out, operation, 1)
        one = (x > 0) != (y > 0) if operation == "xor" else x > 0 and y > 0
        assert (out == k * one).all()


@pytest.mark.parametrize("order", ["C", "F"])
@on_every_path
def test_bytes_that_are_not_zero_are_ones(order: Any) -> None:
    a = np.random.default_rng(0).choice(np.array([0, 0, 1, 2, 128, 255], np.uint8), (33, 260))
    b = np.random.default_rng(1).choice(np.array([0, 0, 1, 2, 128, 255], np.uint8), (260, 131))
    out = np.zeros((33, 131), np.int32)
    b1.gemm(np.array(a, order=order), np.array(b, order=order), None, out, "and", 1)
    np.testing.assert_array_equal(out, expected_bits(a, b, None, "and"))


@pytest.mark.parametrize("operation", ["xor", "and"])
@on_every_path
def test_bit_batches(operation: str) -> None:
    for seed, (m, n, k) in enumerate([(8, 8, 128), (16, 8, 128), (16, 8, 256), (64, 8, 256), (64, 40, 256), (5, 3, 7), (1, 1, 1)]):
        count = 1 + 1100 * (seed % 2)
        a, b, c = bits(seed, (count, m, k), bool), bits(seed + 1, (count, k, n), bool), accumulators(seed, (count, m, n))
        for start in (c, None):
            out = np.full((count, m, n), 77, np.int32)
            b1.tiles(a, b, start, out, operation, 2)
            np.testing.assert_array_equal(out, expected_bits(a, b, start, operation))
