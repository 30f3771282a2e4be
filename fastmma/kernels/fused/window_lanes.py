"""Steps that end to nearest, in float64 lanes of AVX-512, whose instructions name a rounding: those of CDNA3 in windows, and exact ones.

In a window B is packed as b (1 + 2**-30). A sum starts at 1.5 * 2**52 units, plus the number of negative products, and every fma rounds
toward zero, which floors the product: docs/kernels.md says why. Then c and the sum are added to such a start of the second window, rounded
down. An exact step is taken twice, rounded down and up. Where both ends make one float32, it is the result; else another kernel does the
row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.window_panels import BIAS, LANES, NONE, PANEL, SPECIAL, VECTORS, Packed, Steps
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import (
    add_down,
    add_up,
    any_lane,
    bitcast,
    convert,
    fma_down,
    fma_toward_zero,
    fma_up,
    load,
    load_scalar,
    maximum,
    ones,
    select,
    splat,
    store,
    zeros,
)

ALIGN_BITS, JOIN_BITS = 24, 31  # of the arithmetic
WINDOWS = ((8, 1), (4, 1), (16, 2))  # terms of a step, and windows
EXACT_TERMS = (4, 2)
_PAIRS = PANEL // 2
_DEEP = 64
_ROWS = 64  # of a thread at a time
_LOWEST, _HIGHEST = -94, 125  # exponents of products whose sums are normal numbers
_FLOOR = BIAS - 126  # emax, moved by `BIAS`, of products that are zeros: that of the smallest normal f32
_FIELD = 52
_ONE = 1 << _FIELD
_EXPONENT = 0x7FF << _FIELD
_HALF = 1 << 51
_WORD = 16  # bits of an exponent, and of a count
_COUNT = 15  # at most so many products of a window are negative
_APART = (JOIN_BITS + 1 - ALIGN_BITS) * _ONE
_OF_C = (_FIELD - ALIGN_BITS) * _ONE + _HALF  # from the exponent field of c to 1.5 * 2**52 units that hold all of it
_CUT = (1 << 21) - 1  # what a float64 has below 31 fraction bits
_FAR = (ALIGN_BITS + 1) * _ONE  # c of a step in two windows is zero, so far below the products


class Addresses(NamedTuple):
    """The addresses of a row, or panel."""

    values: int
    exponents: int
    signs: int


@inner
def _start(words: Any, number: int) -> Any:
    """1.5 * 2**52 units of a vector's products, from the exponents of four vectors."""
    exponents = (words << splat(np.int64(_FIELD - _WORD * number), LANES)) & splat(np.int64(_EXPONENT), LANES)
    return bitcast(exponents | splat(np.int64(_HALF), LANES), np.float64)


@inner
def _counted(start: Any, counts: Any, number: int) -> Any:
    """A start with the number of negative products."""
    count = (counts >> splat(np.int64(_WORD * number), LANES)) & splat(np.int64(_COUNT), LANES)
    return bitcast(bitcast(start, np.int64) | count, np.float64)


@inner
def _starts(how: Any, x: Any, y: Any) -> Any:
    """Starts of a row's sums, without and with the number of negative products."""
    emax = splat(np.int16(_FLOOR), PANEL)
    for k in range(how.terms):
        row = bitcast(splat(load_scalar(x.exponents + 4 * k, np.int32), _PAIRS), np.int16)
        emax = maximum(emax, load(y.exponents + 2 * PANEL * k, np.int16, PANEL) + row)
    signs = load(y.signs, np.uint8, PANEL) ^ splat(load_scalar(x.signs, np.uint8), PANEL)
    words, counts = bitcast(emax, np.int64), bitcast(convert(ones(signs), np.int16), np.int64)
    z0, z1, z2, z3 = _start(words, 0), _start(words, 1), _start(words, 2), _start(words, 3)
    return z0, z1, z2, z3, _counted(z0, counts, 0), _counted(z1, counts, 1), _counted(z2, counts, 2), _counted(z3, counts, 3)


@inner
def _window(how: Any, x: Any, other: Any, y: Any) -> Any:
    """Starts, and sums of truncated products in multiples of their units, of two rows."""
    z0, z1, z2, z3, s0, s1, s2, s3 = _starts(how, x, y)
    u0, u1, u2, u3, t0, t1, t2, t3 = _starts(how, other, y)
    for k in range(how.terms):
        line = y.values + 8 * PANEL * k
        y0, y1 = load(line, np.float64, LANES), load(line + 64, np.float64, LANES)
        y2, y3 = load(line + 128, np.float64, LANES), load(line + 192, np.float64, LANES)
        e, f = splat(load_scalar(x.values + 8 * k, np.float64), LANES), splat(load_scalar(other.values + 8 * k, np.float64), LANES)
        s0, s1, s2, s3 = (fma_toward_zero(e, y0, s0), fma_toward_zero(e, y1, s1), fma_toward_zero(e, y2, s2), fma_toward_zero(e, y3, s3))
        t0, t1, t2, t3 = (fma_toward_zero(f, y0, t0), fma_toward_zero(f, y1, t1), fma_toward_zero(f, y2, t2), fma_toward_zero(f, y3, t3))
    first = (z0, s0 - z0), (z1, s1 - z1), (z2, s2 - z2), (z3, s3 - z3)
    return first, ((u0, t0 - u0), (u1, t1 - u1), (u2, t2 - u2), (u3, t3 - u3))


@inner
def _both(first: Any, second: Any) -> Any:
    """Let the sums of even and odd k join, each rounded down to the larger unit."""
    top = bitcast(maximum(bitcast(first[0], np.int64), bitcast(second[0], np.int64)), np.float64)
    return top, (add_down(first[1], top) - top) + (add_down(second[1], top) - top)


@inner
def _end(how: Any, summed: Any, c: Any) -> Any:
    """Let c join the sum of a step; all are numbers."""
    field = (bitcast(c, np.int64) & splat(np.int64(_EXPONENT), LANES)) + splat(np.int64(_OF_C), LANES)
    larger = maximum(bitcast(summed[0], np.int64), field)
    top, join = bitcast(larger, np.float64), bitcast(larger - splat(np.int64(_APART), LANES), np.float64)
    kept = add_down(c, top) - top
    if how.ways == 2:
        kept = select(field < larger - splat(np.int64(_FAR), LANES), zeros(np.float64, LANES), kept)
    bits = bitcast((add_down(summed[1], join) + kept) - join, np.int64)
    cut = splat(np.int64(_CUT), LANES)
    bits = select(bits < zeros(np.int64, LANES), bits + cut, bits) & splat(np.int64(~_CUT), LANES)
    return convert(convert(bitcast(bits, np.float64), np.float32), np.float64)


@inner
def _loaded(c: int) -> Any:
    c0, c1 = load(c, np.float32, LANES), load(c + 4 * LANES, np.float32, LANES)
    c2, c3 = load(c + 8 * LANES, np.float32, LANES), load(c + 12 * LANES, np.float32, LANES)
    return convert(c0, np.float64), convert(c1, np.float64), convert(c2, np.float64), convert(c3, np.float64)


@inner
def _stored(sums: Any, c: int) -> None:
    store(convert(sums[0], np.float32), c)
    store(convert(sums[1], np.float32), c + 4 * LANES)
    store(convert(sums[2], np.float32), c + 8 * LANES)
    store(convert(sums[3], np.float32), c + 12 * LANES)


@inner
def _at(lines: Any, windows: int, terms: int, columns: int) -> Any:
    """The addresses some windows later; exponents of one line of A are pairs."""
    exponents = 4 if columns == 1 else 2 * columns
    return Addresses(
        lines.values + 8 * columns * windows * terms, lines.exponents + exponents * windows * terms, lines.signs + columns * windows
    )


@inner
def _both_of(p: Any, q: Any) -> Any:
    return _both(p[0], q[0]), _both(p[1], q[1]), _both(p[2], q[2]), _both(p[3], q[3])


@inner
def _end_of(how: Any, p: Any, c: Any) -> Any:
    return _end(how, p[0], c[0]), _end(how, p[1], c[1]), _end(how, p[2], c[2]), _end(how, p[3], c[3])


@inner
def _rows(how: Any, x: Any, other: Any, y: Any, c: int, steps: int) -> None:
    """Some steps of two rows and a panel."""
    own, others = _loaded(c), _loaded(c + 4 * PANEL)
    for _ in range(steps):
        p, q = _window(how, x, other, y)
        if how.ways == 2:
            k = how.terms
            more, last = _window(how, _at(x, 1, k, 1), _at(other, 1, k, 1), _at(y, 1, k, PANEL))
            p, q = _both_of(p, more), _both_of(q, last)
        own, others = _end_of(how, p, own), _end_of(how, q, others)
        x, other, y = _at(x, how.ways, how.terms, 1), _at(other, how.ways, how.terms, 1), _at(y, how.ways, how.terms, PANEL)
    _stored(own, c)
    _stored(others, c + 4 * PANEL)


@inner
def _ends(low: Any, high: Any, c: Any, differs: Any) -> Any:
    """The sum of c and what lies between two sums, and whether it is not known; NaN differs from itself."""
    below, above = convert(add_down(low, c), np.float32), convert(add_up(high, c), np.float32)
    return convert(above, np.float64), differs | (below != above)


@inner
def _exact_row(how: Any, x: Any, y: Any, c: int, steps: int) -> Any:
    """Some exact steps of a row and a panel; whether a sum is not known."""
    c0, c1, c2, c3 = _loaded(c)
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
        x, y = _at(x, 1, how.terms, 1), _at(y, 1, how.terms, PANEL)
    _stored((c0, c1, c2, c3), c)
    return any_lane(differs)


@inner
def _addresses(lines: Any, line: int, k: int, window: int) -> Any:
    """The addresses of a line, or panel, from a k on."""
    values, exponents, signs = lines.values[line, k:], lines.exponents[line, k:], lines.signs[line, window:]
    places: Any = np.intp(values.ctypes.data), np.intp(exponents.ctypes.data), np.intp(signs.ctypes.data)
    return Addresses(*places)


@inner
def _place(column: int) -> int:
    """Return the place of a column among the sums of a panel."""
    return column % VECTORS * LANES + column // VECTORS


@compiled
def _run(how: Any, x: Any, y: Any, c: Any, out: Any, left: Any, first_row: int, last_row: int) -> None:
    """Some rows of a product; those with results that are not known, or no numbers, are marked as `left`."""
    depth, columns = x.values.shape[1], out.shape[1]
    sums = np.zeros((last_row - first_row + 1, PANEL), np.float32)
    for panel in range(y.values.shape[0]):
        start = panel * PANEL
        wide = min(PANEL, columns - start)
        for i in range(first_row, last_row):
            for column in range(wide):
                sums[i - first_row, _place(column)] = c[i, start + column]
        for k in range(0, depth, _DEEP):
            steps, window = min(_DEEP, depth - k) // how.depth, k // how.terms
            right = _addresses(y, panel, k, window)
            for i in range(first_row, last_row, 1 if how.exact else 2):
                total = np.intp(sums[i - first_row].ctypes.data)
                if how.exact:
                    left[i] |= _exact_row(how, _addresses(x, i, k, window), right, total, steps)
                else:
                    _rows(how, _addresses(x, i, k, window), _addresses(x, i + 1, k, window), right, total, steps)
        for i in range(first_row, last_row):
            for column in range(wide):
                value = sums[i - first_row, _place(column)]
                left[i] |= not abs(value) < np.inf
                out[i, start + column] = value


def multiply(how: Steps, x: Packed, y: Packed, c: NDArray[np.float32] | None, out: NDArray[np.float32], threads: int) -> NDArray[np.bool_]:
    """``out = x @ y + c`` (None: +0) of packed (M, K) and (K, N) that it `reaches`, and (M, N); the rows that are not right.

    They are those with infinities or NaNs in x, in c or among results, and those with an exact sum that is not known.
    """
    rows = len(out)
    left: NDArray[np.bool_] = x.highest[:rows] == SPECIAL
    c = np.zeros(out.shape, np.float32) if c is None else c
    parallel_for(lambda first, last, _: _run(how, x, y, c, out, left, first, last), rows, threads, _ROWS)
    return left


def reaches(how: Steps, x: Packed, y: Packed) -> bool:
    """Tell whether `y` has numbers only, and in windows no product of numbers is infinite, and no sum subnormal."""
    finite = x.highest[x.highest != SPECIAL]
    low = int(x.lowest.min(initial=SPECIAL)) + int(y.lowest.min(initial=SPECIAL))
    largest = int(y.highest.max(initial=NONE))
    high = int(finite.max(initial=NONE)) + largest
    return largest != SPECIAL and (how.exact or (low >= _LOWEST and high <= _HIGHEST))
