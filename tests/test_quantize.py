"""Quantisation against the definitions in fractions, against numbers worked out by hand, and on every form of input."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import math
import platform
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import quantisation as exact

import fastmma
from fastmma.scaling import RULES, SCHEMES, ScaledArray, pack_e2m1, quantize
from fastmma.scaling.rounding import ROUNDINGS

# scheme: element, extents of a block along the axis, across it and elsewhere (0: the whole), rules; typed from the specifications
MX = ("floor", "ceil", "rceil", "even")
FLOAT = ("amax", "deepgemm", "te")
EXPECTED = {
    "mxfp8_e4m3": ("e4m3", (32, 1, 1), MX),
    "mxfp8_e5m2": ("e5m2", (32, 1, 1), MX),
    "mxfp6_e3m2": ("e3m2", (32, 1, 1), MX),
    "mxfp6_e2m3": ("e2m3", (32, 1, 1), MX),
    "mxfp4": ("e2m1", (32, 1, 1), MX),
    "nvfp4": ("e2m1", (16, 1, 1), ("amax", "torchao", "te")),
    "nvfp4_16x16": ("e2m1", (16, 16, 1), ("amax", "torchao", "te")),
    "fp8_tensor": ("e4m3", (0, 0, 0), FLOAT),
    "fp8_tensor_e5m2": ("e5m2", (0, 0, 0), FLOAT),
    "fp8_row": ("e4m3", (0, 1, 1), FLOAT),
    "fp8_row_e5m2": ("e5m2", (0, 1, 1), FLOAT),
    "fp8_1x128": ("e4m3", (128, 1, 1), FLOAT),
    "fp8_1x128_e5m2": ("e5m2", (128, 1, 1), FLOAT),
    "fp8_128x128": ("e4m3", (128, 128, 1), FLOAT),
    "fp8_128x128_e5m2": ("e5m2", (128, 128, 1), FLOAT),
    "int8_row": ("s8", (0, 1, 1), ("amax",)),
}
PAIRS = [(scheme, rule) for scheme, (_, _, rules) in EXPECTED.items() for rule in rules]
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
RNG = np.random.default_rng(20)


def blocks(shape: tuple[int, ...], scheme: str, axis: int) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """The place of each scale, and the part of the array that it serves."""
    along, across, rest = EXPECTED[scheme][1]
    axis %= len(shape)
    other = max((d for d in range(len(shape)) if d != axis), default=-1)
    sizes = [(along if d == axis else across if d == other else rest) or max(extent, 1) for d, extent in enumerate(shape)]
    counts = [-(-extent // size) for extent, size in zip(shape, sizes, strict=True)]
    for place in itertools.product(*map(range, counts)):
        yield place, tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, sizes, strict=True))


def slowly(
    x: NDArray, scheme: str, axis: int, rule: str, rounding: str = "nearest", seed: int = 0
) -> tuple[NDArray, NDArray, float | None]:
    """Codes of elements, scales (codes of one byte, or float32), and the global scale."""
    element, _, _ = EXPECTED[scheme]
    p = exact.F64 if x.dtype == np.float64 else exact.F32
    codes = np.empty(x.shape, np.uint8)
    scales: dict[tuple[int, ...], float] = {}
    overall = None
    if scheme.startswith("nvfp4"):
        overall = exact.nvfp4_global([float(v) for v in x.reshape(-1)], rule, p)
    for place, part in blocks(x.shape, scheme, axis):
        block = [float(v) for v in x[part].reshape(-1)]
        ready: Callable[[float], float] | None = None
        if rule in MX:
            scale: float = exact.mx_scale(block, element, rule)
        elif overall is not None:
            scale, ready = exact.nvfp4_block(block, overall, rule, p)
        else:
            scale, ready = exact.float_block(block, element, rule, p)
        scales[place] = scale
        places = np.arange(x.size).reshape(x.shape)[part].reshape(-1)
        found = []
        for value, index in zip(block, places, strict=True):
            random = exact.splitmix64(seed, int(index)) if rounding == "stochastic" else 0
            if ready is None:
                found.append(exact.mx_element(value, int(scale), element, rounding, random))
            else:
                found.append(exact.code_of(ready(value), element, rounding, random))
        codes[part] = np.array(found, np.uint8).reshape(codes[part].shape)
    last = max(scales, default=(-1,) * x.ndim)
    table = np.array(list(scales.values()), np.float32 if rule in FLOAT and overall is None else np.uint8)
    stored = None if overall is None else p.div(1.0, overall) if rule == "te" else overall
    return codes, table.reshape([i + 1 for i in last]), None if stored is None else exact.to_f32(stored)


def agree(q: ScaledArray, wanted: tuple[NDArray, NDArray, float | None]) -> None:
    codes, scales, overall = wanted
    # the codes of floats with fewer than 8 bits are the whole byte
    assert np.array_equal(q.elements.view(np.uint8), codes)
    got = q.scales if scales.dtype == np.float32 else q.scales.view(np.uint8)
    assert np.array_equal(got, scales, equal_nan=scales.dtype == np.float32)
    assert q.global_scale == overall or (overall is not None and math.isnan(overall) and np.isnan(q.global_scale))


def adversarial(shape: tuple[int, ...], dtype: type, kind: str) -> NDArray:
    """Ordinary, widely spread, tied, tiny and huge numbers."""
    info = ml_dtypes.finfo(dtype)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    if kind == "normal":
        x = RNG.standard_normal(shape)
    elif kind == "spread":
        x = RNG.standard_normal(shape) * np.exp2(RNG.integers(-12, 12, shape))
    elif kind == "ties":
        x = RNG.integers(-255, 256, shape) * np.exp2(RNG.integers(-7, 1, shape))
    elif kind == "tiny":
        x = RNG.integers(-300, 301, shape) * np.exp2(RNG.integers(0, 14, shape)) * float(info.smallest_subnormal)
    else:  # any finite bits
        raw = RNG.integers(0, 1 << (8 * bits.itemsize), shape, dtype=np.uint64).astype(bits).view(dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return np.where(np.isfinite(raw), raw, dtype(0)).astype(dtype)
    return x.astype(dtype)


def test_schemes_and_rules_are_those_expected() -> None:
    assert list(SCHEMES) == list(EXPECTED)
    for name, row in SCHEMES.items():
        element, extents, rules = EXPECTED[name]
        assert (row.element, tuple(size or 0 for size in row.extents), row.rules) == (element, extents, rules)
        assert all((row.scale, rule) in RULES for rule in rules)
    assert {rule for _, rule in RULES} == {rule for _, _, rules in EXPECTED.values() for rule in rules}


@pytest.mark.parametrize("kind", ["normal", "spread", "ties", "tiny", "bits"])
@pytest.mark.parametrize(("scheme", "rule"), PAIRS)
def test_definition(scheme: str, rule: str, kind: str) -> None:
    for dtype in DTYPES:
        x = adversarial((3, 70), dtype, kind)
        agree(quantize(x, scheme, rule=rule), slowly(x, scheme, -1, rule))


@pytest.mark.parametrize(("scheme", "rule"), PAIRS)
def test_zeros_infinities_and_nans(scheme: str, rule: str) -> None:
    for special in ([np.nan], [np.inf], [-np.inf], [np.nan, np.inf], [0.0], [-0.0], [3.4e38], [2.0**-149]):
        x = adversarial((2, 140), np.float32, "normal")
        x[0, 5 : 5 + len(special)] = special
        x[1] = special[0]
        x[1, 70:] = -0.0
        agree(quantize(x, scheme, rule=rule), slowly(x, scheme, -1, rule))


@pytest.mark.parametrize("scheme", EXPECTED)
def test_axes_shapes_and_orders(scheme: str) -> None:
    rule = EXPECTED[scheme][2][0]
    for shape in ((133, 37), (3, 33, 20), (1, 1), (2, 3, 5, 7)):
        x = adversarial(shape, np.float32, "spread")
        for axis in range(len(shape)):
            wanted = slowly(x, scheme, axis, rule)
            longer = np.repeat(x, 2, axis=-1)
            reversed_rows = np.ascontiguousarray(x[::-1])[::-1]
            for form in (x, np.asfortranarray(x), longer[..., ::2], reversed_rows, np.moveaxis(np.moveaxis(x, 0, -1).copy(), -1, 0)):
                q = quantize(form, scheme, axis=axis)
                agree(q, wanted)
                assert q.axis == axis
            agree(quantize(x, scheme, axis=axis - len(shape)), wanted)


@pytest.mark.parametrize("scheme", [name for name, row in EXPECTED.items() if row[1][1] in (0, 1)])
@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, 127, 1021])
def test_one_dimension(scheme: str, size: int) -> None:
    x = adversarial((size,), np.float32, "normal")
    if size:
        agree(quantize(x, scheme), slowly(x, scheme, 0, EXPECTED[scheme][2][0]))
    else:
        assert quantize(x, scheme).scales.size == 0


@pytest.mark.parametrize("scheme", EXPECTED)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (2, 0, 3)])
def test_empty(scheme: str, shape: tuple[int, ...]) -> None:
    q = quantize(np.empty(shape, np.float32), scheme)
    assert q.shape == shape
    assert q.dequantize().shape == shape


@pytest.mark.parametrize("scheme", EXPECTED)
def test_toward_zero_and_stochastic(scheme: str) -> None:
    rule = EXPECTED[scheme][2][0]
    for dtype in (np.float32, np.float64):
        for kind in ("normal", "ties"):
            x = adversarial((3, 70), dtype, kind)
            agree(quantize(x, scheme, rounding="zero"), slowly(x, scheme, -1, rule, "zero"))
            for seed in (0, 1, 2**64 - 1):
                wanted = slowly(x, scheme, -1, rule, "stochastic", seed)
                agree(quantize(x, scheme, rounding="stochastic", seed=seed), wanted)
                agree(quantize(np.asfortranarray(x), scheme, rounding="stochastic", seed=seed), wanted)


def test_stochastic_rounding_is_unbiased() -> None:
    x = np.full((1, 1 << 16), 1.3125, np.float32)
    x[0, ::32] = 4.0
    x[0, 1::32] = 2.0**-30
    x[0, 2::32] = 1e-45
    values = quantize(x, "mxfp4", rounding="stochastic", seed=7).dequantize()
    assert set(np.unique(values)) == {0.0, 1.0, 1.5, 4.0}
    assert (values[0, 1::32] == 0).all()
    assert (values[0, 2::32] == 0).all()
    rest = values[x == np.float32(1.3125)]
    # up with probability 5/8: four standard deviations of the mean of so many
    assert abs((rest == 1.5).mean() - 0.625) < 4 * math.sqrt(0.625 * 0.375 / rest.size)


@pytest.mark.parametrize("name", exact.ELEMENTS)
def test_all_codes_and_all_ties(name: str) -> None:
    """Every number of the format, every midpoint, and the neighbours of both, scaled by 2**-3."""
    scheme = next(scheme for scheme, row in EXPECTED.items() if row[0] == name and row[2] == MX)
    grid = [float(value) for value in exact.magnitudes(name)]
    points = grid + [(a + b) / 2 for a, b in itertools.pairwise(grid)]
    near = np.array([np.nextafter(np.float32(p), np.float32(side)) for p in points for side in (-1e9, p, 1e9)], np.float32)
    near = np.concatenate([near, -near])
    near = near[np.abs(near) <= np.float32(grid[-1])]
    x = np.zeros((len(near), 32), np.float32)
    x[:, 0], x[:, 1] = grid[-1], near
    q = quantize(x * np.float32(0.125), scheme)
    assert (q.scales.astype(np.float32) == 0.125).all()
    assert [int(code) for code in q.elements.view(np.uint8)[:, 1]] == [exact.code_of(float(v), name) for v in near]


def test_mx_scales_worked_out_by_hand() -> None:
    """amax against the scale's exponent; e4m3: emax 8, max 448 = 1.75 * 2**8; e2m1: emax 2, max 6 = 1.5 * 2**2."""
    cases = {
        # amax: floor, ceil, rceil, even of e4m3; of e2m1
        1.0: ((-8, -8, -8, -8), (-2, -2, -2, -2)),
        1.5: ((-8, -7, -8, -8), (-2, -1, -2, -2)),
        1.5 + 2**-23: ((-8, -7, -8, -8), (-2, -1, -1, -2)),
        1.75 - 2**-23: ((-8, -7, -8, -8), (-2, -1, -1, -2)),
        1.75: ((-8, -7, -8, -8), (-2, -1, -1, -1)),  # 1.75 rounds to 2 in one mantissa bit
        1.75 + 2**-23: ((-8, -7, -7, -8), (-2, -1, -1, -1)),
        1.9375: ((-8, -7, -7, -7), (-2, -1, -1, -1)),  # 1.9375 rounds to 2 in three mantissa bits
        448.0: ((0, 1, 0, 0), (6, 7, 7, 7)),
        6.0: ((-6, -5, -6, -6), (0, 1, 0, 0)),
        2.0**-119: ((-127, -127, -127, -127), (-121, -121, -121, -121)),
        2.0**-149: ((-127,) * 4, (-127,) * 4),
        3.4028234663852886e38: ((119, 120, 120, 120), (125, 126, 126, 126)),
    }
    for amax, pairs in cases.items():
        for scheme, exponents in zip(("mxfp8_e4m3", "mxfp4"), pairs, strict=True):
            x = np.zeros(32, np.float32)
            x[7] = -amax
            found = tuple(int(quantize(x, scheme, rule=rule).scales.view(np.uint8)[0]) - 127 for rule in MX)
            assert found == exponents, (scheme, amax)


def test_mx_elements_worked_out_by_hand() -> None:
    """MXFP4, scale 2**-2: 1, 0.75, -0.3, 0.0625 (a tie of 0.25), 0.1875 (a tie of 0.75), 1.9 saturates at 6."""
    x = np.array([1, 0.75, -0.3, 0.0625, 0.1875, 1.9, -0.0, 1e-30], np.float32)
    q = quantize(x, "mxfp4")
    assert q.scales.astype(np.float32).tolist() == [0.25]
    assert q.elements.astype(np.float32).tolist() == [4, 3, -1, 0, 1, 6, 0, 0]
    assert q.elements.view(np.uint8).tolist() == [6, 5, 10, 0, 2, 7, 8, 0]
    assert quantize(x, "mxfp4", rounding="zero").elements.astype(np.float32).tolist() == [4, 3, -1, 0, 0.5, 6, 0, 0]
    assert quantize(x, "mxfp4", rule="rceil").elements.astype(np.float32).tolist() == [2, 1.5, -0.5, 0, 0.5, 4, 0, 0]


def test_nvfp4_worked_out_by_hand() -> None:
    """amax 2688 makes the global scale 1: blocks of 2688 and of 6 * 1.0625 (a tie of e4m3 between 1 and 1.125) have scales 448 and 1."""
    x = np.zeros((1, 48), np.float32)
    x[0, 0], x[0, 16], x[0, 17], x[0, 18] = 2688, 6.375, -2.5, 5.0
    for rule in EXPECTED["nvfp4"][2]:
        q = quantize(x, "nvfp4", rule=rule)
        assert q.global_scale == 1
        assert q.scales.astype(np.float32).tolist() == [[448, 1, 2**-6 if rule == "torchao" else 0]]
        assert q.elements[0, [0, 16, 17, 18]].astype(np.float32).tolist() == [6, 6, -2, 4]
    assert quantize(np.zeros((2, 16), np.float32), "nvfp4").global_scale == 1
    assert quantize(np.float32([[3]]), "nvfp4").global_scale == np.float32(3) / np.float32(2688)


# scales, and the start of the sha256 of the elements' codes (e2m1 packed, low nibble first), by libraries on torch 2.13.0 (CPU).
# torchao 0.18.0: to_mx(x, element, 32, rule), and nvfp4_quantize(x, 16, amax / (448 * 6)). "te": the steps of TransformerEngine's
# quantization_nvfp4.py (1a4d3b0). "deepgemm": those of DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8 (38939a4)
RECORDED = {
    ("mxfp8_e4m3", "floor"): ("7d7d7d7e7e7e7d7e", "5e1615076beb0114"),
    ("mxfp8_e4m3", "ceil"): ("7e7e7e7f7f7f7e7f", "db2ea0895fc358bc"),
    ("mxfp8_e4m3", "rceil"): ("7e7d7e7e7f7e7e7e", "4abaf3e56d3e1284"),
    ("mxfp8_e4m3", "even"): ("7d7d7d7e7f7e7d7e", "111a9d792c3f8f32"),
    ("mxfp8_e5m2", "floor"): ("7676767777777677", "752b2d0e3474c6ef"),
    ("mxfp8_e5m2", "ceil"): ("7777777878787778", "a9dff1a501d567d2"),
    ("mxfp8_e5m2", "rceil"): ("7776777778777777", "3a82ce11767d98b2"),
    ("mxfp8_e5m2", "even"): ("7776777778777777", "3a82ce11767d98b2"),
    ("mxfp6_e3m2", "floor"): ("8181818282828182", "7a960c49b8788aa8"),
    ("mxfp6_e3m2", "ceil"): ("8282828383838283", "8233491b9ac7fdcb"),
    ("mxfp6_e3m2", "rceil"): ("8281828283828282", "4269923d5ccbc9ed"),
    ("mxfp6_e3m2", "even"): ("8281828283828282", "4269923d5ccbc9ed"),
    ("mxfp6_e2m3", "floor"): ("8383838484848384", "d9ad2ae30eedc72d"),
    ("mxfp6_e2m3", "ceil"): ("8484848585858485", "04d529a7932df450"),
    ("mxfp6_e2m3", "rceil"): ("8483848485848484", "28d4f545a69e5c67"),
    ("mxfp6_e2m3", "even"): ("8383838485848384", "03f6f9129cbf6248"),
    ("mxfp4", "floor"): ("8383838484848384", "c422ec2b7204dd32"),
    ("mxfp4", "ceil"): ("8484848585858485", "753b64a187d10f4c"),
    ("mxfp4", "rceil"): ("8484848585848484", "e76ea3cfecc82fdf"),
    ("mxfp4", "even"): ("8483848485848484", "a21e9d79378be03f"),
    ("nvfp4", "torchao"): ("757571737670757c7e7679707476747a", "33151bfbab70dd1c"),
    ("nvfp4", "te"): ("757571737670757c7e7679707476747a", "33151bfbab70dd1c"),
    ("nvfp4_16x16", "te"): ("7e", "b5d5992d414211f1"),
    ("fp8_1x128", "deepgemm"): ("6239f83ebedd0e3f", "a6e76de04d6dfdf6"),
    ("fp8_128x128", "deepgemm"): ("bedd0e3f", "a18cbb0acafc4fd2"),
}


def of_splitmix() -> NDArray[np.float32]:
    """24 bits times 2**-30 to 2**-15, of the outputs of SplitMix64 with the seed 2026."""
    words = [exact.splitmix64(2026, index) for index in range(256)]
    return np.array([((word >> 40) - (1 << 23)) * 2.0 ** ((word & 15) - 30) for word in words], np.float32).reshape(4, 64)


# the start of the sha256 of the values, zeros without sign, by the steps of microxcaling's _quantize_mx (3b429a8), round="even"
MICROXCALING = {
    "mxfp8_e4m3": "0870aa4ad3768f00",
    "mxfp8_e5m2": "9b0841439603fc7c",
    "mxfp6_e3m2": "c8b5873d71f6e56b",
    "mxfp6_e2m3": "8a3e6f546bff7532",
    "mxfp4": "8d4dd787e6b51807",
}
COLUMNS = {"nvfp4_16x16": 16, "fp8_1x128": 128, "fp8_128x128": 128}


@pytest.mark.parametrize(("scheme", "rule"), RECORDED)
def test_what_libraries_gave(scheme: str, rule: str) -> None:
    q = quantize(of_splitmix().reshape(-1, COLUMNS.get(scheme, 64)), scheme, rule=rule)
    elements = pack_e2m1(q.elements) if EXPECTED[scheme][0] == "e2m1" else q.elements.view(np.uint8)
    digest = hashlib.sha256(elements.tobytes()).hexdigest()[:16]
    assert (q.scales.tobytes().hex(), digest) == RECORDED[scheme, rule]


@pytest.mark.parametrize("scheme", MICROXCALING)
def test_what_microxcaling_gave(scheme: str) -> None:
    values = quantize(of_splitmix(), scheme).dequantize() + np.float32(0)
    assert hashlib.sha256(values.tobytes()).hexdigest()[:16] == MICROXCALING[scheme]


def test_float_scales_worked_out_by_hand() -> None:
    x = np.float32([[448, 1, -17], [0, 0, 0], [896, 1, -300]])
    q = quantize(x, "fp8_row")
    assert q.scales.tolist() == [[1], [1], [2]]
    # 17 lies between 16 and 18: the tie goes to 16; 0.5 and 150 of the last row: 150 lies between 144 and 160
    assert q.elements.astype(np.float32).tolist() == [[448, 1, -16], [0, 0, 0], [448, 0.5, -144]]
    assert quantize(x, "fp8_tensor").scales.tolist() == [[2]]
    assert quantize(x, "fp8_row", rule="deepgemm").scales.tolist()[1] == [np.float32(1e-4) / np.float32(448)]
    q = quantize(np.float32([[254, 1, 3, -254]]), "int8_row")
    assert (q.scales.tolist(), q.elements.tolist()) == ([[2]], [[127, 0, 2, -127]])


def test_float64_is_rounded_once() -> None:
    """1 + 2**-4 is a tie of e4m3; what is above it by 2**-40 is none, though it is in float32."""
    x = np.array([1 + 2.0**-4 + 2.0**-40, 1 + 2.0**-4, 256.0])
    assert quantize(x, "mxfp8").elements.astype(np.float64).tolist() == [1.125, 1, 256]
    assert quantize(x.astype(np.float32), "mxfp8").elements.astype(np.float64).tolist() == [1, 1, 256]


def test_float64_beyond_the_scales() -> None:
    x = np.array([1e300, -1e-300, 1.0])
    q = quantize(x, "mxfp8")
    assert q.scales.view(np.uint8).tolist() == [254]
    assert q.elements.astype(np.float64).tolist() == [448, 0, 0]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PAIRS),
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.sampled_from(["nearest", "zero"]),
)
def test_any_floats(pair: tuple[str, str], values: list[float], rounding: str) -> None:
    x = np.array(values, np.float32).reshape(1, -1)
    agree(quantize(x, pair[0], rule=pair[1], rounding=rounding), slowly(x, pair[0], -1, pair[1], rounding))


@pytest.mark.parametrize("scheme", EXPECTED)
def test_values_are_as_near_as_the_format_allows(scheme: str) -> None:
    """A quantised value differs from its element by at most half a step of the largest in its block."""
    x = adversarial((130, 140), np.float32, "normal")
    rule = "rceil" if "ceil" in EXPECTED[scheme][2] else None
    q = quantize(x, scheme, rule=rule)
    grid = exact.magnitudes(EXPECTED[scheme][0])
    step = float((grid[-1] - grid[-2]) / grid[-1])
    for _, part in blocks(x.shape, scheme, -1):
        amax = abs(x[part]).max()
        assert abs(q.dequantize()[part] - x[part]).max() <= 1.07 * step * amax


def identical(a: ScaledArray, b: ScaledArray) -> bool:
    same = np.array_equal(a.elements.view(np.uint8), b.elements.view(np.uint8))
    return same and np.array_equal(a.scales.view(np.uint8), b.scales.view(np.uint8)) and a.global_scale == b.global_scale


OPTIONS = ({}, {"rounding": "stochastic", "seed": 3})


@pytest.mark.parametrize("scheme", EXPECTED)
def test_threads_do_not_matter(scheme: str) -> None:
    x = adversarial((300, 2000), np.float32, "spread")
    for axis, options in itertools.product((0, 1), OPTIONS):
        one, *rest = (quantize(x, scheme, axis=axis, threads=threads, **options) for threads in (1, 2, 5))
        assert all(identical(one, q) for q in rest)


@pytest.mark.parametrize(("scheme", "rule"), PAIRS)
def test_the_callers_rounding_mode_does_not_matter(scheme: str, rule: str) -> None:
    x = adversarial((70, 400), np.float32, "spread")
    library = ctypes.CDLL(None)
    arm = platform.machine().lower() in ("arm64", "aarch64")
    wanted = [quantize(x, scheme, rule=rule, **options) for options in OPTIONS]
    before = library.fegetround()
    for mode in (0x400000, 0x800000, 0xC00000) if arm else (0x400, 0x800, 0xC00):
        library.fesetround(mode)
        try:
            found = [quantize(x, scheme, rule=rule, threads=threads, **options) for options in OPTIONS for threads in (1, 2)]
            after = library.fegetround()
        finally:
            library.fesetround(before)
        assert after == mode
        assert all(identical(wanted[i // 2], q) for i, q in enumerate(found))


def test_long_blocks_are_cut_for_threads() -> None:
    x = adversarial((3, 200_001), np.float32, "normal")
    x[1, 199_999] = 77
    for scheme in ("fp8_tensor", "fp8_row", "int8_row"):
        assert quantize(x, scheme).scales.max() == np.float32(77) / np.float32(127 if scheme == "int8_row" else 448)
    x[2, 3] = np.nan
    assert np.isnan(quantize(x, "fp8_row").scales).reshape(-1).tolist() == [False, False, True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_input_is_not_modified(dtype: type) -> None:
    x = adversarial((5, 33), dtype, "normal")
    x.flags.writeable = False
    before = x.copy()
    quantize(x, "nvfp4")
    assert np.array_equal(x.view(np.uint8), before.view(np.uint8))


def test_byte_order_and_lists() -> None:
    x = adversarial((5, 33), np.float32, "normal")
    for form in (x.astype(">f4"), x.astype(np.float64).tolist()):
        assert np.array_equal(quantize(form, "mxfp4").elements.view(np.uint8), quantize(x, "mxfp4").elements.view(np.uint8))


SPELLINGS = [
    ({"scheme": "mxfp8"}, {"scheme": "mxfp8_e4m3"}),
    ({"scheme": "MXFP8-E5M2"}, {"scheme": "mxfp8_e5m2"}),
    ({"scheme": "mxfp6"}, {"scheme": "mxfp6_e3m2"}),
    ({"scheme": "mxfp4_e2m1"}, {"scheme": "mxfp4"}),
    ({"scheme": "NVFP4"}, {"scheme": "nvfp4"}),
    ({"scheme": "fp8_per_tensor"}, {"scheme": "fp8_tensor"}),
    ({"scheme": "fp8-rowwise"}, {"scheme": "fp8_row"}),
    ({"scheme": "fp8_blockwise_1x128"}, {"scheme": "fp8_1x128"}),
    ({"scheme": "int8"}, {"scheme": "int8_row"}),
    ({"scheme": SCHEMES["mxfp4"]}, {"scheme": "mxfp4"}),
    ({"scheme": "mxfp4", "rule": "RCEIL"}, {"scheme": "mxfp4", "rule": "rceil"}),
    ({"scheme": "mxfp4", "rule": "ocp"}, {"scheme": "mxfp4", "rule": "floor"}),
    ({"scheme": "nvfp4", "rule": "transformer-engine"}, {"scheme": "nvfp4", "rule": "te"}),
    ({"scheme": "fp8_row", "rule": "transformer_engine"}, {"scheme": "fp8_row", "rule": "te"}),
    ({"scheme": "mxfp4", "rounding": "nearest-even"}, {"scheme": "mxfp4", "rounding": "nearest"}),
    ({"scheme": "mxfp4", "rounding": "toward zero"}, {"scheme": "mxfp4", "rounding": "zero"}),
    ({"scheme": "mxfp4", "rounding": "RZ", "seed": 5}, {"scheme": "mxfp4", "rounding": "zero"}),
    ({"scheme": "mxfp4", "rounding": "Stochastic", "seed": 5}, {"scheme": "mxfp4", "rounding": "stochastic", "seed": 5}),
]


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS)
def test_spellings(spelling: dict[str, Any], name: dict[str, Any]) -> None:
    x = adversarial((5, 64), np.float32, "normal")
    found, wanted = quantize(x, **spelling), quantize(x, **name)
    assert found.scheme == wanted.scheme == name["scheme"]
    assert np.array_equal(found.elements.view(np.uint8), wanted.elements.view(np.uint8))
    assert np.array_equal(found.scales.view(np.uint8), wanted.scales.view(np.uint8))


def test_no_name_means_two_things() -> None:
    rules = [[RULES[scheme.scale, name] for name in scheme.rules] for scheme in SCHEMES.values()]
    for rows in (SCHEMES.values(), ROUNDINGS.values(), *rules):
        names = [text for row in rows for text in (row.name, *row.aliases)]
        assert len(set(names)) == len(names)


GOOD = np.ones((4, 64), np.float32)
BAD = [
    ({"scheme": "mxfp5"}, fastmma.OperandError, "scheme must be one of mxfp8_e4m3, .*, int8_row, not 'mxfp5'"),
    ({"scheme": None}, fastmma.OperandError, "scheme must be one of"),
    ({"scheme": ["mxfp4"]}, fastmma.OperandError, "scheme must be one of"),
    ({"rule": "round"}, fastmma.OperandError, "rule of mxfp4 must be one of floor, ceil, rceil, even, not 'round'"),
    ({"rule": "amax"}, fastmma.OperandError, "rule of mxfp4 must be one of"),
    ({"rule": ["floor"]}, fastmma.OperandError, "rule of mxfp4 must be one of"),
    ({"rule": GOOD}, fastmma.OperandError, "rule of mxfp4 must be one of"),
    ({"rounding": GOOD}, fastmma.OperandError, "rounding must be one of"),
    ({"rounding": "up"}, fastmma.OperandError, "rounding must be one of nearest, zero, stochastic, not 'up'"),
    ({"rounding": "stochastic"}, fastmma.OperandError, "needs seed=, an integer"),
    ({"rounding": "stochastic", "seed": -1}, fastmma.OperandError, "needs seed=, an integer"),
    ({"rounding": "stochastic", "seed": 2**64}, fastmma.OperandError, "needs seed=, an integer"),
    ({"rounding": "stochastic", "seed": 1.5}, fastmma.OperandError, "needs seed=, an integer"),
    ({"seed": "1"}, fastmma.OperandError, "seed must be an integer"),
    ({"axis": 2}, fastmma.OperandError, r"axis must be an integer from -2 to 1 .* not 2"),
    ({"axis": -3}, fastmma.OperandError, "axis must be"),
    ({"axis": None}, fastmma.OperandError, "axis must be"),
    ({"axis": 1.0}, fastmma.OperandError, "axis must be"),
    ({"threads": 0}, fastmma.OperandError, "threads must be"),
    ({"x": GOOD[:, :40], "pad": False}, fastmma.OperandError, r"\(4, 40\) does not divide into blocks \(1, 32\) of mxfp4: pass pad=True"),
    ({"x": GOOD, "pad": False, "axis": 0}, fastmma.OperandError, "pass pad=True"),
    ({"x": np.float32(1)}, fastmma.OperandError, "at least 1 dimension"),
    ({"x": GOOD[0], "scheme": "fp8_128x128"}, fastmma.OperandError, "at least 2 dimension"),
    ({"x": GOOD.astype(np.int32)}, fastmma.OperandTypeError, "x must have dtype float16, bfloat16, float32, float64, not int32"),
    ({"x": GOOD.astype(np.complex64)}, fastmma.OperandTypeError, "not complex64"),
    ({"x": GOOD.astype(object)}, fastmma.OperandTypeError, "not of Python objects"),
    ({"x": GOOD.astype(ml_dtypes.float8_e4m3fn)}, fastmma.OperandTypeError, "not float8_e4m3fn"),
    ({"x": GOOD.astype(np.longdouble)}, fastmma.OperandTypeError, "x must have dtype"),
    ({"x": np.ma.masked_array(GOOD)}, fastmma.OperandTypeError, "mask"),
    ({"x": [[1.0], [1.0, 2.0]]}, fastmma.OperandTypeError, "x must be an array"),
    ({"x": "text"}, fastmma.OperandTypeError, "x must have dtype"),
]


@pytest.mark.parametrize(("change", "error", "says"), BAD)
def test_bad_input(change: dict[str, object], error: type[Exception], says: str) -> None:
    call: dict[str, object] = {"x": GOOD, "scheme": "mxfp4"} | change
    with pytest.raises(error, match=says):
        quantize(call.pop("x"), call.pop("scheme"), **call)


def test_the_reference_counts_as_the_specifications_do() -> None:
    """Largest, smallest normal and smallest subnormal numbers of OCP OFP8 1.0, table 1, and OCP MX 1.0, table 2."""
    table = {"e4m3": (448, -6, -9), "e5m2": (57344, -14, -16), "e3m2": (28, -2, -4), "e2m3": (7.5, 0, -3), "e2m1": (6, 0, -1)}
    for name, (largest, normal, subnormal) in table.items():
        grid = exact.magnitudes(name)
        assert (grid[-1], grid[1]) == (largest, Fraction(2) ** subnormal)
        assert grid[1 << exact.ELEMENTS[name].mantissa] == Fraction(2) ** normal
