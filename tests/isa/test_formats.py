"""Formats against ml_dtypes and NumPy, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.formats import BITS, DTYPES, FLOATS, LARGEST, SMALLEST, UINT, edges

from fastmma import FORMATS, InstructionError, OperandError, OperandTypeError, decode, encode
from fastmma.isa.codes import all_codes, from_codes, to_codes
from fastmma.isa.formats import format_of


def same_values(x: NDArray[Any], y: NDArray[Any]) -> None:
    """Equal as float64 with signs, all NaNs alike."""
    np.testing.assert_array_equal(x, y)
    real = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(x[real]), np.signbit(y[real]))


def test_table_has_every_format() -> None:
    assert set(FORMATS) == set(DTYPES)
    for name, fmt in FORMATS.items():
        assert fmt.name == str(fmt) == name
        assert fmt.bits == BITS.get(name, 8)
        assert fmt.dtype == np.dtype(DTYPES[name])
        assert fmt.code_dtype == UINT[max(8, fmt.bits)]


@pytest.mark.parametrize("name", FLOATS)
def test_range(name: str) -> None:
    assert FORMATS[name].max == LARGEST[name]
    assert FORMATS[name].min_subnormal == SMALLEST[name]


@pytest.mark.parametrize("name", [name for name in FLOATS if BITS.get(name, 8) <= 16])
def test_every_code_decodes_as_ml_dtypes_does(name: str) -> None:
    codes = all_codes(name)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = codes.view(DTYPES[name]).astype(np.float64)
    if name == "ue4m3":
        codes, expected = codes[:128], expected[:128]
    same_values(decode(codes, name), expected)


def test_ue4m3_has_no_sign() -> None:
    np.testing.assert_array_equal(decode(np.arange(128, 256), "ue4m3"), decode(np.arange(128), "ue4m3"))


@pytest.mark.parametrize("name", ["s8", "u8", "s4", "u4", "b1"])
def test_every_integer_code_decodes(name: str) -> None:
    fmt = FORMATS[name]
    codes = all_codes(name)
    high = 1 << (fmt.bits - 1)
    expected = [code - 2 * high if fmt.kind == "signed" and code >= high else code for code in range(1 << fmt.bits)]
    np.testing.assert_array_equal(decode(codes, name), expected)
    np.testing.assert_array_equal(encode(decode(codes, name), name), codes)
    np.testing.assert_array_equal(from_codes(codes, name).astype(np.int64), expected)
    np.testing.assert_array_equal(to_codes(from_codes(codes, name), name), codes)


def test_s32() -> None:
    codes = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    np.testing.assert_array_equal(decode(codes, "s32"), codes.view(np.int32))
    np.testing.assert_array_equal(encode(codes.view(np.int32), "s32"), codes)


def test_f32_and_f64_codes() -> None:
    single, double = edges(np.float32), edges(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        same_values(decode(single, "f32"), single.view(np.float32).astype(np.float64))
    np.testing.assert_array_equal(decode(double, "f64").view(np.uint64), double)
    real = ~np.isnan(single.view(np.float32))
    np.testing.assert_array_equal(encode(single.view(np.float32)[real], "f32"), single[real])
    real = ~np.isnan(double.view(np.float64))
    np.testing.assert_array_equal(encode(double.view(np.float64)[real], "f64"), double[real])


def test_tf32_ignores_the_low_13_bits() -> None:
    codes = edges(np.float32)
    cut = codes & np.uint32(0xFFFFE000)
    with np.errstate(invalid="ignore"):
        expected = cut.view(np.float32).astype(np.float64)
    same_values(decode(codes, "tf32"), expected)


@pytest.mark.parametrize("name", DTYPES)
def test_format_of(name: str) -> None:
    assert format_of(name) is format_of("." + name) is format_of(FORMATS[name]) is FORMATS[name]
    twin = {"tf32": "f32", "ue4m3": "e4m3"}.get(name, name)
    assert format_of(DTYPES[name]).name == twin
    assert format_of(np.dtype(DTYPES[name])).name == twin
    assert format_of(np.dtype(DTYPES[name]).name).name == twin


@pytest.mark.parametrize("bad", ["", "e9m9", "complex64", np.complex64, object, None, 3, [], np.int64, "<U3", (1, 2), {}])
def test_format_of_refuses(bad: Any) -> None:
    with pytest.raises(InstructionError, match="no element format"):
        format_of(bad)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "b1"])
def test_elements_and_codes(name: str) -> None:
    fmt = FORMATS[name]
    codes = np.arange(min(1 << fmt.bits, 300), dtype=fmt.code_dtype)
    elements = from_codes(codes, name)
    assert elements.dtype == fmt.dtype
    np.testing.assert_array_equal(to_codes(elements, name), codes)
    np.testing.assert_array_equal(to_codes(elements[::-3], name), codes[::-3])


def test_elements_of_the_other_byte_order() -> None:
    values = np.array([1.5, -2.0, np.inf], ">f2")
    np.testing.assert_array_equal(to_codes(values, "f16"), [0x3E00, 0xC000, 0x7C00])


@pytest.mark.parametrize(
    ("name", "wrong"), [("f16", np.float32), ("bf16", np.float16), ("e4m3", np.uint8), ("s8", np.uint8), ("b1", np.uint8)]
)
def test_elements_of_another_dtype_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(OperandTypeError, match=f"elements of {name} must have dtype"):
        to_codes(np.zeros(3, wrong), name)


def test_codes_of_wide_formats_are_not_listed() -> None:
    with pytest.raises(OperandError, match="too many"):
        all_codes("f32")


SMALL_FLOATS = [name for name in FLOATS if FORMATS[name].bits <= 16]


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_facts_of_a_format_are_those_of_its_codes(name: str) -> None:
    fmt = FORMATS[name]
    magnitudes = decode(np.arange(1 << fmt.magnitude_bits), fmt)
    assert fmt.first_special == np.isfinite(magnitudes).sum() == np.flatnonzero(np.isfinite(magnitudes))[-1] + 1
    assert fmt.has_zero == (magnitudes[0] == 0)
    assert (fmt.infinity is not None) == np.isinf(magnitudes).any()
    assert fmt.infinity is None or np.isinf(magnitudes[fmt.infinity])
    assert (fmt.nan is not None) == np.isnan(decode(all_codes(name), fmt)).any()
    values = decode(all_codes(name), fmt)
    if fmt.signed:
        assert fmt.has_negative_zero == bool(np.signbit(values[1 << fmt.bits - 1]) and values[1 << fmt.bits - 1] == 0)
        np.testing.assert_array_equal(fmt.is_special(all_codes(name)), ~np.isfinite(values))
    nan = np.array([np.nan], fmt.dtype).view(fmt.code_dtype)[0]
    assert fmt.nan is None or fmt.nan == (nan & (1 << fmt.magnitude_bits) - 1 or nan)
    assert fmt.min == values[np.isfinite(values)].min()


def test_codes_of_infinity_and_nan_of_wide_formats() -> None:
    for name, dtype in (("tf32", np.float32), ("f32", np.float32), ("f64", np.float64)):
        assert decode(FORMATS[name].infinity, name) == np.inf
        assert FORMATS[name].infinity == np.array(np.inf, dtype).view(FORMATS[name].code_dtype)
        assert FORMATS[name].nan == np.array(np.nan, dtype).view(FORMATS[name].code_dtype)


def test_a_format_holds_another_if_it_has_all_its_values() -> None:
    small = [fmt for fmt in FORMATS.values() if fmt.bits <= 16]
    values = {fmt.name: set(np.nan_to_num(decode(all_codes(fmt.name), fmt).astype(float), nan=-1e300).tolist()) for fmt in small}
    for fmt in small:
        for other in small:
            assert fmt.holds(other) == (values[fmt.name] >= values[other.name]), (fmt, other)
        assert FORMATS["f64"].holds(fmt)
        assert FORMATS["f32"].holds(fmt)
    assert FORMATS["f32"].holds(FORMATS["tf32"])
    assert not FORMATS["tf32"].holds(FORMATS["f32"])
    assert FORMATS["f64"].holds(FORMATS["s32"])
    assert not FORMATS["f32"].holds(FORMATS["s32"])
