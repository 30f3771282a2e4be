"""Code that is emitted from Python functions against Python itself, on the same numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.direct import emitted

KINDS = kinds.Array(kinds.int64, 1), kinds.int64, kinds.int64
NUMBERS = (-(1 << 62), -9, -8, -1, 0, 1, 2, 7, 8, 1 << 40)


class Pair(NamedTuple):
    """A group of two numbers."""

    low: int
    high: int


def swapped(pair: Pair) -> Pair:
    return Pair(pair.high, pair.low)


def early(x: int, y: int) -> int:
    if x > y:
        return x - y
    for each in range(3):
        if x + each == y:
            return -each
    return 7


def arithmetic(out: Any, x: int, y: int) -> None:
    out[0] = x + y * 3 - (x ^ y) | x & ~y
    out[1], out[2] = divmod(x, y if y != 0 else 5)
    out[3] = x // 8 + x % 8 - x % -3
    out[4] = (x >> 3) + (y << 2)
    out[5] = min(x, y, 4) + 2 * max(x, y) + abs(y)


def choices(out: Any, x: int, y: int) -> None:
    out[0] = x < y or (y != 0 and x // y == 1)
    out[1] = not x or not (y and x)
    out[2] = (x if x > 1 else 2) + (1 if y else 0)
    out[3] = np.uint8(x) + np.int32(y)
    out[4] = int((x * 0.5 if y > 1 else x % 7) + 1.0 / 4) + int(np.int32(y) if x else 2)
    out[5] = early(x, y)


def loops(out: Any, x: int, y: int) -> None:
    total, seen = 0, Pair(x, 1)
    for each in range(10, -3, -4):
        if each == 2:
            continue
        for other in range(max(min(x, 5), -20) - 6, each, 3):
            total += other * each
            seen = swapped(seen)
        last = each
    while total > y and total > 9:
        total = total // 2
    out[0], out[1], out[2] = total, seen.low, seen.high
    few = out[: max(min(x, 3), 1)]
    out[3] = last + few.size + few[0]
    for place in range(4, 6):
        out[place] = len(out) + out.size
        out[place] -= 2 if place == 4 and x > 0 else 3


@pytest.mark.parametrize("function", [arithmetic, choices, loops])
@pytest.mark.usefixtures("folder")
def test_python(function: Callable[..., None]) -> None:
    run = emitted(function, *KINDS)
    for x, y in itertools.product(NUMBERS, NUMBERS):
        found, expected = np.zeros(6, np.int64), np.zeros(6, np.int64)
        run(found, x, y)
        with np.errstate(over="ignore"):
            function(expected, np.int64(x), np.int64(y))
        np.testing.assert_array_equal(found, expected, f"{x}, {y}")


def unlike(out: Any, x: int, y: int) -> None:
    for _ in range(x):
        x = x + y * 0.5
    out[0] = x


def unknown(out: Any, x: int, y: int) -> None:
    out[0] = sorted((x, y))[0]


@pytest.mark.parametrize(
    ("function", "says"), [(unlike, "float64 where there was int64"), (unknown, r"unknown: sorted\(.*cannot be emitted")]
)
def test_refusals(function: Callable[..., None], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        emitted(function, *KINDS)
