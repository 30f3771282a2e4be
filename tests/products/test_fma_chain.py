"""Products of float32 off the tensor cores, against fractions that are rounded after every fma."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import FastmmaError

RNG = np.random.default_rng(0)
OPCODE = "fma.rn.f32"


def drawn(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (RNG.standard_normal(shape) * np.exp2(RNG.integers(-12, 12, shape))).astype(np.float32)


def nearest(value: Fraction) -> Fraction:
    """Rounded to float32, to nearest even; values are in its normal range."""
    if not value:
        return value
    exponent = 0
    while abs(value) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    while abs(value) < Fraction(2) ** (exponent + 23):
        exponent -= 1
    unit = Fraction(2) ** exponent
    return round(value / unit) * unit


def chain(a: Any, b: Any, start: Any = 0.0) -> Fraction:
    total = Fraction(float(start))
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total = nearest(Fraction(x) * Fraction(y) + total)
    return total


def test_small_and_large_products_are_chains() -> None:
    a, b, c = drawn(64, 50), drawn(50, 48), drawn(64, 48)
    for part in (slice(0, 64), slice(0, 5)):  # in register tiles, and one by one
        whole = fastmma.gemm(a[part], b, c[part], instruction=OPCODE)
        halves = fastmma.gemm(a[part], b, instruction=OPCODE, split_k=3)
        for i, j in ((0, 0), (3, 47), (4, 20)):
            assert Fraction(float(whole[i, j])) == chain(a[i], b[:, j], c[i, j])
            parts = [chain(a[i, k : k + 20], b[k : k + 20, j]) for k in (0, 20, 40)]
            assert Fraction(float(halves[i, j])) == nearest(nearest(parts[0] + parts[1]) + parts[2])
    assert fastmma.gemm(a[:5], b, instruction=OPCODE).tobytes() == fastmma.gemm(a, b, instruction=OPCODE, threads=1)[:5].tobytes()


def test_specials_signs_and_out() -> None:
    tiny = np.array([[-(2.0**-100), 0.0]], np.float32)
    assert np.signbit(fastmma.gemm(tiny, np.array([[2.0**-100], [0.0]], np.float32), instruction=OPCODE)).item() is False
    assert np.signbit(fastmma.gemm(tiny[:, :1], np.array([[2.0**-100]], np.float32), instruction=OPCODE)).item() is True
    bad = np.array([[np.inf, -np.nan, 1]], np.float32)
    found = fastmma.gemm(bad.T, np.array([[1, 0]], np.float32), instruction=OPCODE)
    assert found[0, 0] == np.inf
    assert found.view(np.uint32)[1].tolist() == [0x7FFFFFFF] * 2
    out = np.empty((3, 2), np.float32)
    assert fastmma.gemm(np.ones((3, 0), np.float32), np.ones((0, 2), np.float32), instruction=OPCODE, out=out) is out
    assert out.tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize(
    "options", [{"preset": "cublas"}, {"alpha": 2.0}, {"split_k": 0}, {"backend": "reference"}, {"c": np.ones((3, 3), np.float32)}], ids=str
)
def test_what_is_wrong_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(FastmmaError):
        fastmma.gemm(drawn(4, 8), drawn(8, 4), instruction=OPCODE, **options)
    with pytest.raises(FastmmaError):
        fastmma.gemm(drawn(4, 8).astype(np.float16), drawn(8, 4), instruction=OPCODE)
