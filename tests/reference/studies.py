"""Products in fractions, a small study, and what its files have to hold."""

from __future__ import annotations

import csv
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fastmma import study
from fastmma.study.runner import COLUMNS

SMALL = study.Grid(("e4m3", "f16"), ("sm_90a", study.IEEE), ((8, 8, 96), (8, 8, 320)), promote_every=(None, 32))


def fractions(array: NDArray[Any]) -> list[list[Fraction]]:
    return [[Fraction(float(value)) for value in row] for row in array]


def exact_product(a: NDArray[Any], b: NDArray[Any]) -> list[list[Fraction]]:
    left, right = fractions(a), list(zip(*fractions(b), strict=True))
    return [[sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in right] for row in left]


def root(value: Fraction) -> float:
    return math.sqrt(value)


def safetensors(path: Path, header: Any, data: bytes) -> Path:
    """A file as the format's description has it: eight bytes of length, the header, the elements."""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


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
