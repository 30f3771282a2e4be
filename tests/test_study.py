"""Accuracy studies: metrics and exact products against fractions, whole cases against the reference, records that survive a kill."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import study
from fastmma.cli import main
from fastmma.formats import FORMATS
from fastmma.scaling import SCHEMES
from fastmma.study.distributions import generator
from fastmma.study.encoding import encoded, operand_format
from fastmma.study.exact import product, span
from fastmma.study.metrics import ULP_EDGES, Metrics, ulp
from fastmma.study.records import csv_text
from fastmma.study.report import markdown
from fastmma.study.runner import COLUMNS

SMALL = study.Grid(("e4m3", "f16"), ("sm_90a", study.IEEE), ((8, 8, 96), (8, 8, 320)), promote_every=(None, 32))


def fractions(array: NDArray[Any]) -> list[list[Fraction]]:
    return [[Fraction(float(value)) for value in row] for row in array]


def exact_product(a: NDArray[Any], b: NDArray[Any]) -> list[list[Fraction]]:
    left, right = fractions(a), list(zip(*fractions(b), strict=True))
    return [[sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in right] for row in left]


def root(value: Fraction) -> float:
    return math.sqrt(value)


# exact products


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
    assert wrong["max_ulp"] == pytest.approx(2.0**149, rel=1e-9)


def test_specials_are_left_out_and_counted() -> None:
    inf, nan = math.inf, math.nan
    found = summary([1.0, inf, nan, inf, 5.0, -inf], [1.0, inf, nan, 3.0, nan, inf], [1.0, 2.0, nan, 3.0, 5.0, inf])
    assert (found["compared"], found["left_out"], found["special_mismatches"]) == (1, 5, 3)
    assert found["relative_error"] == 0.0
    nothing = summary([nan], [nan], [nan])
    assert nothing["compared"] == 0
    assert nothing["relative_error"] is nothing["ulp_histogram"] is None


# cases


@pytest.mark.parametrize(("fmt", "target", "promote"), [("e4m3", "sm_90a", None), ("e5m2", "sm_89", 64), ("bf16", "sm_80", None)])
def test_record_against_the_reference(fmt: str, target: str, promote: int | None) -> None:
    case = study.Case(fmt, target, 5, 4, 200, promote_every=promote, seed=3)
    (record,) = study.run(case)
    x = generator(3, "a").standard_normal((5, 200), dtype=np.float32)
    y = generator(3, "b").standard_normal((4, 200), dtype=np.float32)
    dtype = FORMATS[fmt].dtype
    a, b = x.astype(dtype), y.astype(dtype)
    d = fastmma.gemm(a, b.T, target=target, promote_every=promote, backend="reference")
    original, rounded = exact_product(x, y.T), exact_product(a, b.T)
    cells = [(i, j) for i in range(5) for j in range(4)]
    norm = root(sum((original[i][j] ** 2 for i, j in cells), Fraction(0)))
    errors = {(i, j): Fraction(float(d[i, j])) - rounded[i][j] for i, j in cells}
    magnitude = sum(abs(rounded[i][j]) for i, j in cells)
    expected = {
        "relative_error": root(sum(((Fraction(float(d[i, j])) - original[i][j]) ** 2 for i, j in cells), Fraction(0))) / norm,
        "quantisation_error": root(sum(((rounded[i][j] - original[i][j]) ** 2 for i, j in cells), Fraction(0))) / norm,
        "accumulation_error": root(sum((error**2 for error in errors.values()), Fraction(0))) / norm,
        "bias": float(sum(errors.values()) / magnitude),
        "shrinkage": float(sum(-error if rounded[i][j] > 0 else error for (i, j), error in errors.items()) / magnitude),
        "max_relative": float(max(abs(errors[i, j] / rounded[i][j]) for i, j in cells)),
        "mse_a": float(np.square(a.astype(np.float64) - x).sum() / np.square(x.astype(np.float64)).sum()),
        "mse_b": float(np.square(b.astype(np.float64) - y).sum() / np.square(y.astype(np.float64)).sum()),
    }
    assert record["exact"] is True
    assert {name: record[name] for name in expected} == pytest.approx(expected, rel=2e-9)


def test_ieee_is_one_sum_in_ascending_k() -> None:
    case = study.Case("f16", study.IEEE, 3, 2, 50)
    (record,) = study.run(case)
    a = generator(0, "a").standard_normal((3, 50), dtype=np.float32).astype(np.float16).astype(np.float32)
    b = generator(0, "b").standard_normal((2, 50), dtype=np.float32).astype(np.float16).astype(np.float32)
    worst = Fraction(0)
    for i, row in enumerate(exact_product(a, b.T)):
        for j, exact in enumerate(row):
            total = np.float32(0)
            for k in range(50):
                total += a[i, k] * b[j, k]
            worst = max(worst, abs(Fraction(float(total)) - exact) / Fraction(float(np.spacing(np.abs(np.float32(exact))))))
    assert record["max_ulp"] == pytest.approx(float(worst), rel=1e-9)


def test_values_beyond_a_format_become_its_largest() -> None:
    (record,) = study.run(study.Case("e2m1", "sm_120a", 4, 4, 64, distribution="outliers"))
    assert record["left_out"] == 0
    assert 0 < record["quantisation_error"] < 1


@pytest.mark.parametrize("fmt", ["tf32", "e4m3,e5m2", "e3m2", "e2m3,e2m1"])
def test_formats(fmt: str) -> None:
    (record,) = study.run(study.Case(fmt, "sm_120a", 6, 5, 70))
    assert record["exact"]
    assert 0 < record["quantisation_error"] < 0.5
    assert record["accumulation_error"] < 1e-6


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_unscaled_operands(name: str, dtype: type) -> None:
    fmt = FORMATS[name]
    edges = [0.0, -0.0, fmt.min_subnormal / 2, fmt.min_subnormal * 1.5, fmt.max, fmt.max * 1.5, -fmt.max * 1.0001, 1 + 1e-7, np.inf]
    x = np.array([[value for value in edges if abs(value) < float(np.finfo(dtype).max) or np.isinf(value)]]).astype(dtype)
    codes = fastmma.encode(x, fmt, saturate=True)
    values = fastmma.decode(codes, fmt)
    expected = np.where(np.isinf(x), np.inf if fmt.specials == "ieee" else fmt.max, values)
    found = encoded(x, operand_format(name), generator(0, "a"), 1).values(np.arange(1))
    assert found.tolist() == expected.tolist()
    assert (np.signbit(found) == np.signbit(expected)).all()


def test_the_sample_is_a_part_of_the_whole_product() -> None:
    whole, part = study.run([study.Case("e4m3", "sm_90a", 300, 3, 64, sample=300), study.Case("e4m3", "sm_90a", 300, 3, 64, sample=20)])
    assert (whole["compared"], part["compared"]) == (900, 60)
    assert part["max_ulp"] <= whole["max_ulp"]
    assert part["mse_b"] == whole["mse_b"]


def test_the_sample_of_a_wide_product() -> None:
    records = study.run([study.Case("f16", "sm_90a", 40, 50, 64, sample=sample) for sample in (50, 45, 8)])
    assert [record["compared"] for record in records] == [2000, 40 * 45, 64]
    assert records[2]["max_ulp"] <= records[1]["max_ulp"] <= records[0]["max_ulp"]
    assert records[2]["relative_error"] == pytest.approx(records[0]["relative_error"], rel=0.2)


def test_results_do_not_depend_on_threads_or_on_neighbours() -> None:
    together = study.run(SMALL, threads=2)
    alone = [study.run(case, threads=1)[0] for case in SMALL.cases()]
    assert list(together) == alone
    assert all(list(record) == list(COLUMNS) for record in together)


def test_promotion_cures_the_growth_and_truncation_shrinks() -> None:
    grid = study.Grid(("e4m3",), ("sm_90a", study.IEEE), ((32, 32, 4096),), ("positive",), promote_every=(None, 128))
    plain, promoted, ieee = study.run(grid)
    assert plain["shrinkage"] > 20 * promoted["shrinkage"] > 0
    assert abs(ieee["shrinkage"]) < 1e-7


def test_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"case": "x", "k": 32}, {"case": "y", "k": 64}]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=SimpleNamespace(from_records=lambda rows: ("frame", rows))))
    assert study.Results(records).to_pandas() == ("frame", records)


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fastmma.BackendError, match="pip install pandas"):
        study.Results().to_pandas()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "e9m9"}, "no format 'e9m9'"),
        ({"format": "e4m3,e4m3,e4m3"}, "A and B"),
        ({"target": "sm_1"}, "sm_1"),
        ({"target": "sm_80"}, "sm_80 has no instruction for e4m3"),
        ({"distribution": "cauchy"}, "no distribution 'cauchy'"),
        ({"format": ["e4m3"]}, "format must be a string"),
        ({"target": None}, "target must be a string"),
        ({"k": 0}, "k must be an integer of at least 1"),
        ({"m": 2.5}, "m must be an integer"),
        ({"sample": 0}, "sample must be"),
        ({"seed": -1}, "seed must be"),
        ({"promote_every": 33}, "multiple of the instruction's k, 32"),
        ({"target": study.IEEE, "split_k": 2}, "neither promote_every nor split_k"),
    ],
)
def test_bad_cases(options: dict[str, Any], message: str) -> None:
    good = {"format": "e4m3", "target": "sm_90a", "m": 4, "n": 4, "k": 32}
    with pytest.raises(fastmma.FastmmaError, match=message):
        study.Case(**{**good, **options})


def test_bad_studies() -> None:
    with pytest.raises(fastmma.FastmmaError, match="no cases"):
        study.run(replace(SMALL, targets=()))
    with pytest.raises(fastmma.FastmmaError, match="Grids and Cases"):
        study.run(["e4m3"])  # type: ignore[list-item]
    with pytest.raises(fastmma.FastmmaError, match="formats must be a tuple of choices, not 'e4m3'"):
        replace(SMALL, formats="e4m3")
    with pytest.raises(fastmma.FastmmaError, match=r"a shape must be \(M, N, K\), not \(4, 4\)"):
        replace(SMALL, shapes=((4, 4),))


def test_a_key_names_the_whole_configuration() -> None:
    case = study.Case("e4m3", "sm_90a", 4, 4, 32)
    others = [
        {"format": "e5m2"},
        {"target": "sm_89"},
        {"m": 5},
        {"n": 5},
        {"k": 64},
        {"promote_every": 32},
        {"split_k": 2},
        {"distribution": "uniform"},
        {"weights": "w.npy 1"},
        {"activations": "a.npy 1"},
        {"seed": 1},
        {"sample": 7},
    ]
    keys = {case.key, *(replace(case, **other).key for other in others)}
    assert len(keys) == 1 + len(others) == 1 + len(case.__dataclass_fields__)


# formats with scales

SCALED = [*SCHEMES, "mxfp4:even", "nvfp4:stochastic", "nvfp4:zero"]


@pytest.mark.parametrize("name", SCALED)
def test_values_of_scaled_operands(name: str) -> None:
    fmt = operand_format(name)
    x = study.DISTRIBUTIONS["lognormal"].draw(generator(1, "a"), (37, 150))
    operand = encoded(x, fmt, generator(1, "a rounding"), 2)
    rows = np.array([0, 3, 30, 36])
    values = operand.values(rows)
    assert (values * operand.factor == operand.stored.dequantize(np.float64)[rows]).all()
    # every value is a whole number of units of its last significant bit
    nonzero = values[values != 0]
    _, exponent = np.frexp(nonzero)
    units = np.ldexp(nonzero, fmt.significand_bits - exponent)
    assert nonzero.size
    assert (units == np.rint(units)).all()


@pytest.mark.parametrize(
    ("name", "target", "promote"),
    [("nvfp4", "sm_120a", None), ("mxfp8_e4m3", "sm_120a", None), ("fp8_1x128,fp8_128x128", "sm_90a", None), ("int8_row", "sm_90a", None)],
)
def test_scaled_record_against_the_reference(name: str, target: str, promote: int | None) -> None:
    case = study.Case(name, target, 4, 3, 260, promote_every=promote, seed=5)
    (record,) = study.run(case)
    schemes = name.split(",")
    x = generator(5, "a").standard_normal((4, 260), dtype=np.float32)
    y = generator(5, "b").standard_normal((3, 260), dtype=np.float32)
    a, b = fastmma.scaling.quantize(x, schemes[0]), fastmma.scaling.quantize(y, schemes[-1])
    d = fastmma.scaled_matmul(a, b.T, target=target, backend="reference")
    original, rounded = exact_product(x, y.T), exact_product(a.dequantize(np.float64), b.dequantize(np.float64).T)
    cells = [(i, j) for i in range(4) for j in range(3)]
    norm = root(sum((original[i][j] ** 2 for i, j in cells), Fraction(0)))
    quantisation = root(sum(((rounded[i][j] - original[i][j]) ** 2 for i, j in cells), Fraction(0))) / norm
    accumulation = root(sum(((Fraction(float(d[i, j])) - rounded[i][j]) ** 2 for i, j in cells), Fraction(0))) / norm
    assert record["exact"]
    assert record["quantisation_error"] == pytest.approx(quantisation, rel=2e-9)
    assert record["accumulation_error"] == pytest.approx(accumulation, rel=2e-9, abs=1e-15)
    assert record["instruction"] == fastmma.scaled_plan(a, b.T, target=target).instruction


def test_ieee_takes_dequantised_values() -> None:
    tensor_core, ieee = study.run(study.Grid(("mxfp4",), ("sm_120a", study.IEEE), ((8, 8, 256),)))
    assert tensor_core["accumulation_error"] == ieee["accumulation_error"] == 0.0
    assert tensor_core["quantisation_error"] == ieee["quantisation_error"] > 0
    assert ieee["instruction"] is None


def test_stochastic_rounding_comes_from_the_seed() -> None:
    cases = [study.Case("nvfp4:stochastic", "sm_120a", 8, 8, 64, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (study.run(case)[0] for case in cases)
    assert first == again
    assert first["mse_a"] != other["mse_a"]
    assert first["mse_a"] != first["mse_b"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nvfp5", "no format 'nvfp5' for studies; there are tf32, f16,"),
        ("mxfp4:none", "mxfp4 has neither a rule nor a rounding 'none'; there are floor, ceil"),
        ("e4m3:floor", "no format 'e4m3:floor'"),
        ("nvfp4,e4m3", "one has scales and one has not"),
        ("nvfp4,", "no format ''"),
    ],
)
def test_bad_formats(name: str, message: str) -> None:
    with pytest.raises(fastmma.FastmmaError, match=message):
        study.Case(name, "sm_120a", 4, 4, 64)


# distributions


@pytest.mark.parametrize("name", study.DISTRIBUTIONS)
def test_distributions_come_from_the_seed(name: str) -> None:
    draw = study.DISTRIBUTIONS[name].draw
    first, again, other = (draw(generator(seed, "a"), (300, 200)) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert first.dtype == np.float32
    assert np.isfinite(first).all()


def test_distributions_are_what_they_say() -> None:
    drawn = {name: row.draw(generator(0, "a"), (500, 400)).astype(np.float64) for name, row in study.DISTRIBUTIONS.items()}
    assert abs(drawn["normal"].mean()) < 0.01
    assert abs(drawn["normal"].std() - 1) < 0.01
    assert -1 <= drawn["uniform"].min() < -0.99
    assert 0 <= drawn["positive"].min() < 0.01 < 0.99 < drawn["positive"].max() < 1
    logarithm = np.log(np.abs(drawn["lognormal"]))
    assert abs(logarithm.mean()) < 0.01
    assert abs(logarithm.std() - 1) < 0.01
    assert abs((drawn["lognormal"] < 0).mean() - 0.5) < 0.01
    deviations = drawn["outliers"].std(axis=0)
    assert sorted(deviations > 10)[-5:] == [False, True, True, True, True]


# records


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def check_files(folder: Path, expected: list[dict[str, Any]]) -> None:
    """Both files hold exactly these records, well-formed."""
    assert lines(folder) == expected
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in rows] == [list(COLUMNS)] * len(expected)
    for row, record in zip(rows, expected, strict=True):
        assert row["case"] == record["case"]
        assert float(row["relative_error"]) == record["relative_error"]
        assert json.loads(row["ulp_histogram"]) == record["ulp_histogram"]
        assert row["promote_every"] == ("" if record["promote_every"] is None else str(record["promote_every"]))


def test_a_study_is_written_and_not_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = study.run(SMALL, tmp_path)
    check_files(tmp_path, results)
    before = (tmp_path / "results.jsonl").read_bytes()
    monkeypatch.setattr("fastmma.study.runner._measure", None)
    assert study.run(SMALL, tmp_path) == results
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_a_folder_holds_more_than_one_study(tmp_path: Path) -> None:
    first = study.run(study.Case("e4m3", "sm_90a", 4, 4, 32), tmp_path)
    second = study.run(study.Case("e4m3", "sm_89", 4, 4, 32), tmp_path)
    check_files(tmp_path, [*first, *second])


def test_a_record_without_all_columns_is_computed_again(tmp_path: Path) -> None:
    results = study.run(SMALL, tmp_path)
    file = tmp_path / "results.jsonl"
    first, rest = file.read_bytes().split(b"\n", 1)
    file.write_bytes(json.dumps({name: value for name, value in json.loads(first).items() if name != "cosine"}).encode() + b"\n" + rest)
    assert study.run(SMALL, tmp_path) == results
    assert lines(tmp_path)[1:] == [*results[1:], results[0]]


def test_a_line_cut_off_is_computed_again(tmp_path: Path) -> None:
    results = study.run(SMALL, tmp_path)
    file = tmp_path / "results.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[:-40])
    (tmp_path / "results.csv").unlink()
    assert study.run(SMALL, tmp_path) == results
    assert file.read_bytes() == content
    check_files(tmp_path, results)


def test_what_is_no_record_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"case": "x"}\nnot json\n')
    with pytest.raises(fastmma.FastmmaError, match="line 2 is no record"):
        study.run(SMALL, tmp_path)
    assert file.read_text() == '{"case": "x"}\nnot json\n'


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fastmma.FastmmaError, match="cannot write results there"):
        study.run(SMALL, tmp_path / "file")


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = study.run(SMALL)
    synced: list[int] = []

    def sync(file: int) -> None:
        synced.append(file)
        if len(synced) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", sync)
    with pytest.raises(fastmma.FastmmaError, match="cannot write results there: No space left"):
        study.run(SMALL, tmp_path)
    monkeypatch.undo()
    check_files(tmp_path, whole[:3])
    assert study.run(SMALL, tmp_path) == whole
    check_files(tmp_path, whole)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")

    def nested(*_: Any) -> None:
        study.run(SMALL, tmp_path)

    with pytest.raises(fastmma.FastmmaError, match="another study is writing"):
        study.run(SMALL, tmp_path, progress=nested)


def test_csv_of_awkward_values() -> None:
    text = csv_text([{"a": 'x, "y"', "b": [1], "c": None, "d": True}], ["a", "b", "c", "d"])
    assert list(csv.reader(text.splitlines())) == [["a", "b", "c", "d"], ['x, "y"', "[1]", "", "True"]]


LONG = ["study", "--format", "e4m3", "--format", "f16", "--target", "sm_90a", "--target", "ieee-f32"]
LONG += [word for k in range(32, 160, 32) for word in ("--shape", f"16x16x{k}")]
# the command, which stands still when its fourth record is being written
STOPPING = """
import os, signal, sys, time
from fastmma.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sync, calls = os.fsync, []
def fsync(file):
    calls.append(file)
    time.sleep(600 if len(calls) == 4 else 0)
    sync(file)
os.fsync = fsync
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
@pytest.mark.parametrize("kill", ["SIGKILL", "SIGINT"])
def test_a_killed_study_goes_on_where_it_was(kill: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*LONG, "--output", str(whole)]) == 0
    expected = lines(whole)
    command = [sys.executable, "-c", STOPPING, *LONG, "--output", str(broken)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    file = broken / "results.jsonl"
    while process.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") == 4):
        time.sleep(0.01)
    process.send_signal(signal.Signals[kill])
    _, said = process.communicate(timeout=60)
    assert lines(broken) == expected[:4]
    if kill == "SIGINT":
        assert process.returncode == 130
        assert said == f"fastmma: interrupted; what was computed is in {file}; the same command goes on from there\n"
        check_files(broken, expected[:4])
    assert main([*LONG, "--output", str(broken)]) == 0
    check_files(broken, expected)
    for name in ("results.jsonl", "results.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


# files of tensors


def safetensors(path: Path, header: Any, data: bytes) -> str:
    """A file as the format's description has it: eight bytes of length, the header, the elements."""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return str(path)


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.trace, "executed"))


def test_numpy_files(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float16).reshape(2, 2, 3) / 4
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", first=values.astype(np.float64), second=values[0].T)
    assert study.read(tmp_path / "x.npy").values.tolist() == values.reshape(4, 3).tolist()
    first, second = (study.read(f"{tmp_path}/x.npz::{name}") for name in ("first", "second"))
    assert (first.values.dtype, second.values.dtype) == (np.float64, np.float32)
    assert second.values.tolist() == values[0].T.tolist()
    assert len({first.digest, second.digest, study.read(tmp_path / "x.npy").digest}) == 3


def test_safetensors_files(tmp_path: Path) -> None:
    # bf16 0x3fc0 is 1.5 and 0xc000 is -2; e4m3 0x38 is 1 and 0x7e is 448; e5m2 0x3c is 1 and 0xbe is -1.5
    data = bytes([0xC0, 0x3F, 0x00, 0xC0, 0x38, 0x7E, 0x3C, 0xBE]) + np.array([0.25, -3.0], "<f4").tobytes() + bytes([1, 2])
    header = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]},
        "e4": {"dtype": "F8_E4M3", "shape": [2, 1], "data_offsets": [4, 6]},
        "e5": {"dtype": "F8_E5M2", "shape": [1, 2], "data_offsets": [6, 8]},
        "f": {"dtype": "F32", "shape": [1, 2], "data_offsets": [8, 16]},
        "i": {"dtype": "U8", "shape": [1, 2], "data_offsets": [16, 18]},
    }
    file = safetensors(tmp_path / "m.safetensors", header, data)
    found = {name: study.read(f"{file}::{name}").values.tolist() for name in ("b", "e4", "e5", "f")}
    assert found == {"b": [[1.5, -2.0]], "e4": [[1.0], [448.0]], "e5": [[1.0, -1.5]], "f": [[0.25, -3.0]]}
    with pytest.raises(fastmma.FastmmaError, match="elements of type U8"):
        study.read(f"{file}::i")
    with pytest.raises(fastmma.FastmmaError, match=r"name one of its tensors as m.safetensors::NAME; it has b, e4, e5, f, i"):
        study.read(file)
    with pytest.raises(fastmma.FastmmaError, match="has no tensor 'x'"):
        study.read(f"{file}::x")


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\x05",
        (1 << 62).to_bytes(8, "little"),
        (4).to_bytes(8, "little") + b"null",
        (2).to_bytes(8, "little") + b"{x",
        (60).to_bytes(8, "little") + b'{"t": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 999]}}'[:60],
    ],
)
def test_damaged_safetensors(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(damage)
    with pytest.raises(fastmma.FastmmaError, match=r"is no readable \.safetensors file"):
        study.read(tmp_path / "m.safetensors")


@pytest.mark.parametrize("offsets", [[0, 999], [-4, 12], [8, 4], [0, 12], ["a", 4], [0, 16, 32], None])
def test_safetensors_that_point_elsewhere(offsets: Any, tmp_path: Path) -> None:
    header = {"t": {"dtype": "F32", "shape": [2, 2], "data_offsets": offsets}}
    file = safetensors(tmp_path / "m.safetensors", header, bytes(16))
    with pytest.raises(fastmma.FastmmaError, match=r"is no readable \.safetensors file"):
        study.read(file)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.empty((1, 1), dtype=object)
    objects[0, 0] = Bomb(tmp_path / "trace")
    np.save(tmp_path / "o.npy", objects)
    np.savez(tmp_path / "o.npz", objects)
    (tmp_path / "p.npy").write_bytes((tmp_path / "o.npy").read_bytes()[128:])
    for name in ("o.npy", "o.npz", "p.npy"):
        with pytest.raises(fastmma.FastmmaError, match="holds Python objects, which are never unpickled"):
            study.read(tmp_path / name)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x.npy", np.ones(3, np.float32), "must be a matrix"),
        ("x.npy", np.ones((0, 3), np.float32), "must be a matrix with elements"),
        ("x.npy", np.ones((2, 3), np.int32), "floating-point numbers, not int32"),
        ("x.npy", np.ones((2, 3), np.complex64), "floating-point numbers"),
        ("x.npy", np.zeros((2, 3), "V2"), "raw elements"),
        ("x.npy", np.zeros((2, 3), [("a", "f4")]), "raw elements"),
    ],
)
def test_arrays_that_are_no_matrices(name: str, array: NDArray[Any], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / name, array)
    with pytest.raises(fastmma.FastmmaError, match=message):
        study.read(tmp_path / name)


@pytest.mark.skipif(os.name == "nt", reason="named pipes are those of POSIX")
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    for name, message in (
        ("x.npz", "no readable"),
        ("none.npy", "no such file"),
        ("x.pt", r"end in \.npy, \.npz, \.safetensors"),
        ("folder.npy", "folder"),
        ("pipe.npy", "is a pipe"),
    ):
        with pytest.raises(fastmma.FastmmaError, match=message):
            study.read(tmp_path / name)


def test_tensors_in_a_study(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    activations = np.random.default_rng(1).standard_normal((2, 2, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", w=weights, x=activations)
    files = [f"{tmp_path}/x.npz::w", f"{tmp_path}/x.npz::x"]
    grid = study.Grid(("e4m3",), ("sm_90a",), ((9, 9, 9),))
    (with_weights,) = study.run(grid, tensors=files[:1])
    assert (with_weights["m"], with_weights["n"], with_weights["k"]) == (9, 6, 64)
    (with_both,) = study.run(grid, tensors=files)
    assert (with_both["m"], with_both["n"], with_both["k"], with_both["compared"]) == (4, 6, 64, 24)
    opcode = "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3"
    d = fastmma.gemm(activations.reshape(4, 64), weights.T, target="sm_90a", cast=True, instruction=opcode)
    exact = activations.reshape(4, 64).astype(np.float64) @ weights.T.astype(np.float64)
    assert with_both["relative_error"] == pytest.approx(np.linalg.norm(d - exact) / np.linalg.norm(exact), rel=1e-6)
    np.savez(tmp_path / "x.npz", w=weights + 1, x=activations)
    assert study.run(grid, tensors=files)[0]["case"] != with_both["case"]
    np.save(tmp_path / "y.npy", weights[:, :32])
    with pytest.raises(fastmma.FastmmaError, match="different K"):
        study.run(grid, tensors=[files[0], tmp_path / "y.npy"])
    with pytest.raises(fastmma.FastmmaError, match="at most two"):
        study.run(grid, tensors=[*files, files[0]])


def test_tensors_with_specials(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    weights[2, 5], weights[4, 6] = np.nan, np.inf
    np.save(tmp_path / "w.npy", weights)
    grid = study.Grid(("bf16", "mxfp8_e4m3"), ("sm_120a",), ((8, 8, 8),))
    plain, scaled = study.run(grid, tensors=[tmp_path / "w.npy"])
    # a NaN of B makes a column of the product NaN; the infinity is one in the original product, whatever a format makes of it
    assert (plain["compared"], plain["left_out"], plain["special_mismatches"]) == (32, 16, 0)
    assert (scaled["compared"], scaled["left_out"], scaled["special_mismatches"]) == (32, 16, 0)
    assert not plain["exact"]
    assert plain["relative_error"] < 0.01 < scaled["relative_error"] < 0.1
    with pytest.raises(fastmma.FastmmaError, match="holds NaN, and e2m1 has none"):
        study.run(replace(grid, formats=("e2m1",)), tensors=[tmp_path / "w.npy"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", SCHEMES)
def test_specials_in_scaled_tensors(name: str, value: float) -> None:
    """Results are finite where the exact product is, or are counted; nothing warns."""
    values = np.ones((3, 256), np.float32)
    values[1, 5] = value
    for target in ("sm_120a", study.IEEE):
        (record,) = study.run(study.Case(name, target, 4, 3, 256), tensors=[study.Tensor("w", "0", values)])
        assert record["compared"] + record["left_out"] == 12
        assert record["left_out"] >= 4


# reports, pictures and the command


def tiny(grid: study.Grid) -> study.Grid:
    """The same grid with small shapes: two depths that every promotion of it divides or exceeds."""
    depths = dict.fromkeys(96 if shape[2] == max(shape[2] for shape in grid.shapes) else 64 for shape in grid.shapes)
    return replace(grid, shapes=tuple((5, 4, depth) for depth in depths))


@pytest.mark.parametrize("name", study.PRESETS)
def test_presets(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    preset = study.PRESETS[name]
    assert preset.name == name
    cases = [case for grid in preset.grids for case in grid.cases()]
    assert len(set(cases)) == len(cases) > 10
    small = replace(preset, grids=tuple(map(tiny, preset.grids)))
    monkeypatch.setitem(study.PRESETS, name, small)
    assert main(["study", "--preset", name, "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    wanted = {case.key for grid in small.grids for case in grid.cases()}
    records = lines(tmp_path)
    assert {record["case"] for record in records} == wanted
    assert all(record["left_out"] == 0 for record in records)
    report = (tmp_path / "report.md").read_text()
    assert report.startswith(f"# {preset.question}\n\n```sh\nfastmma study --preset {name} --output {tmp_path}\n```\n")
    assert all(f"| {record['format']} | {record['target']}" in report for record in records)
    for file in ("report.md", "results.csv", "results.jsonl"):
        assert file in said


def test_the_report_names_the_command_that_makes_it_again(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((3, 64), np.float32))
    options = ["--format", "e4m3", "--format", "e4m3,e5m2", "--target", "sm_90a", "--shape", "4x3x64", "--distribution", "uniform"]
    options += ["--promote-every", "0", "--promote-every", "32", "--split-k", "2", "--input", f"{tmp_path}/w.npy", "--seed", "7"]
    assert main(["study", *options, "--sample", "2", "--output", str(tmp_path / "first")]) == 0
    command = (tmp_path / "first" / "report.md").read_text().split("```")[1].removeprefix("sh\n")
    words = shlex.split(command)
    assert words[:2] == ["fastmma", "study"]
    words[words.index("--output") + 1] = str(tmp_path / "again")
    assert main(words[1:]) == 0
    assert len(lines(tmp_path / "first")) == 4
    check_files(tmp_path / "again", lines(tmp_path / "first"))


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert (
        main(["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x64", "--shape", "4x4x128", "--output", str(tmp_path)]) == 0
    )
    report = (tmp_path / "report.md").read_text()
    for name in ("error_against_k.png", "sqnr.png", "ulp_histogram.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert f"({name})" in report


def test_many_lines_fit_into_the_pictures() -> None:
    pytest.importorskip("matplotlib")
    from fastmma.study import pictures

    (record,) = study.run(study.Case("e4m3", "sm_90a", 4, 4, 64))
    records = [record | {"promote_every": 32 * i, "distribution": law} for i in range(1, 41) for law in ("normal", "uniform")]
    names = {f"e4m3, sm_90a, promoted every {32 * i}" for i in range(1, 41)}
    lines, bars, histogram = (draw(records) for _, draw in pictures.PICTURES.values())
    for figure in (lines, bars, histogram):
        figure.draw_without_rendering()
    columns = [(lines, lines.legends[0].get_texts())]
    columns += [(figure, axes.get_yticklabels()) for figure in (bars, histogram) for axes in figure.axes]
    for figure, texts in columns:
        assert {text.get_text() for text in texts} == names
        extents = sorted((text.get_window_extent() for text in texts), key=lambda extent: extent.y0)
        assert all(0 <= extent.x0 < extent.x1 <= figure.bbox.width for extent in extents)
        assert extents[0].y0 >= 0
        assert extents[-1].y1 <= figure.bbox.height
        assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(extents))


def test_no_pictures_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x64", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "no pictures were drawn: pictures need matplotlib: pip install 'fastmma[plots]'" in said
    assert "png" not in (tmp_path / "report.md").read_text()


def test_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x256", "--promote-every", "0", "--promote-every", "128"]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "sm_90a, promoted every 128" in table
    assert "SQNR" in table
    assert main([*command, "--json", "--seed", "3", "--seed", "4", "--threads", "1"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [(record["seed"], record["promote_every"]) for record in records] == [(3, None), (3, 128), (4, None), (4, 128)]


def test_command_with_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "w.npy", np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32))
    assert main(["study", "--format", "e4m3", "--target", "sm_90a", "--input", f"{tmp_path}/w.npy", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["n"], record["k"]) == (6, 64)
    assert record["weights"].startswith(f"{tmp_path}/w.npy ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --preset (fp8-accumulators, "),
        (["--format", "e4m3"], "at least --format and --target"),
        (["--preset", "none"], "no preset 'none'"),
        (["--preset", "promotion", "--format", "e4m3"], "leave out --format"),
        (["--preset", "promotion", "--seed", "1"], "leave out --seed"),
        (
            ["--format", "e4m3", "--target", "sm_90a", "--shape", "4x4"],
            "--shape takes a size such as 1024x1024x1024 (M x N x K), not '4x4'",
        ),
        (["--format", "e4m3", "--target", "sm_70"], "sm_70 has no instruction"),
        (["--format", "e4m3", "--target", "sm_90a", "--input", "none.npy"], "none.npy: there is no such file"),
        (["--format", "e4m3", "--target", "sm_90a", "--output", "/dev/null/x"], "cannot write results there"),
        (["--format", "e4m3", "--target", "sm_90a", "--promote-every", "33"], "multiple of the instruction's k"),
    ],
)
def test_command_refuses_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_report_keeps_sizes_and_seeds_apart() -> None:
    grid = study.Grid(("e4m3",), ("sm_90a",), ((3, 4, 32), (5, 4, 32), (5, 4, 64)), seeds=(1, 2))
    text = markdown(study.run(grid), title="A title")
    headings = [line for line in text.splitlines() if line.startswith("## normal")]
    assert headings == [f"## normal, {m} x 4, seed {seed}: N(0, 1)" for seed in (1, 2) for m in (3, 5)]
    assert text.count("| e4m3 | sm_90a |") == 4


def test_report_of_undefined_metrics() -> None:
    (record,) = study.run(study.Case("e4m3", "sm_90a", 2, 2, 32))
    text = markdown([{**record, "sqnr_db": None, "ulp_histogram": None}], title="A title")
    assert text.startswith("# A title\n")
    assert "| - |" in text
