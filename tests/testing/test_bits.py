"""Distances in units of the last place, against the numbers of each format in order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma.isa.formats import FORMATS
from fastmma.testing import ulp_distance

SMALL = sorted({fmt.dtype for fmt in FORMATS.values() if fmt.kind == "float" and fmt.bits <= 16}, key=str)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_distance_is_that_of_ranks(dtype: np.dtype) -> None:
    """All numbers of a format in order, equal ones (the zeros) having one rank."""
    fmt = fastmma.isa.formats.format_of(dtype)
    codes = np.arange(1 << fmt.bits, dtype=f"u{dtype.itemsize}")
    values = codes.view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers = values.astype(np.float64)
    ranks = np.searchsorted(np.unique(numbers[~np.isnan(numbers)]), numbers)
    shuffled = np.random.default_rng(0).permutation(codes.size)
    found = ulp_distance(values, values[shuffled])
    nans = np.isnan(numbers), np.isnan(numbers)[shuffled]
    both, one = nans[0] & nans[1], nans[0] ^ nans[1]
    assert (found[both] == 0).all()
    assert (found[one] == 2**64 - 1).all()
    rest = ~(both | one)
    assert (found[rest] == np.abs(ranks - ranks[shuffled])[rest].astype(np.uint64)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distance_of_wide_floats(dtype: type) -> None:
    x = np.array([0, 1, -1, 1e30, np.finfo(dtype).max, -np.inf], dtype)
    with np.errstate(over="ignore"):
        assert ulp_distance(x, np.nextafter(x, dtype(np.inf))).tolist() == [1] * 6
    top = {np.float32: 0x7F800000, np.float64: 0x7FF0000000000000}[dtype]
    assert ulp_distance(x[-1:], np.array([np.inf], dtype)).tolist() == [2 * top]


def test_distance_of_integers() -> None:
    extremes = np.array([-(2**31), 5], np.int32)
    assert ulp_distance(extremes, np.array([2**31 - 1, 3], np.int32)).tolist() == [2**32 - 1, 2]
    assert ulp_distance(np.array([200], np.uint8), np.array([3], np.uint8)).tolist() == [197]


def test_bad_input() -> None:
    one = np.ones(1, np.float16)
    with pytest.raises(fastmma.OperandError, match=r"x is float16 \(1,\), but y is float32 \(1,\)"):
        ulp_distance(one, np.ones(1, np.float32))
    with pytest.raises(fastmma.OperandTypeError, match="complex64 is no format"):
        ulp_distance(np.ones(1, np.complex64), np.ones(1, np.complex64))
    with pytest.raises(fastmma.OperandTypeError, match="float8_e3m4"):
        ulp_distance(one.astype(ml_dtypes.float8_e3m4), one.astype(ml_dtypes.float8_e3m4))
