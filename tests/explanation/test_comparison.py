"""Comparisons count what differs, in bits, in units of the last place and by place, as plain Python does."""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.products import elements, random_codes

from fastmma import FORMATS, compare, decode
from fastmma.host.errors import OperandError, OperandTypeError

FLOATS = ("f16", "bf16", "f32", "f64")


def ulps(x: int, y: int, fmt: str) -> int:
    """Steps from one code to the next number that lie between two finite ones."""
    half = 1 << (FORMATS[fmt].bits - 1)
    left, right = (-(each - half) if each & half else each for each in (x, y))
    return abs(left - right)


def rounded(number: Fraction) -> float:
    """The nearest float64."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


@pytest.mark.parametrize("fmt", [*FLOATS, "s32"])
def test_every_count(fmt: str) -> None:
    rng = np.random.default_rng(1)
    codes, others = (random_codes(rng, fmt, (2, 9, 14), "special") for _ in range(2))
    others = np.where(rng.random(codes.shape) < 0.5, codes, others)
    found = compare(elements(codes, fmt), elements(others, fmt), tile=(4, 5))
    where = [tuple(index) for index in np.argwhere(codes != others).tolist()]
    pairs = [(int(codes[index]), int(others[index])) for index in where]
    values = [tuple(decode(np.array(pair, codes.dtype), fmt).tolist()) for pair in pairs]
    finite = [index for index, pair in enumerate(values) if all(map(math.isfinite, pair))]
    sign = 1 << 31
    apart = [abs((x ^ sign) - (y ^ sign)) if fmt == "s32" else ulps(x, y, fmt) for x, y in pairs]
    differences = [(abs(Fraction(x) - Fraction(y)), abs(Fraction(y))) for x, y in (values[index] for index in finite) if y]
    relative = [rounded(difference / size) for difference, size in differences if math.isfinite(rounded(difference))]
    assert (found.elements, found.different, found.not_finite) == (252, len(where), len(where) - len(finite))
    assert found.max_ulps == max(apart[index] for index in finite)
    assert math.isclose(found.mean_ulps, sum(apart[index] for index in finite) / len(finite), rel_tol=1e-12)
    assert math.isclose(found.max_relative, max(filter(math.isfinite, relative)), rel_tol=1e-12)
    assert found.less == sum(values[index][0] < values[index][1] for index in finite)
    assert found.greater == sum(values[index][0] > values[index][1] for index in finite)
    assert sum(found.ulps.values()) == len(finite)
    assert found.ulps.get("0", 0) == sum(apart[index] == 0 for index in finite)
    assert found.ulps.get("1", 0) == sum(apart[index] == 1 for index in finite)
    assert found.rows == tuple(sorted({index[1] for index in where}))
    assert found.columns == tuple(sorted({index[2] for index in where}))
    assert {(tile.row, tile.col): tile.different for tile in found.tiles} == Counter((4 * (i // 4), 5 * (j // 5)) for _, i, j in where)
    for place, at, pair in zip(found.places, where[:10], pairs, strict=False):
        assert (place.at, place.code, place.other) == (at, *pair)
    assert [place.ulps for place in found.places] == [apart[index] if index in finite else None for index in range(10)]
    assert str(found).startswith(f"{len(where)} of 252 elements differ")
    assert json.loads(found.json())["different"] == len(where)


def test_the_same_and_nothing() -> None:
    d = np.ones((3, 4), np.float32)
    assert str(compare(d, d.copy())) == "all 12 elements are the same: 3 x 4, f32"
    assert compare(d[:0], d[:0]).same
    assert compare(np.float32(1), np.float32(2)).max_ulps == 1 << 23
    assert str(compare(d[0], 2 * d[0])).count("\n") == 7


def test_where_in_words() -> None:
    d, other = np.zeros((100, 200), np.float32), np.zeros((100, 200), np.float32)
    other[[3, 4, 5, 90], 7] = 1e-45
    lines = str(compare(d, other, tile=(50, 100))).splitlines()
    assert lines[0] == "4 of 20000 elements differ (0.02 %): 100 x 200, f32"
    assert lines[1:7] == [
        "  ulps         max 1, mean 1; 1: 4",
        "  relative     max 1, mean 1",
        "  direction    4 less, 0 greater",
        "  rows         4 of 100: 3..5, 90",
        "  columns      1 of 200: 7",
        "  tiles        2 of 4 of 50 x 100; from [0, 0]: 3, [50, 0]: 1",
    ]


@pytest.mark.parametrize(
    ("d", "other", "error"),
    [
        (np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), OperandError),
        (np.ones(2, np.float32), np.ones(2, np.float16), OperandError),
        (np.ones(2, np.int64), np.ones(2, np.int64), OperandTypeError),
        (np.ones(2, ml_dtypes.float8_e4m3fn), np.ones(2, ml_dtypes.float8_e4m3fn), OperandTypeError),
    ],
)
def test_what_does_not_compare(d: Any, other: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="compare: "):
        compare(d, other)


def test_bad_tiles() -> None:
    d = np.ones((2, 2), np.float32)
    for tile in (3, (0, 1), (1, 2, 3)):
        with pytest.raises(OperandError, match="tile"):
            compare(d, d, tile=tile)  # type: ignore[arg-type]
