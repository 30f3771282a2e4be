"""Steps that end to nearest, in float64 lanes of AVX-512, whose instructions name a rounding: those of CDNA3 in windows, and exact ones.

In a window B is packed as b (1 + 2**-30). A sum starts at 1.25 * 2**52 units, plus the number of negative products, and every fma rounds
down, which floors the product: docs/kernels.md says why. c is added last, rounded down, which floors it at the same unit, and the start is
subtracted. What is left is floored at 31 bits below its own leading one, then rounded to nearest, each time by the unit of a number to
which it is added. That is CDNA3's step: where c is so large that the sum is floored once more before c joins, at 32 bits below the leading
bit of c, the last floor is no finer. Exact steps are those of `fastmma.kernels.fused.exact_lanes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.exact_lanes import exact_rows
from fastmma.kernels.fused.lane_sums import EXPONENT, FIELD, HALF, NEAR, addresses, at, loaded, stored
from fastmma.kernels.fused.window_panels import (
    BIAS,
    FIELD_OF_BYTES,
    LANES,
    NONE,
    PANEL,
    QUARTER,
    ROWS,
    SCALE,
    SPECIAL,
    WORD,
    Packed,
    Steps,
    held_row,
)
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.rounding import add_down, fma_down, subtract_down
from fastmma.kernels.llvm.simd import (
    aligned_stack,
    bitcast,
    convert,
    fma,
    load,
    load_scalar,
    maximum,
    ones,
    select,
    splat,
    subtract_or_zero,
    zeros,
)

ALIGN_BITS, JOIN_BITS = 24, 31  # of the arithmetic
WINDOWS = ((8, 1), (4, 1), (16, 2))  # terms of a step, and windows
EXACT_TERMS = (4, 2)
_PAIRS = PANEL // 2
DEPTH = 256  # k at a time: the packed operands of a product are small, and a panel of B stays in a near cache
_ROWS = 128  # of a thread at a time
_LOWEST, _HIGHEST = -94, 122  # exponents: products of the lowest have normal sums; the highest one leaves room for K of them and for c
_LARGEST = float.fromhex("0x1p+126")  # c is less
_FLOOR = (BIAS - 126) << WORD | QUARTER  # the word of products that are zeros: of the smallest normal f32
_FLOOR_OF_BYTES = (BIAS - 126 - FIELD_OF_BYTES) * 0x101
_BYTES = 2 * PANEL
_UNDER_BYTES = (QUARTER << WORD | FIELD_OF_BYTES >> 8) * 0x101  # below each byte
_ONE = 1 << FIELD
_BITS_OF_WORD = 16
_UPPER = -1 << 64 - _BITS_OF_WORD  # the first word
_COUNTED = (1 << WORD) - 1  # where a start has the number of negative products
_FAR = (FIELD + 1) * _ONE  # from the exponent of a start: c of a step in two windows is zero, so far below the products
_NOTHING = ((1 << 9) << WORD | QUARTER) * 0x0001_0001_0001_0001  # words of a step without products
_NO_BYTES = (QUARTER << WORD | FIELD_OF_BYTES >> 8) * 0x0001_0001_0001_0001
_CUT = float.fromhex("0x1p+21")  # times 1.5 * 2**e, of which a unit is 2**(e - 31)
_WHOLE = 1 / SCALE
# fields of sums are 512 to 1023, and this one takes the place of a zero's: a CPU is slow where it meets subnormal numbers
_SCALE_BITS = HALF | 512 << FIELD


@inner
def _start(how: Any, words: Any, number: int) -> Any:
    """1.25 * 2**52 units of a vector's products and more, plus the number of negative ones, from the words of four vectors."""
    right = np.uint64((_BITS_OF_WORD * (number + 1) + (4 if how.narrow else 0)) % 64)
    left = np.uint64(64) - right
    return bitcast(words << splat(left, LANES) | words >> splat(right, LANES) if right > 0 else words, np.float64)


@inner
def _starts(how: Any, words: Any) -> Any:
    return _start(how, words, 0), _start(how, words, 1), _start(how, words, 2), _start(how, words, 3)


@inner
def _least(how: Any) -> Any:
    """The words from which those of two rows start; of bytes, both are the first."""
    least = splat(np.int16(_FLOOR_OF_BYTES if how.narrow else _FLOOR), PANEL)
    return least, least


@inner
def _larger(how: Any, words: Any, x: Any, other: Any, y: Any, k: int) -> Any:
    """The words of two rows, with the products of one k."""
    first, second = words
    row = bitcast(splat(load_scalar(x.exponents + 4 * k, np.int32), _PAIRS), np.int16)
    column = load(y.exponents + 2 * PANEL * k, np.int16, PANEL)
    if how.narrow:
        larger = maximum(bitcast(first, np.uint8), subtract_or_zero(bitcast(row, np.uint8), bitcast(column, np.uint8)))
        return bitcast(larger, np.int16), second
    row_of_other = bitcast(splat(load_scalar(other.exponents + 4 * k, np.int32), _PAIRS), np.int16)
    return maximum(first, column + row), maximum(second, column + row_of_other)


@inner
def _counts(x: Any, y: Any) -> Any:
    """The numbers of negative products of a row."""
    return convert(ones(load(y.signs, np.uint8, PANEL) ^ splat(load_scalar(x.signs, np.uint8), PANEL)), np.int16)


@inner
def _counted(how: Any, words: Any, x: Any, other: Any, y: Any) -> Any:
    """The words of two rows, with the numbers of their negative products."""
    first, second = words
    if how.narrow:
        negative = bitcast(splat(load_scalar(x.signs, np.uint32), _PAIRS), np.uint8) ^ load(y.signs, np.uint8, _BYTES)
        # a byte of an exponent above one of a number, which stands above the first bits of all fields
        counts = bitcast((bitcast(ones(negative), np.int16) << WORD) + splat(np.int16(_UNDER_BYTES), PANEL), np.uint16)
        pair, eight = bitcast(first, np.uint16), splat(np.uint16(8), PANEL)
        low, high = splat(np.uint16(0x00FF), PANEL), splat(np.uint16(0xFF00), PANEL)
        return bitcast(pair << eight | counts & low, np.uint64), bitcast(pair & high | counts >> eight, np.uint64)
    return bitcast(first + _counts(x, y), np.uint64), bitcast(second + _counts(other, y), np.uint64)


@inner
def _words(how: Any, x: Any, other: Any, y: Any) -> Any:
    words = _least(how)
    for k in range(how.terms):
        words = _larger(how, words, x, other, y, k)
    return _counted(how, words, x, other, y)


@inner
def _products(x: Any, other: Any, y: Any, k: int, sums: Any) -> Any:
    """Sums of two rows, with the products of one k."""
    s0, s1, s2, s3, t0, t1, t2, t3 = sums
    line = y.values + 8 * PANEL * k
    y0, y1 = load(line, np.float64, LANES), load(line + 64, np.float64, LANES)
    y2, y3 = load(line + 128, np.float64, LANES), load(line + 192, np.float64, LANES)
    e, f = splat(load_scalar(x.values + 8 * k, np.float64), LANES), splat(load_scalar(other.values + 8 * k, np.float64), LANES)
    s0, s1, s2, s3 = fma_down(e, y0, s0), fma_down(e, y1, s1), fma_down(e, y2, s2), fma_down(e, y3, s3)
    t0, t1, t2, t3 = fma_down(f, y0, t0), fma_down(f, y1, t1), fma_down(f, y2, t2), fma_down(f, y3, t3)
    return s0, s1, s2, s3, t0, t1, t2, t3


@inner
def _quarter(how: Any, now: Any, later: Any, part: int, sums: Any, words: Any) -> Any:
    """A quarter of a window's products of two rows, and of the words of the next window."""
    for each in range(how.terms // 4):
        k = part * (how.terms // 4) + each
        sums = _products(now[0], now[1], now[2], k, sums)
        words = _larger(how, words, later[0], later[1], later[2], k)
    return sums, words


@inner
def _uncounted(start: Any) -> Any:
    """The start of a vector's sums, without the number of negative products."""
    bits = bitcast(start, np.int64)
    return bitcast(bits & splat(np.int64(~_COUNTED), LANES) | splat(np.int64(QUARTER), LANES), np.float64)


@inner
def _nearest(total: Any) -> Any:
    """A sum, rounded down to 31 bits below its leading one, then to nearest."""
    scale = bitcast(bitcast(total, np.int64) & splat(np.int64(EXPONENT), LANES) | splat(np.int64(_SCALE_BITS), LANES), np.float64)
    cut = fma_down(scale, splat(_CUT, LANES), total)
    return fma(scale, splat(-NEAR, LANES), fma(scale, splat(NEAR - _CUT, LANES), cut))


@inner
def _ended(start: Any, total: Any, c: Any) -> Any:
    """Let c join the sum of a step, at the unit of its products."""
    return _nearest(subtract_down(add_down(total, c), _uncounted(start)))


@inner
def _loaded(c: int) -> Any:
    scale = splat(SCALE, LANES)
    s0, s1, s2, s3 = loaded(c)
    return s0 * scale, s1 * scale, s2 * scale, s3 * scale


@inner
def _stored(sums: Any, c: int) -> None:
    whole = splat(_WHOLE, LANES)
    stored((sums[0] * whole, sums[1] * whole, sums[2] * whole, sums[3] * whole), c)


@inner
def _moved(how: Any, lines: Any, windows: int) -> Any:
    """The addresses of two rows and a panel some windows later."""
    return at(lines[0], windows, how, 1), at(lines[1], windows, how, 1), at(lines[2], windows, how, PANEL)


@inner
def _rows(how: Any, x: Any, other: Any, y: Any, c: int, steps: int) -> None:
    """Some steps of two rows and a panel: beside the products of a step, the one before it ends, and words of the next one are found."""
    a0, a1, a2, a3 = _loaded(c)
    b0, b1, b2, b3 = _loaded(c + 4 * PANEL)
    now = x, other, y
    m, n = _words(how, x, other, y)
    nothing = _start(how, splat(np.uint64(_NO_BYTES if how.narrow else _NOTHING), LANES), 0)
    begun = ended = (nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    for step in range(steps):
        later = _moved(how, now, 1 if step + 1 < steps else 0)
        starts = _starts(how, m) + _starts(how, n)
        sums, words = _quarter(how, now, later, 0, starts, _least(how))
        a0, b0 = _ended(begun[0], ended[0], a0), _ended(begun[4], ended[4], b0)
        sums, words = _quarter(how, now, later, 1, sums, words)
        a1, b1 = _ended(begun[1], ended[1], a1), _ended(begun[5], ended[5], b1)
        sums, words = _quarter(how, now, later, 2, sums, words)
        a2, b2 = _ended(begun[2], ended[2], a2), _ended(begun[6], ended[6], b2)
        sums, words = _quarter(how, now, later, 3, sums, words)
        a3, b3 = _ended(begun[3], ended[3], a3), _ended(begun[7], ended[7], b3)
        begun, ended, now = starts, sums, later
        m, n = _counted(how, words, later[0], later[1], later[2])
    a0, b0 = _ended(begun[0], ended[0], a0), _ended(begun[4], ended[4], b0)
    a1, b1 = _ended(begun[1], ended[1], a1), _ended(begun[5], ended[5], b1)
    a2, b2 = _ended(begun[2], ended[2], a2), _ended(begun[6], ended[6], b2)
    a3, b3 = _ended(begun[3], ended[3], a3), _ended(begun[7], ended[7], b3)
    _stored((a0, a1, a2, a3), c)
    _stored((b0, b1, b2, b3), c + 4 * PANEL)


@inner
def _window(how: Any, now: Any, later: Any, m: Any, n: Any) -> Any:
    """Sums of a window of two rows, and the words of the next one."""
    sums, words = _starts(how, m) + _starts(how, n), _least(how)
    sums, words = _quarter(how, now, later, 0, sums, words)
    sums, words = _quarter(how, now, later, 1, sums, words)
    sums, words = _quarter(how, now, later, 2, sums, words)
    sums, words = _quarter(how, now, later, 3, sums, words)
    return sums, _counted(how, words, later[0], later[1], later[2])


@inner
def _joined(how: Any, number: int, words: Any, total: Any, odd: Any, other: Any, c: Any) -> Any:
    """Let c join the sums of even and of odd k, all at the larger unit; it counts as zero where it is far below that."""
    first, second = _uncounted(_start(how, words, number)), _uncounted(_start(how, odd, number))
    top = bitcast(maximum(bitcast(first, np.int64), bitcast(second, np.int64)) & splat(np.int64(_UPPER), LANES), np.float64)
    both = add_down(add_down(top, total - first), other - second)
    below = bitcast(c, np.int64) & splat(np.int64(EXPONENT), LANES) | splat(np.int64(_ONE - 1), LANES)
    far = below < bitcast(top, np.int64) - splat(np.int64(_FAR), LANES)
    return _nearest(subtract_down(add_down(both, select(far, zeros(np.float64, LANES), c)), top))


@inner
def _rows_apart(how: Any, x: Any, other: Any, y: Any, c: int, steps: int) -> None:
    """The same where products of even and odd k are summed apart."""
    a0, a1, a2, a3 = _loaded(c)
    b0, b1, b2, b3 = _loaded(c + 4 * PANEL)
    now = x, other, y
    m, n = _words(how, x, other, y)
    for step in range(steps):
        odd = _moved(how, now, 1)
        (p0, p1, p2, p3, q0, q1, q2, q3), (r, s) = _window(how, now, odd, m, n)
        now = _moved(how, odd, 1 if step + 1 < steps else 0)
        (r0, r1, r2, r3, s0, s1, s2, s3), words = _window(how, odd, now, r, s)
        a0, b0 = _joined(how, 0, m, p0, r, r0, a0), _joined(how, 0, n, q0, s, s0, b0)
        a1, b1 = _joined(how, 1, m, p1, r, r1, a1), _joined(how, 1, n, q1, s, s1, b1)
        a2, b2 = _joined(how, 2, m, p2, r, r2, a2), _joined(how, 2, n, q2, s, s2, b2)
        a3, b3 = _joined(how, 3, m, p3, r, r3, a3), _joined(how, 3, n, q3, s, s3, b3)
        m, n = words
    _stored((a0, a1, a2, a3), c)
    _stored((b0, b1, b2, b3), c + 4 * PANEL)


@compiled
def _run(how: Any, x: Any, y: Any, c: Any, out: Any, left: Any, first_row: int, last_row: int) -> None:
    """Some rows of a product; those with sums that are not known are marked as `left`."""
    aligned_stack()
    steps, columns = y.values.shape[1] // how.depth, out.shape[1]
    sums = np.zeros((last_row - first_row + ROWS - 1, PANEL), np.float32)
    for panel in range(y.values.shape[0]):
        start = panel * PANEL
        wide = min(PANEL, columns - start)
        for i in range(first_row, last_row):
            for column in range(wide):
                sums[i - first_row, column] = c[i, start + column]
        if how.exact:
            exact_rows(how, x, y, steps, y.lowest[start : start + PANEL].min(), sums, left, panel, first_row)
        else:
            right = addresses(y, panel, panel)
            for i in range(first_row, last_row, 2):
                total = np.intp(sums[i - first_row].ctypes.data)
                if how.ways == 1:
                    _rows(how, addresses(x, i, held_row(how, i)), addresses(x, i + 1, held_row(how, i + 1)), right, total, steps)
                else:
                    _rows_apart(how, addresses(x, i, held_row(how, i)), addresses(x, i + 1, held_row(how, i + 1)), right, total, steps)
        for i in range(first_row, last_row):
            for column in range(wide):
                out[i, start + column] = sums[i - first_row, column]


def multiply(how: Steps, x: Packed, y: Packed, c: NDArray[np.float32], out: NDArray[np.float32], threads: int) -> NDArray[np.bool_]:
    """``out = x @ y + c`` of packed (M, K) and (K, N) that it `reaches`, and (M, N), which `out` may be; the rows that are not right.

    They are those with infinities or NaNs in x, and those with an exact sum that is not known.
    """
    rows = len(out)
    left: NDArray[np.bool_] = x.highest[:rows] == SPECIAL
    parallel_for(lambda first, last, _: _run(how, x, y, c, out, left, first, last), rows, threads, _ROWS)
    return left


def far_rows(c: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell which rows of c have infinities, NaNs or numbers so large that sums might overflow."""
    near: NDArray[np.bool_] = np.all(np.abs(c) < _LARGEST, axis=1)
    return ~near


def reaches(how: Steps, x: Packed, y: Packed, depth: int) -> bool:
    """Tell whether `y` has numbers only, and in windows no product of numbers and no sum of `depth` is infinite, and no sum subnormal."""
    finite = x.highest[x.highest != SPECIAL]
    low = int(x.lowest.min(initial=SPECIAL)) + int(y.lowest.min(initial=SPECIAL))
    largest = int(y.highest.max(initial=NONE))
    high = int(finite.max(initial=NONE)) + largest
    return largest != SPECIAL and high <= _HIGHEST - depth.bit_length() and (how.exact or low >= _LOWEST)
