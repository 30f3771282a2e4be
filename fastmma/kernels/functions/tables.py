"""Coefficients of a GPU's special function unit: an interpolating polynomial of degree 2 for each segment of a function.

Linear programs found them in recordings of every mantissa, on an H100 and, of lg2, on an H200; they have every bit of these. All 2^32
results of lg2 and of 24 functions of libdevice agree with an H200's by checksums.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple


class Interpolator(NamedTuple):
    """How the unit computes a function of a fraction of 23 bits: ``floor((c0 * 2^grid + bias + c1 * x + c2 * s) / 2^(grid + 2))``.

    x is what the fraction has below the number of its segment, in units of 2^-23 or, where there are 128 segments, of 2^-24; s is its
    square, cut off (`fastmma.kernels.functions.unit`).

    Attributes
    ----------
    bits : int
        Of a fraction that tell its segment.
    grid, bias : int
    start : int
        Code of the float32 number from which results count; 0 of lg2, whose results are no float32 numbers yet.
    middle : int
        Whence c1 counts in its table, so that 16 bits hold it: a power of two or its negative.
    cut : int
        Low bits of x that are multiplied apart, lest a product has more than 31 bits.
    """

    bits: int
    grid: int
    bias: int
    start: int
    middle: int
    cut: int = 2


_ONE, _HALF = 0x3F800000, 0x3F000000
INTERPOLATORS = {
    "ex2": Interpolator(6, 13, 6114, _ONE, 1 << 15),
    "rcp": Interpolator(7, 14, 4046, _HALF, -1 << 15),
    "rsqrt": Interpolator(6, 14, 16383, _HALF, -1 << 15),  # of 1 to 2, and then of 2 to 4; so sqrt
    "sqrt": Interpolator(6, 15, 32767, _ONE, 1 << 16, 3),
    "lg2": Interpolator(6, 12, 837, 0, 1 << 15),
}


@lru_cache(maxsize=1)
def coefficients() -> dict[str, list[tuple[int, int, int]]]:
    """Read c0, c1 and c2 of the segments of each function.

    Examples
    --------
    >>> coefficients()["ex2"][0]
    (3, 22713, 494)
    """
    found: dict[str, list[tuple[int, int, int]]] = {}
    with files("fastmma.kernels.functions").joinpath("tables", "sm_90.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["function"], []).append((int(row["c0"]), int(row["c1"]), int(row["c2"])))
    return found
