"""Cases of accuracy studies: against the reference, in every format, from every distribution."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from reference.cases import cases
from reference.studies import SMALL, check_files, exact_product, root

import fastmma
from fastmma import study
from fastmma.isa.formats import FORMATS
from fastmma.scaling import SCHEMES
from fastmma.study.distributions import generator
from fastmma.study.encoding import encoded, operand_format
from fastmma.study.runner import COLUMNS


@pytest.mark.parametrize(
    ("fmt", "target", "promote", "depth"),
    [
        ("e4m3", "sm_90a", None, 200),
        ("e5m2", "sm_89", 64, 200),
        ("bf16", "sm_80", None, 200),
        ("tf32", "sm_120a", None, 70),
        ("e4m3,e5m2", "sm_120a", None, 70),
        ("e3m2", "sm_120a", None, 70),
        ("e2m3,e2m1", "sm_120a", None, 70),
        ("nvfp4", "sm_120a", None, 260),
        ("mxfp8_e4m3", "sm_120a", None, 260),
        ("fp8_1x128,fp8_128x128", "sm_90a", None, 260),
        ("int8_row", "sm_90a", None, 260),
    ],
)
def test_record_against_the_reference(fmt: str, target: str, promote: int | None, depth: int) -> None:
    (record,) = study.run(study.Case(fmt, target, 5, 4, depth, promote_every=promote, seed=3))
    x, y = (generator(3, name).standard_normal((lines, depth), dtype=np.float32) for name, lines in (("a", 5), ("b", 4)))
    first, last = fmt.split(",")[0], fmt.split(",")[-1]
    if first in SCHEMES:
        scaled = fastmma.scaling.quantize(x, first), fastmma.scaling.quantize(y, last)
        d = fastmma.scaled_matmul(scaled[0], scaled[1].T, target=target, backend="reference")
        a, b = (each.dequantize(np.float64) for each in scaled)
        assert record["instruction"] == fastmma.scaled_plan(scaled[0], scaled[1].T, target=target).instruction
    else:
        a, b = (
            fastmma.decode(fastmma.encode(each, name, saturate=True), name).astype(FORMATS[name].dtype)
            for each, name in ((x, first), (y, last))
        )
        chosen = {"instruction": record["instruction"]} if fmt == "tf32" else {}
        d = fastmma.gemm(a, b.T, target=target, promote_every=promote, backend="reference", **chosen)
    original, rounded = exact_product(x, y.T), exact_product(a, b.T)
    cells = list(np.ndindex(5, 4))
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
    assert {name: record[name] for name in expected} == pytest.approx(expected, rel=2e-9, abs=1e-15)


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
        ({"target": study.IEEE, "arithmetic": "align_bits=20"}, "neither promote_every nor split_k nor arithmetic"),
        ({"arithmetic": "align_bits=20,align_bits=21"}, "an arithmetic is text such as"),
        ({"arithmetic": "evidence=own"}, "an arithmetic is text such as"),
        ({"arithmetic": "align_bits=2000"}, "align_bits must be an integer from 0 to 1023"),
        ({"arithmetic": 20}, "an arithmetic must be text"),
    ],
)
def test_bad_cases(options: dict[str, Any], message: str) -> None:
    good = {"format": "e4m3", "target": "sm_90a", "m": 4, "n": 4, "k": 32}
    with pytest.raises(fastmma.FastmmaError, match=message):
        study.Case(**{**good, **options})


CASE = study.Case("e4m3", "sm_90a", 4, 4, 64)
BAD_STUDIES: list[tuple[Any, type[fastmma.FastmmaError], str]] = [
    (lambda: study.run(replace(SMALL, targets=())), fastmma.FastmmaError, "no cases"),
    (lambda: study.run(["e4m3"]), fastmma.FastmmaError, "Grids and Cases"),  # type: ignore[list-item]
    (lambda: study.run(None), fastmma.OperandTypeError, "Grids and Cases"),  # type: ignore[arg-type]
    (lambda: study.run(5), fastmma.OperandTypeError, "Grids and Cases"),  # type: ignore[arg-type]
    (lambda: study.run("fp8"), fastmma.OperandError, "no preset 'fp8'; there are fp8-accumulators, layers, block-formats, promotion"),
    *(
        (
            lambda tensor=tensor: study.run(CASE, tensors=[tensor]),
            fastmma.OperandTypeError,
            "a tensor is named as FILE or FILE::NAME, not by",
        )
        for tensor in (None, 5, np.ones((4, 64), np.float32))
    ),
    (lambda: study.run(CASE, 5), fastmma.OperandTypeError, "output must be the path of a folder, not int"),  # type: ignore[arg-type]
    (lambda: study.run(CASE, "a\0b"), fastmma.OperandError, "is no name that a file can have"),
    (lambda: replace(SMALL, formats="e4m3"), fastmma.FastmmaError, "formats must be a tuple of choices, not 'e4m3'"),
    (lambda: replace(SMALL, shapes=((4, 4),)), fastmma.FastmmaError, r"a shape must be \(M, N, K\), not \(4, 4\)"),
]


@cases(("call", "error", "message"), BAD_STUDIES)
def test_bad_studies(call: Any, error: type[fastmma.FastmmaError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_preset_is_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = study.Preset("small", "How small?", (SMALL,))
    monkeypatch.setitem(study.PRESETS, "small", preset)
    assert study.run("small") == study.run(preset) == study.run(SMALL)


def test_integers_of_numpy(tmp_path: Path) -> None:
    grid = study.Grid(("e4m3",), ("sm_90a",), ((np.int64(4), 4, np.uint8(64)),), promote_every=(np.int32(32),), seeds=tuple(np.arange(2)))
    found = study.run(grid, tmp_path)
    assert found == study.run(study.Grid(("e4m3",), ("sm_90a",), ((4, 4, 64),), promote_every=(32,), seeds=(0, 1)))
    check_files(tmp_path, found)


def test_a_key_names_the_whole_configuration() -> None:
    case = study.Case("e4m3", "sm_90a", 4, 4, 32)
    others: dict[str, Any] = {"format": "e5m2", "target": "sm_89", "m": 5, "n": 5, "k": 64, "promote_every": 32, "split_k": 2, "seed": 1}
    others |= {"distribution": "uniform", "weights": "w.npy 1", "activations": "a.npy 1", "sample": 7, "arithmetic": "rounding=rn"}
    keys = {case.key, *(replace(case, **{name: value}).key for name, value in others.items())}
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


@pytest.mark.parametrize(("name", "target"), [("e4m3", "sm_90a"), ("nvfp4", "sm_120a")])
def test_a_study_varies_the_arithmetic(name: str, target: str) -> None:
    changes = ("", "align_bits=6", " rounding=rn ,align_bits=6", "align_rounding=exact,rounding=rn")
    grid = study.Grid((name,), (target, study.IEEE), ((8, 8, 1024),), arithmetics=changes)
    usual, few, nearest, exact, ieee = study.run(grid)
    assert [record["evidence"] for record in (usual, few, exact, ieee)] == ["measured", "own", "own", "definition"] or name == "nvfp4"
    assert nearest["arithmetic"] == "rounding=rn,align_bits=6"
    assert exact["accumulation_error"] <= usual["accumulation_error"] < few["accumulation_error"]
    case = study.Case(name, target, 8, 8, 1024, arithmetic=changes[1])
    assert case.accumulator == f"{target}, align_bits=6"
    assert study.run(case)[0] == few
