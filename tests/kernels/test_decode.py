"""Every code of every format as the kernels decode it, against ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.formats import BITS, DTYPES, FLOATS, UINT

from fastmma import FORMATS, FastmmaError, gemm, instructions
from fastmma.backends.parameters import element_of
from fastmma.kernels.decode.tables import FINITE, MINUS, NAN, PLUS, ZERO, scale_table_of, table_of
from fastmma.kernels.fused import packed, portable
from fastmma.kernels.general import products as general
from fastmma.kernels.params import Fused, General

SMALL = [name for name in FLOATS if BITS.get(name, 8) <= 16]
SIGNED = [name for name in SMALL if not name.startswith("ue")]
FNUZ = ("e4m3fnuz", "e5m2fnuz")


def values_of(name: str) -> NDArray[np.float64]:
    """The values of all codes, by ml_dtypes; of scales a byte's."""
    codes = np.arange(1 << BITS.get(name, 8)).astype(UINT[max(8, BITS.get(name, 8))])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return codes.view(DTYPES[name]).astype(np.float64)


@pytest.mark.parametrize("name", SMALL)
def test_tables(name: str) -> None:
    element, values = element_of(FORMATS[name]), values_of(name)
    table = table_of(element)
    assert len(table.kinds) == len(values)
    real = np.isfinite(values)
    np.testing.assert_array_equal(table.kinds, np.where(np.isnan(values), NAN, np.where(real, FINITE, np.where(values > 0, PLUS, MINUS))))
    found = np.ldexp(table.significands.astype(np.float64), np.where(real, table.exponents - element.mantissa_bits, 0))
    np.testing.assert_array_equal(found[real], values[real])
    assert (table.significands[~real] == 0).all()
    np.testing.assert_array_equal(table.exponents == ZERO, (values == 0) | ~real)


@pytest.mark.parametrize("name", ["ue8m0", "ue4m3"])
def test_tables_of_scales(name: str) -> None:
    values, table = np.abs(values_of(name)), scale_table_of(element_of(FORMATS[name]))
    np.testing.assert_array_equal(table.values, values)
    np.testing.assert_array_equal(table.alive, np.isfinite(values) & (values != 0))


@pytest.mark.parametrize("name", SIGNED)
def test_products_with_one(name: str) -> None:
    """The sum of a single product is the element, by panels of either width and by windows of integers."""
    element, values = element_of(FORMATS[name]), values_of(name)
    a = np.arange(len(values)).astype(UINT[max(8, BITS.get(name, 8))])[:, None]
    b = np.full((1, 1), element.bias << element.mantissa_bits, a.dtype)
    with np.errstate(invalid="ignore"):
        expected = values.astype(np.float32)[:, None] + np.float32(0)  # sums have no -0
    out = np.empty(expected.shape, np.uint32)
    p = Fused(element, element, 1, 25, -1000, 23, 0, 0)
    portable.gemm(p, a, b, None, out, 1)
    np.testing.assert_array_equal(out.view(np.float32), expected)
    for row in range(0, len(a), max(1, len(a) // 256)):  # a block of finite elements of moderate exponents is in narrow panels
        portable.gemm(p, a[row : row + 1], b, None, out[row : row + 1], 1)
        np.testing.assert_array_equal(out[row].view(np.float32), expected[row])
    windows = General(1, 1, 1, 0, 0, 25, 0, -1000, 23, 0, 0, 23, 127)
    general.multiply(windows, element, element, a[None], b[None], None, out[None], 1, general.fits_window(windows, element, element))
    np.testing.assert_array_equal(out.view(np.float32), expected)


@pytest.mark.parametrize("name", FNUZ)
def test_formats_of_other_machines_are_no_operands(name: str) -> None:
    element = element_of(FORMATS[name])
    assert not packed.supported(Fused(element, element, 16, 25, -132, 23, 0, 0))  # which would take its NaN for a zero
    assert not any(name in ins.opcode for ins in instructions())
    ones = np.ones((16, 32), DTYPES[name])
    with pytest.raises(FastmmaError, match=f"no instruction for {name}"):
        gemm(ones, ones.T, target="H100")
