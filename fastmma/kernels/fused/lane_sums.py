"""Sums of rows and a panel in float64 lanes: what steps in windows and exact ones share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmma.kernels.fused.window_panels import PANEL, in_vectors, places_of
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import convert, interleave, load, store

FIELD = 52
EXPONENT = 0x7FF << FIELD
HALF = 1 << FIELD - 1
NEAR = float.fromhex("0x1p+29")  # times 1.5 * 2**e, of which a unit is that of a float32 between 2**e and 2**(e + 1)


class Addresses(NamedTuple):
    """The addresses of a row, or panel."""

    values: int
    exponents: int
    signs: int


@inner
def loaded(c: int) -> Any:
    """The sums of a row, in vectors."""
    vectors = in_vectors(convert(load(c, np.float32, PANEL), np.float64))
    return vectors[0], vectors[1], vectors[2], vectors[3]


@inner
def stored(sums: Any, c: int) -> None:
    """Sums in vectors, as a row."""
    store(convert(interleave(interleave(sums[0], sums[2]), interleave(sums[1], sums[3])), np.float32), c)


@inner
def at(lines: Any, windows: int, how: Any, columns: int) -> Any:
    """The addresses some windows later; exponents of one line of A are pairs, and signs as wide where exponents are bytes."""
    exponents = 4 if columns == 1 else 2 * columns
    signs = exponents if how.narrow else columns
    k = windows * how.terms
    return Addresses(lines.values + 8 * columns * k, lines.exponents + exponents * k, lines.signs + signs * windows)


@inner
def addresses(lines: Any, line: int, held: int) -> Any:
    """The addresses of a line, or panel, whose exponents and signs are those of line `held`."""
    values, exponents, signs = places_of(lines, line, held)
    return Addresses(values, exponents, signs)
