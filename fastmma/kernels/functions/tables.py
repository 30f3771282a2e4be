"""Tables of a GPU's special function unit: by how many units in the last place a result differs from a correctly rounded one.

ex2, rcp, rsqrt and sqrt have two bits a mantissa, the difference plus 2, for all that the unit looks at; they were recorded on an H100,
exhaustively. Of lg2, whose results near 1 have an error of their own, the table holds the results, as differences of differences; it was
recorded on an H200, and all 2^32 results agree with it by a checksum an octave.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = ("ex2", "rcp", "rsqrt", "sqrt", "lg2")
BITS = 23  # of a fraction
STEPS = 5  # bits of a fraction by which `powers` are tabulated
_FINE = 200  # bits of exact roots


def _read(name: str) -> NDArray[Any]:
    with files("fastmma.kernels.functions").joinpath("tables", "sm_90.npz").open("rb") as file, np.load(file) as archive:
        found: NDArray[Any] = archive[name]
    return found


@lru_cache(maxsize=1)
def powers() -> list[float]:
    """Tabulate 2 to the multiples of 1/32 below 1, correctly rounded.

    Examples
    --------
    >>> powers()[16]
    1.4142135623730951
    """
    found = []
    for step in range(1 << STEPS):
        root = 1 << (step + (_FINE << STEPS))
        for _ in range(STEPS):
            root = isqrt(root)
        found.append(float(Fraction(root, 1 << _FINE)))
    return found


@lru_cache(maxsize=len(NAMES))
def table(name: str) -> NDArray[Any]:
    """Read a table: bytes of four mantissas each; of lg2 float32 results for 1 to 2, and then for 1/2 to 1."""
    if name != "lg2":
        return np.ascontiguousarray(_read(name))
    curve = _read("lg2_curve").astype(np.int64)
    curve[_read("lg2_places")] = _read("lg2_jumps")
    return np.cumsum(np.cumsum(curve)).astype(np.int32).view(np.float32)
