"""Rows of softmax: quotients without divisions, and calls that are computed from addresses."""

import numpy as np
import pytest

from fastmma import kernels
from fastmma.host.addresses import address_of

_CODES = 1 << 23


def _divide(values: np.ndarray, sums: np.ndarray) -> tuple[bool, np.ndarray]:
    out = np.empty_like(values)
    usual = kernels.functions.sums.divide_rows(address_of(values), *values.shape, address_of(sums), address_of(out))
    return usual, out


@pytest.mark.parametrize("columns", [1, 15, 16, 100])
def test_quotients_are_rounded_once(columns):
    rng = np.random.default_rng(columns)
    exponents = rng.integers(127 - 100, 127, (20_000, columns))
    values = (exponents * _CODES + rng.integers(0, _CODES, exponents.shape)).astype(np.uint32).view(np.float32)
    values[rng.random(values.shape) < 0.1] = 0
    values[rng.random(values.shape) < 0.1] = 1
    sums = rng.integers(np.float32(1).view(np.int32), np.float32(2**25).view(np.int32), len(values)).astype(np.int32).view(np.float32)
    sums[:4] = 1, 2**25, np.nextafter(np.float32(2), np.float32(1)), np.nextafter(np.float32(1), np.float32(2))
    usual, out = _divide(values, sums)
    assert usual
    np.testing.assert_array_equal(out.view(np.uint32), (values / sums[:, None]).view(np.uint32))


@pytest.mark.parametrize("columns", [3, 16, 20])
@pytest.mark.parametrize(("value", "total"), [(2.0**-101, 2.0), (2.0**-149, 1.0), (0.5, np.nan), (0.5, np.inf), (0.5, 0.5), (0.5, 2.0**26)])
def test_numbers_whose_corrections_are_not_exact_are_refused(columns, value, total):
    for place in range(columns):
        values = np.full((1, columns), 0.25, np.float32)
        values[0, place] = value
        assert not _divide(values, np.float32([total]))[0]
