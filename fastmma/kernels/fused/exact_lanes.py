"""Exact sums of a few products, c among them, rounded once, in float64 lanes of AVX-512.

The steps of four rows are chains of fma from c, each sum rounded to float32 at the end of its step. They are right if no fma loses a bit,
which the CPU notes in its control register. Otherwise each sum is taken twice, rounded down and up; where both ends make one float32, that
is the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.fused.lane_sums import EXPONENT, FIELD, HALF, addresses, at, loaded, stored
from fastmma.kernels.fused.window_panels import LANES, PANEL, ROWS
from fastmma.kernels.llvm.compilation import inner, separate
from fastmma.kernels.llvm.rounding import add_down, add_nearest, add_up, fma_down, fma_up, forget_inexact, was_inexact
from fastmma.kernels.llvm.simd import any_lane, bitcast, convert, fma, load, load_scalar, never_inlined, splat, store, zeros

# from the field of 2**e to 1.5 * 2**(e + 29), of which a unit is that of a float32 between 2**e and 2**(e + 1)
_NEAR = (29 << FIELD) + HALF


@inner
def _ends(low: Any, high: Any, c: Any, differs: Any) -> Any:
    """The sum of c and what lies between two sums, and whether it is not known; NaN differs from itself."""
    below, above = convert(add_down(low, c), np.float32), convert(add_up(high, c), np.float32)
    return convert(above, np.float64), differs | (below != above)


@inner
def _one_row(how: Any, x: Any, y: Any, c: int, steps: int) -> Any:
    """Some exact steps of a row and a panel; whether a sum is not known."""
    c0, c1, c2, c3 = loaded(c)
    differs = c0 != c0
    for _ in range(steps):
        l0, l1, l2, l3 = zeros(np.float64, LANES), zeros(np.float64, LANES), zeros(np.float64, LANES), zeros(np.float64, LANES)
        h0, h1, h2, h3 = l0, l1, l2, l3
        for k in range(how.terms):
            element, line = splat(load_scalar(x.values + 8 * k, np.float64), LANES), y.values + 8 * PANEL * k
            y0, y1 = load(line, np.float64, LANES), load(line + 64, np.float64, LANES)
            y2, y3 = load(line + 128, np.float64, LANES), load(line + 192, np.float64, LANES)
            l0, l1, l2, l3 = fma_down(element, y0, l0), fma_down(element, y1, l1), fma_down(element, y2, l2), fma_down(element, y3, l3)
            h0, h1, h2, h3 = fma_up(element, y0, h0), fma_up(element, y1, h1), fma_up(element, y2, h2), fma_up(element, y3, h3)
        c0, differs = _ends(l0, h0, c0, differs)
        c1, differs = _ends(l1, h1, c1, differs)
        c2, differs = _ends(l2, h2, c2, differs)
        c3, differs = _ends(l3, h3, c3, differs)
        x, y = at(x, 1, how, 1), at(y, 1, how, PANEL)
    stored((c0, c1, c2, c3), c)
    return any_lane(differs)


@inner
def _rounded(total: Any) -> Any:
    """A sum to nearest, by the unit of a number to which it is added."""
    field = bitcast(total, np.int64) & splat(np.int64(EXPONENT), LANES)
    near = bitcast(field + splat(np.int64(_NEAR), LANES), np.float64)
    return add_nearest(total, near) - near


@inner
def _added(how: Any, quarter: int, x: Any, y: int, sums: Any) -> Any:
    """Sums of two rows, with the product that a quarter of a step adds: where a step has two of them, every other quarter adds none."""
    if quarter * how.terms % 4 != 0:
        return sums
    k = quarter * how.terms // 4
    s0, s1, s2, s3, t0, t1, t2, t3 = sums
    line = y + 8 * PANEL * k
    y0, y1 = load(line, np.float64, LANES), load(line + 64, np.float64, LANES)
    y2, y3 = load(line + 128, np.float64, LANES), load(line + 192, np.float64, LANES)
    e, f = splat(load_scalar(x[0] + 8 * k, np.float64), LANES), splat(load_scalar(x[1] + 8 * k, np.float64), LANES)
    return fma(e, y0, s0), fma(e, y1, s1), fma(e, y2, s2), fma(e, y3, s3), fma(f, y0, t0), fma(f, y1, t1), fma(f, y2, t2), fma(f, y3, t3)


@inner
def _half(how: Any, x: Any, y: int, sums: Any, others: Any) -> Any:
    """A step of two rows, beside the end of a step of two others."""
    s0, s1, s2, s3, t0, t1, t2, t3 = others
    sums = _added(how, 0, x, y, sums)
    s0, t0 = _rounded(s0), _rounded(t0)
    sums = _added(how, 1, x, y, sums)
    s1, t1 = _rounded(s1), _rounded(t1)
    sums = _added(how, 2, x, y, sums)
    s2, t2 = _rounded(s2), _rounded(t2)
    sums = _added(how, 3, x, y, sums)
    s3, t3 = _rounded(s3), _rounded(t3)
    return sums, (s0, s1, s2, s3, t0, t1, t2, t3)


@separate
def _four_rows(how: Any, x: int, row: int, y: int, c: int, out: int, steps: int) -> None:
    """Some steps of rows that lie `row` bytes apart, and of a panel. Those of the last two rows end late; c has no end that changes it."""
    never_inlined()
    first, last = loaded(c) + loaded(c + 4 * PANEL), loaded(c + 8 * PANEL) + loaded(c + 12 * PANEL)
    for _ in range(steps):
        first, last = _half(how, (x, x + row), y, first, last)
        last, first = _half(how, (x + 2 * row, x + 3 * row), y, last, first)
        x, y = x + 8 * how.terms, y + 8 * PANEL * how.terms
    s0, s1, s2, s3, t0, t1, t2, t3 = last
    stored(first[:4], out)
    stored(first[4:], out + 4 * PANEL)
    stored((_rounded(s0), _rounded(s1), _rounded(s2), _rounded(s3)), out + 8 * PANEL)
    stored((_rounded(t0), _rounded(t1), _rounded(t2), _rounded(t3)), out + 12 * PANEL)


@separate
def exact_rows(how: Any, x: Any, y: Any, steps: int, lowest: int, sums: Any, left: Any, panel: int, first_row: int) -> None:
    """Some steps of rows, as many as `sums` has but the last three, and of a panel; rows with sums that are not known are `left`."""
    found = np.empty((ROWS, PANEL), np.float32)
    row, right = 8 * x.values.shape[1], addresses(y, panel, panel)
    for first in range(0, len(sums) - (ROWS - 1), ROWS):
        i = first_row + first
        if lowest + x.lowest[i : i + ROWS].min() >= how.least:
            forget_inexact()
            c, out = np.intp(sums[first].ctypes.data), np.intp(found.ctypes.data)
            _four_rows(how, np.intp(x.values[i].ctypes.data), row, right.values, c, out, steps)
            if not was_inexact():
                for each in range(ROWS):
                    store(load(np.intp(found[each].ctypes.data), np.float32, PANEL), np.intp(sums[first + each].ctypes.data))
                continue
        for line in range(first, min(first + ROWS, len(sums) - (ROWS - 1))):
            left[first_row + line] |= _one_row(
                how, addresses(x, first_row + line, first_row + line), right, np.intp(sums[line].ctypes.data), steps
            )
