"""Operands that are rounded first: large arrays by compiled code, as `fastmma.encode` does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, OperandError, encode
from fastmma.operands.cast import rounded

NAMES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e4m3fnuz", "e5m2fnuz")


def drawn(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Any bits; numbers near the formats' ranges; and numbers half way between two codes, and next to those."""
    rng = np.random.default_rng(0)
    word = np.dtype(f"u{np.dtype(dtype).itemsize}")
    bits = rng.integers(0, np.iinfo(word).max, shape, word, endpoint=True)
    with np.errstate(over="ignore"):
        near = (rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(dtype)
    kept = rng.integers(2, np.finfo(dtype).nmant, shape).astype(word)
    ties = near.view(word) >> kept << kept | word.type(1) << kept - word.type(1)
    ties += rng.integers(-1, 2, shape).astype(word)
    return np.choose(rng.integers(0, 3, shape), [bits, near.view(word), ties]).view(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_codes(name: str, dtype: str) -> None:
    fmt, values = FORMATS[name], drawn(dtype, (150, 223))
    if fmt.nan is None:
        with pytest.raises(OperandError, match="neither NaN nor infinity"):
            rounded(values, fmt)
        values = np.where(np.isnan(values), values.dtype.type(1), values)
    expected = encode(values, fmt, saturate=fmt.nan is None)
    swapped = values.astype(values.dtype.newbyteorder())
    for array in (values, np.asfortranarray(values), values[::-1, ::-1][::-1, ::-1], swapped, np.repeat(values, 2, 1)[:, ::2]):
        found = rounded(array, fmt)
        assert found.dtype == fmt.code_dtype
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(rounded(values[:3], fmt), expected[:3])


def test_products_take_them() -> None:
    values = np.random.default_rng(1).standard_normal((130, 136)).astype(np.float32)
    short = fastmma.decode(encode(values, "e4m3"), "e4m3").astype(FORMATS["e4m3"].dtype)
    opcode = "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3"
    found = fastmma.gemm(values.T, values, instruction=opcode, cast=True)
    np.testing.assert_array_equal(found, fastmma.gemm(short.T, short, instruction=opcode))
