"""Numbers rounded to formats, against ml_dtypes, NumPy and exact arithmetic."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.formats import DTYPES, FLOATS, LARGEST, NARROW, SMALLEST, bits_of, edges
from reference.ieee import rounded

from fastmma import FORMATS, FastmmaError, OperandError, OperandTypeError, decode, encode
from fastmma.isa.codes import all_codes


def test_tf32_rounds_to_10_bits() -> None:
    codes = edges(np.float32)
    codes = codes[np.isfinite(codes.view(np.float32))]
    lower = codes & np.uint32(0xFFFFE000)
    rest = codes & np.uint32(0x1FFF)
    up = (rest > 0x1000) | ((rest == 0x1000) & ((lower >> np.uint32(13)) & np.uint32(1) == 1))
    np.testing.assert_array_equal(encode(codes.view(np.float32), "tf32"), lower + up * np.uint32(0x2000))
    np.testing.assert_array_equal(encode(codes.view(np.float32), "tf32", rounding="rz"), lower)


def signs(values: NDArray[np.float64], codes: NDArray[Any], name: str) -> NDArray[np.uint64]:
    """The sign bits of values that become these codes; in some formats zero has none."""
    negative = np.signbit(values) & ((codes != 0) | (not name.endswith("fnuz")))
    return np.where(negative, np.uint64(1 << (FORMATS[name].bits - 1)), np.uint64(0))


def around(name: str) -> NDArray[np.float64]:
    """Every finite value of a format, the midpoints between neighbours, what lies just beside both, and values beyond the range."""
    values = decode(all_codes(name), name)
    grid = np.unique(np.abs(values[np.isfinite(values)]))
    middle = (grid[1:] + grid[:-1]) / 2
    step = grid[-1] - grid[-2]
    beyond = grid[-1] + step * np.array([0.25, 0.5, 0.75, 1, 1.5, 4])
    points = np.concatenate([grid, middle, beyond])
    points = np.concatenate([points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf).clip(0)])
    return np.concatenate([points, -points])


def spread(name: str) -> NDArray[np.float64]:
    """Random values of every magnitude that the format has, and somewhat beyond."""
    random = np.random.default_rng(2)
    magnitude = np.exp2(random.uniform(np.log2(SMALLEST[name]) - 2, min(np.log2(LARGEST[name]) + 1, 127.9), 50_000))
    return np.concatenate([magnitude, -magnitude])


def finite_only(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Those that do not overflow."""
    grid = np.unique(np.abs(decode(all_codes(name), name)))
    grid = grid[np.isfinite(grid)]
    return values[np.abs(values) < grid[-1] + (grid[-1] - grid[-2]) / 2]


@pytest.mark.parametrize("name", NARROW)
def test_nearest_even_is_ml_dtypes_cast(name: str) -> None:
    with np.errstate(all="ignore"):
        values = np.concatenate([around(name), spread(name)]).astype(np.float32)  # ml_dtypes rounds float64 twice
        values = np.concatenate([values, np.nextafter(values, np.float32(0)), np.nextafter(values, np.float32(np.inf))])
        if FORMATS[name].specials == "none":
            values = finite_only(values, name)
        expected = bits_of(values.astype(DTYPES[name]), name)
    real = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values, name)[real], expected[real])


@pytest.mark.parametrize("name", NARROW)
def test_nearest_even_rounds_once(name: str) -> None:
    """Against a search in the list of values: the nearest, and of two the one with the even code."""
    values = finite_only(np.concatenate([around(name), spread(name)]), name)
    listed = decode(all_codes(name), name)
    positive = np.flatnonzero(np.isfinite(listed) & ~np.signbit(listed))
    grid = listed[positive]
    below = np.searchsorted(grid, np.abs(values), side="right") - 1
    above = np.minimum(below + 1, len(grid) - 1)
    to_below, to_above = np.abs(values) - grid[below], grid[above] - np.abs(values)
    choose_above = (to_above < to_below) | ((to_above == to_below) & (positive[below] % 2 == 1))
    expected = positive[np.where(choose_above, above, below)]
    np.testing.assert_array_equal(encode(values, name), expected.astype(np.uint64) | signs(values, expected, name))


def test_f16_and_f32_casts_are_numpys() -> None:
    single = edges(np.float32).view(np.float32)
    values = np.concatenate([edges(np.float64).view(np.float64), single[~np.isnan(single)]])
    values = values[~np.isnan(values)]
    with np.errstate(all="ignore"):
        half, single = values.astype(np.float16), values.astype(np.float32)
    np.testing.assert_array_equal(encode(values, "f16"), half.view(np.uint16))
    np.testing.assert_array_equal(encode(values, "f32"), single.view(np.uint32))


def nearest_below(values: NDArray[np.float64], name: str) -> NDArray[np.uint64]:
    """Codes toward zero, by search in the list of magnitudes."""
    magnitudes = decode(all_codes(name), name)
    positive = np.flatnonzero(np.isfinite(magnitudes) & ~np.signbit(magnitudes))
    found = positive[np.searchsorted(magnitudes[positive], np.abs(values), side="right") - 1]
    return found.astype(np.uint64) | signs(values, found, name)


@pytest.mark.parametrize("name", NARROW)
def test_toward_zero(name: str) -> None:
    values = around(name)
    if FORMATS[name].specials == "none":
        with pytest.raises(OperandError, match="neither NaN nor infinity"):
            encode(np.inf, name, rounding="rz")
    np.testing.assert_array_equal(encode(values, name, rounding="rz"), nearest_below(values, name))


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name", NARROW)
def test_saturation(name: str, rounding: Any) -> None:
    largest = LARGEST[name]
    values = np.array([largest, largest * 1.5, 1e300, np.inf])
    for sign in (1, -1):
        codes = encode(sign * values, name, rounding=rounding, saturate=True)
        np.testing.assert_array_equal(decode(codes, name), sign * largest)


@pytest.mark.parametrize("name", ["f64", "f32", "tf32", "f16", "bf16", "e5m2"])
def test_overflow_is_infinite(name: str) -> None:
    beyond = [np.inf, 1e308 if name != "f64" else np.inf]
    assert np.all(decode(encode(beyond, name), name) == np.inf)
    assert np.all(decode(encode(np.negative(beyond), name), name) == -np.inf)


@pytest.mark.parametrize("name", [name for name in FLOATS if FORMATS[name].specials != "none"])
def test_nan_is_quiet_and_positive(name: str) -> None:
    codes = encode(np.array([np.nan, -np.nan]), name)
    assert np.isnan(decode(codes, name)).all()
    assert codes[0] == codes[1]


@cache
def wide_numbers() -> list[NDArray[Any]]:
    """64-bit integers and longdoubles, many of them next to ties of narrower formats."""
    rng = np.random.default_rng(0)
    near = [
        sign * ((1 << top) + (odd << top - below) + more)
        for top in range(53, 62)
        for below in range(2, 54)
        for odd in (1, 3)
        for more in (-1, 0, 1)
        for sign in (-1, 1)
    ]
    signed = np.array([*near, -(1 << 63), (1 << 63) - 1, 0, *rng.integers(-(1 << 62), 1 << 62, 100)], np.int64)
    above = [(1 << 64) - 1, (1 << 64) - (1 << 10), (1 << 63) + (1 << 10), (1 << 63) + (1 << 39) + 1, (1 << 63) + (3 << 39)]
    unsigned = np.array(above, np.uint64)
    ones = np.longdouble(1) + np.ldexp(np.longdouble(1), -np.arange(1, 64))
    ties = np.concatenate([ones, ones + np.ldexp(np.longdouble(1), -63), ones - np.ldexp(np.longdouble(1), -63), 3 * ones])
    scales = np.array([0, 1, -3, 8, 15, 31, -14, -24, -126, -149, -150, 127, 1023, -1022, -1074, -1080, 1030])
    wide = np.ldexp(ties[:, None], scales[scales < np.finfo(np.longdouble).maxexp]).ravel()
    return [signed, unsigned, np.concatenate([wide, -wide])]


@cache
def exact() -> list[list[tuple[int, int]]]:
    """The wide numbers as n / 2**below."""
    ratios = [[each.as_integer_ratio() if values.dtype.kind == "f" else (int(each), 1) for each in values] for values in wide_numbers()]
    return [[(numerator, denominator.bit_length() - 1) for numerator, denominator in each] for each in ratios]


def to_whole(size: int, below: int, rounding: str) -> int:
    """size / 2**below, which is not negative, as a whole number."""
    if below <= 0:
        return size << -below
    whole, rest = size >> below, size & (1 << below) - 1
    half = 1 << below - 1
    return whole + (rounding == "rn" and (rest > half or (rest == half and whole % 2 == 1)))


def rounded_once(numerator: int, below: int, name: str, rounding: str) -> float:
    """The value of a float format that numerator / 2**below is rounded to; infinity beyond the largest."""
    fmt = FORMATS[name]
    found = rounded(numerator, 1 << below, (fmt.mantissa_bits, fmt.emin, fmt.emax), rounding)
    if abs(found) <= fmt.max or fmt.specials == "ieee":
        return found
    return math.copysign(math.inf if rounding == "rn" else fmt.max, found)


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name", ["f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2"])
def test_wide_numbers_are_rounded_once(name: str, rounding: Any) -> None:
    for values, ratios in zip(wide_numbers(), exact(), strict=True):
        found = decode(encode(values, name, rounding=rounding), name)
        wanted = np.array([rounded_once(*ratio, name, rounding) for ratio in ratios])
        inside = np.isfinite(wanted)
        np.testing.assert_array_equal(found[inside], wanted[inside])
        assert not np.isfinite(found[~inside]).any()


@pytest.mark.parametrize("name", ["s32", "s8", "u8", "s4", "u4", "b1"])
def test_wide_numbers_to_integers(name: str) -> None:
    fmt = FORMATS[name]
    low, high = (-(1 << (fmt.bits - 1)) if fmt.kind == "signed" else 0), int(fmt.max)
    for values, ratios in zip(wide_numbers(), exact(), strict=True):
        for rounding in ("rn", "rz"):
            found = decode(encode(values, name, rounding=rounding, saturate=True), name)  # type: ignore[arg-type]
            whole = [to_whole(abs(numerator), below, rounding) * (-1 if numerator < 0 else 1) for numerator, below in ratios]
            assert found.tolist() == [min(max(each, low), high) for each in whole]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("name", ["s32", "s8", "u4"])
def test_integers_of_every_width_saturate(dtype: Any, name: str) -> None:
    values = np.array([0, 1], bool) if dtype is bool else np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 3], dtype)
    low, high = (-(1 << (FORMATS[name].bits - 1)) if FORMATS[name].kind == "signed" else 0), int(FORMATS[name].max)
    found = decode(encode(values, name, saturate=True), name)
    assert found.tolist() == [min(max(int(value), low), high) for value in values]


INF, NAN, ODD = np.inf, np.nan, [0.0, -0.0, -1e-9, 1e-9, np.nan, -np.nan, np.inf, -np.inf, 1e9, -1e9]
FACTS: list[tuple[str, list[float], dict[str, Any], list[int]]] = [
    ("e4m3", [464, 465, 1e9, INF, -INF, -500], {}, [0x7E, 0x7F, 0x7F, 0x7F, 0xFF, 0xFF]),  # overflow is NaN
    ("e4m3fnuz", ODD, {}, [0] * 4 + [0x80] * 6),  # NaN in the place of -0
    ("e5m2fnuz", ODD, {}, [0] * 4 + [0x80] * 6),
    ("ue8m0", np.exp2(np.arange(-127.0, 128.0)).tolist(), {}, list(range(255))),
    ("ue8m0", [0.0, 2.0**-140, 2.0**127 * 1.9, INF, NAN], {}, [0, 0, 255, 255, 255]),
    ("ue8m0", [1.5, 3.0, 1.49, 2.9], {"rounding": "rz"}, [127, 128, 127, 128]),
    ("ue8m0", [1e300], {"saturate": True}, [254]),
    ("f64", [INF, -INF], {}, [0x7FF << 52, 0xFFF << 52]),
    ("f64", [INF, -INF, 1.0], {"saturate": True}, [(0x7FF << 52) - 1, (0xFFF << 52) - 1, 0x3FF << 52]),
    ("s8", [-1.5, -0.5, 0.5, 1.5, 2.5], {}, [254, 0, 0, 2, 2]),
    ("s8", [-1.9, 1.9], {"rounding": "rz"}, [255, 1]),
    ("s8", [-1000, 1000], {"saturate": True}, [128, 127]),
    ("u8", [-5, 300.7, INF], {"saturate": True}, [0, 255, 255]),
    ("s4", [-8, 7, -1], {}, [8, 7, 15]),
]


@cases(("name", "values", "options", "codes"), FACTS)
def test_facts(name: str, values: list[float], options: dict[str, Any], codes: list[int]) -> None:
    assert encode(values, name, **options).tolist() == codes


WITHOUT_SPECIALS = ("e3m2", "e2m3", "e2m1")
REFUSED: list[tuple[str, Any, dict[str, Any], type[FastmmaError], str]] = [
    *(
        (name, [1.0, NAN], {"saturate": each}, OperandError, f"{name} has neither NaN")
        for name in WITHOUT_SPECIALS
        for each in (False, True)
    ),
    *((name, sign * LARGEST[name] * 1.5, {}, OperandError, "saturated") for name in WITHOUT_SPECIALS for sign in (1, -1)),
    *((name, INF, {}, OperandError, "saturated") for name in WITHOUT_SPECIALS),
    *((name, [-1.0], {}, OperandError, "no negative numbers") for name in ("ue8m0", "ue4m3")),
    *(
        (name, value, {}, OperandError, f"values for {name} must lie in")
        for name, value in (("s8", 128), ("s8", -129.0), ("u8", -1), ("u8", 256), ("s4", 8), ("u4", 16), ("b1", 2), ("s32", 2**31))
    ),
    *((name, NAN, {}, OperandError, "no NaN") for name in ("s8", "u8", "s4", "u4", "b1", "s32")),
    *((fmt, bad, {}, OperandTypeError, ".") for fmt in ("f16", "s8") for bad in ("x", None, [None], object(), [1, "a"], 1j)),
    *((fmt, bad, {}, OperandTypeError, ".") for fmt in ("f16", "s8") for bad in (np.array(["1"]), np.array([1], "M8[s]"))),
    *(("f16", 1.0, {"rounding": bad}, OperandError, "rounding must be") for bad in ("rn ", "", None, "up", 1, ["rn"])),
]


@cases(("name", "value", "options", "error", "message"), REFUSED)
def test_what_is_refused(name: str, value: Any, options: dict[str, Any], error: type[FastmmaError], message: str) -> None:
    with pytest.raises(error, match=message):
        encode(value, name, **options)


@cases("bad", [[1.5], "x", None, [None], [[1], [2, 3]]])
def test_decode_refuses_what_is_no_code(bad: Any) -> None:
    with pytest.raises(FastmmaError):
        decode(bad, "f16")


def test_empty_and_scalar() -> None:
    for name in FORMATS:
        assert encode(np.zeros((0, 3)), name).shape == (0, 3)
        assert decode(np.zeros((2, 0), np.uint64), name).shape == (2, 0)
        assert decode(encode(1, name), name) == 1
        assert encode(1, name).dtype == FORMATS[name].code_dtype
