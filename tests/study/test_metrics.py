"""Exact products and metrics of studies, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.studies import exact_product

from fastmma.isa.formats import FORMATS
from fastmma.study.exact import product, span
from fastmma.study.metrics import ULP_EDGES, Metrics, ulp


@pytest.mark.parametrize(("bits", "spread", "exact"), [(1, 3, True), (4, 12, True), (11, 20, True), (24, 8, True), (53, 300, False)])
def test_products_are_exact_where_they_say_so(bits: int, spread: int, exact: bool) -> None:
    rng = np.random.default_rng(bits)

    def draw(*shape: int) -> NDArray[np.float64]:
        significand = rng.integers(-(1 << bits) + 1, 1 << bits, shape).astype(np.float64)
        return np.ldexp(significand, rng.integers(-spread, spread + 1, shape))

    a, b = draw(3, 37), draw(37, 5)
    found = product(a, b, (bits, bits))
    assert found.exact == exact
    if exact:
        for i, row in enumerate(exact_product(a, b)):
            for j, value in enumerate(row):
                assert abs(Fraction(float(found.values[i, j])) - value) <= abs(value) * Fraction(1, 2**52)


def test_cancellation_leaves_what_a_float64_sum_would_lose() -> None:
    a = np.array([[2.0**40, 1.0, -(2.0**40), 2.0**-30]])
    b = np.array([[2.0**20], [2.0**-40], [2.0**20], [2.0**-30]])
    found = product(a, b, (1, 1))
    assert found.exact
    assert found.values.item() == 2.0**-40 + 2.0**-60
    assert (a @ b).item() != found.values.item()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_products_of_specials_are_not_called_exact(value: float) -> None:
    found = product(np.array([[value, 1.0]]), np.ones((2, 1)))
    assert not found.exact
    assert not np.isfinite(found.values).any()


@pytest.mark.parametrize("power", [-600, 600])
def test_products_beyond_the_range_of_float64_are_not_called_exact(power: int) -> None:
    huge = np.full((1, 1), 2.0**power)
    assert not product(huge, huge, (1, 1)).exact


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty_and_zero_products(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    found = product(np.zeros((m, k)), np.zeros((k, n)))
    assert found.exact
    assert found.values.shape == (m, n)
    assert not found.values.any()


def test_spans() -> None:
    assert span(np.array([3.0, -0.25]), 2) == (-3, 2)
    assert span(np.array([0.0]), 2) == (0, 0)
    assert span(np.array([1.0, np.inf]), 2) is None


# metrics


def test_ulp_is_the_spacing_of_the_format() -> None:
    for name, dtype, values in (
        ("f32", np.float32, [1.0, 1.5, 2.0**100, 2.0**-126, 2.0**-130, 0.0, 2.0**-149]),
        ("f16", np.float16, [1.0, 1000.0, 2.0**15, 2.0**-20, 0.0]),
    ):
        here = np.array(values, dtype=dtype)
        with np.errstate(under="ignore"):
            above = np.nextafter(here, dtype(np.inf)).astype(np.float64)
        assert ulp(-here.astype(np.float64), FORMATS[name]).tolist() == (above - here.astype(np.float64)).tolist()
    assert ulp(np.array([1e300]), FORMATS["f16"]).tolist() == [32.0]


def summary(d: Any, q: Any, x: Any) -> dict[str, Any]:
    metrics = Metrics(FORMATS["f32"])
    for blocks in zip(*(np.array_split(np.array(each, dtype=np.float64), 2) for each in (d, q, x)), strict=True):
        metrics.add(*blocks)
    return metrics.summary()


def test_metrics_by_hand() -> None:
    # errors of accumulation: -1, +1, -1, 0; of quantisation: 0, 0, 2, -1; in all: -1, +1, 1, -1
    found = summary([2.0, -2.0, 6.0, 7.0], [3.0, -3.0, 7.0, 7.0], [3.0, -3.0, 5.0, 8.0])
    norm = math.sqrt(9 + 9 + 25 + 64)
    assert found["relative_error"] == pytest.approx(2 / norm, rel=1e-9)
    assert found["quantisation_error"] == pytest.approx(math.sqrt(5) / norm, rel=1e-9)
    assert found["accumulation_error"] == pytest.approx(math.sqrt(3) / norm, rel=1e-9)
    assert found["sqnr_db"] == pytest.approx(20 * math.log10(norm / 2), rel=1e-9)
    assert found["cosine"] == pytest.approx((6 + 6 + 30 + 56) / (math.sqrt(4 + 4 + 36 + 49) * norm), rel=1e-9)
    # the last place is 2**-22 from 2 to 4 and 2**-21 from 4 to 8
    assert found["max_ulp"] == 2.0**22
    assert found["mean_ulp"] == (2 * 2**22 + 2**21) / 4
    assert found["max_relative"] == pytest.approx(1 / 3, rel=1e-9)
    assert found["max_error"] == pytest.approx(1 / math.sqrt((9 + 9 + 49 + 49) / 4), rel=1e-9)
    assert found["bias"] == -1 / 20
    assert found["shrinkage"] == 3 / 20
    histogram = found["ulp_histogram"]
    assert [histogram[0], histogram[ULP_EDGES.index(2.0**21)], histogram[ULP_EDGES.index(2.0**22)]] == [1, 1, 2]
    assert sum(histogram) == found["compared"] == 4


def test_metrics_of_a_product_without_error() -> None:
    found = summary([1.0, -2.0, 0.0], [1.0, -2.0, 0.0], [1.0, -2.0, 0.0])
    assert (found["relative_error"], found["max_ulp"], found["bias"], found["cosine"]) == (0.0, 0.0, 0.0, 1.0)
    assert found["sqnr_db"] is None


def test_metrics_of_zeros() -> None:
    right = summary([0.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    assert (right["relative_error"], right["accumulation_error"], right["shrinkage"]) == (0.0, 0.0, 0.0)
    assert right["cosine"] is None
    wrong = summary([1.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    assert (wrong["relative_error"], wrong["bias"], wrong["max_error"]) == (None, None, None)
    assert (right["max_ulp"], right["mean_ulp"], wrong["max_ulp"], wrong["mean_ulp"]) == (0.0, 0.0, None, None)


def test_a_sum_that_cancels_does_not_decide_the_ulps() -> None:
    found = summary([2.0**-20, 1.0 + 2.0**-23], [0.0, 1.0], [0.0, 1.0])
    assert (found["max_ulp"], found["mean_ulp"]) == (1.0, 1.0)
    assert (found["ulp_histogram"][ULP_EDGES.index(1.0)], found["ulp_histogram"][-1]) == (1, 1)


def test_specials_are_left_out_and_counted() -> None:
    inf, nan = math.inf, math.nan
    found = summary([1.0, inf, nan, inf, 5.0, -inf], [1.0, inf, nan, 3.0, nan, inf], [1.0, 2.0, nan, 3.0, 5.0, inf])
    assert (found["compared"], found["left_out"], found["special_mismatches"]) == (1, 5, 3)
    assert found["relative_error"] == 0.0
    nothing = summary([nan], [nan], [nan])
    assert nothing["compared"] == 0
    assert nothing["relative_error"] is nothing["ulp_histogram"] is None


# cases
