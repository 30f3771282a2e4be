"""Quantisation against the definitions in fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import quantisation as exact
from reference.cases import cases
from reference.schemes import DTYPES, EXPECTED, PAIRS, adversarial, agree, blocks, slowly

from fastmma.scaling import RULES, SCHEMES, quantize


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


@cases(("scheme", "rule"), PAIRS)
def test_zeros_infinities_and_nans(scheme: str, rule: str) -> None:
    for special in ([np.nan], [np.inf], [-np.inf], [np.nan, np.inf], [0.0], [-0.0], [3.4e38], [2.0**-149]):
        x = adversarial((2, 140), np.float32, "normal")
        x[0, 5 : 5 + len(special)] = special
        x[1] = special[0]
        x[1, 70:] = -0.0
        agree(quantize(x, scheme, rule=rule), slowly(x, scheme, -1, rule))


@cases("scheme", [name for name, row in EXPECTED.items() if row[1][1] in (0, 1)])
@cases("size", [0, 1, 2, 31, 32, 33, 127, 1021])
def test_one_dimension(scheme: str, size: int) -> None:
    x = adversarial((size,), np.float32, "normal")
    if size:
        agree(quantize(x, scheme), slowly(x, scheme, 0, EXPECTED[scheme][2][0]))
    else:
        assert quantize(x, scheme).scales.size == 0


@cases("scheme", EXPECTED)
@cases("shape", [(0, 5), (5, 0), (0, 0), (2, 0, 3)])
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
    scheme = next(scheme for scheme, row in EXPECTED.items() if row[0] == name and row[1][1] == 1)
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


def test_the_reference_counts_as_the_specifications_do() -> None:
    """Largest, smallest normal and smallest subnormal numbers of OCP OFP8 1.0, table 1, and OCP MX 1.0, table 2."""
    table = {"e4m3": (448, -6, -9), "e5m2": (57344, -14, -16), "e3m2": (28, -2, -4), "e2m3": (7.5, 0, -3), "e2m1": (6, 0, -1)}
    for name, (largest, normal, subnormal) in table.items():
        grid = exact.magnitudes(name)
        assert (grid[-1], grid[1]) == (largest, Fraction(2) ** subnormal)
        assert grid[1 << exact.ELEMENTS[name].mantissa] == Fraction(2) ** normal
