"""What a study's answer says of errors that are given: the factors, the ranks and the intervals are worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fastmma import study


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    (found,) = study.run(study.Case("e4m3", "sm_90a", 4, 4, 64))
    return found | {"quantisation_error": 0.04}


def test_sums_against_depth(record: dict[str, Any]) -> None:
    errors = {
        ("sm_90a", None): (0.001, 0.02),
        ("sm_89", None): (0.001, 0.019),
        ("sm_90a", 32): (0.001, 0.001),
        ("ieee-f32", None): (0.0, 1e-7),
    }
    records = [
        record | {"target": target, "promote_every": promoted, "k": k, "accumulation_error": error}
        for (target, promoted), pair in errors.items()
        for k, error in zip((64, 1024), pair, strict=True)
    ]
    assert study.answer(records) == [
        "Operands drawn (normal), K = 1024: rounding loses 4.00 % (e4m3); sums lose 2.00 % on sm_90a and sm_89 (20 times that of K = 64), "
        "0.100 % on sm_90a, promoted every 32 (as at K = 64) and 1e-07 on ieee-f32.",
        "Without promotion, sums on GPUs lose 190,000 to 200,000 times what float32 with IEEE's rounding loses.",
    ]


@pytest.mark.parametrize(
    ("errors", "advice"),
    [
        ((0.001, 0.003, 0.005), "Promoted every 64, that is less than a tenth of what rounding loses (4.00 %)."),
        ((0.001, 0.002, 0.003), "Without promotion, that is less than a tenth of what rounding loses (4.00 %)."),
        ((0.01, 0.02, 0.03), "However often they are promoted, that is more than a tenth of what rounding loses (4.00 %)."),
    ],
)
def test_promotion(errors: tuple[float, ...], advice: str, record: dict[str, Any]) -> None:
    intervals = (32, 64, None)
    records = [
        record | {"promote_every": every, "k": 128, "accumulation_error": error} for every, error in zip(intervals, errors, strict=True)
    ]
    (told,) = study.answer(records)
    assert told.startswith("Operands drawn (normal), K = 128: sums of e4m3 on sm_90a lose up to ")
    assert told.endswith(f"every 32. {advice}")


def test_formats(record: dict[str, Any]) -> None:
    errors = {"bf16": (0.002, 0.003), "nvfp4": (0.1, 0.3), "mxfp4": (0.15, 0.2)}
    records = [
        record | {"format": fmt, "target": "sm_120a", "distribution": law, "relative_error": error}
        for fmt, pair in errors.items()
        for law, error in zip(("normal", "outliers"), pair, strict=True)
    ]
    assert study.answer(records) == [
        "Relative errors of products with K = 64.",
        "Of formats of 16 bits without scales, the best is bf16 on normal (0.200 %) and outliers (0.300 %) data.",
        "Of formats of 4 bits with scales, the best is nvfp4 on normal (10.0 %) data and mxfp4 on outliers (20.0 %) data.",
    ]
    assert study.answer([record]) == []
