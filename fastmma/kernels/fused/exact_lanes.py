"""Exact sums of a few products, c among them, rounded once, in float64 lanes of AVX-512.

Where no exponents of rows and columns are so far apart that a float64 could lose a bit, the sum of products is exact. With c it is rounded
to odd, of which the last bit tells that something was lost, and then to nearest. Elsewhere the sum is taken twice, rounded down and up;
where both ends make one float32, that is the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.fused.lane_sums import EXPONENT, HALF, NEAR, at, loaded, stored
from fastmma.kernels.fused.window_panels import LANES, PANEL
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import (
    add_down,
    add_up,
    any_lane,
    bitcast,
    convert,
    fma,
    fma_down,
    fma_up,
    load,
    load_scalar,
    select,
    splat,
    zeros,
)


@inner
def _ends(low: Any, high: Any, c: Any, differs: Any) -> Any:
    """The sum of c and what lies between two sums, and whether it is not known; NaN differs from itself."""
    below, above = convert(add_down(low, c), np.float32), convert(add_up(high, c), np.float32)
    return convert(above, np.float64), differs | (below != above)


@inner
def one_row(how: Any, x: Any, y: Any, c: int, steps: int) -> Any:
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
        x, y = at(x, 1, how.terms, 1), at(y, 1, how.terms, PANEL)
    stored((c0, c1, c2, c3), c)
    return any_lane(differs)


@inner
def _rounded(total: Any, c: Any) -> Any:
    """The sum of c and an exact sum, to nearest."""
    below, above = bitcast(add_down(total, c), np.int64), bitcast(add_up(total, c), np.int64)
    odd = select((below & splat(np.int64(1), LANES)) != splat(np.int64(0), LANES), below, above)
    scale = bitcast(odd & splat(np.int64(EXPONENT), LANES) | splat(np.int64(HALF), LANES), np.float64)
    return fma(scale, splat(-NEAR, LANES), fma(scale, splat(NEAR, LANES), bitcast(odd, np.float64)))


@inner
def two_rows(how: Any, x: Any, other: Any, y: Any, c: int, steps: int) -> None:
    """Some steps of two rows and a panel, whose sums of products are exact."""
    a0, a1, a2, a3 = loaded(c)
    b0, b1, b2, b3 = loaded(c + 4 * PANEL)
    for _ in range(steps):
        p0 = p1 = p2 = p3 = q0 = q1 = q2 = q3 = zeros(np.float64, LANES)
        for k in range(how.terms):
            line = y.values + 8 * PANEL * k
            y0, y1 = load(line, np.float64, LANES), load(line + 64, np.float64, LANES)
            y2, y3 = load(line + 128, np.float64, LANES), load(line + 192, np.float64, LANES)
            e, f = splat(load_scalar(x.values + 8 * k, np.float64), LANES), splat(load_scalar(other.values + 8 * k, np.float64), LANES)
            p0, p1, p2, p3 = fma(e, y0, p0), fma(e, y1, p1), fma(e, y2, p2), fma(e, y3, p3)
            q0, q1, q2, q3 = fma(f, y0, q0), fma(f, y1, q1), fma(f, y2, q2), fma(f, y3, q3)
        a0, a1, a2, a3 = _rounded(p0, a0), _rounded(p1, a1), _rounded(p2, a2), _rounded(p3, a3)
        b0, b1, b2, b3 = _rounded(q0, b0), _rounded(q1, b1), _rounded(q2, b2), _rounded(q3, b3)
        x, other, y = at(x, 1, how.terms, 1), at(other, 1, how.terms, 1), at(y, 1, how.terms, PANEL)
    stored((a0, a1, a2, a3), c)
    stored((b0, b1, b2, b3), c + 4 * PANEL)
