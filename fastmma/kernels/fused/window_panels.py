"""Packing for `fastmma.kernels.fused.window_lanes`: values, exponents and signs of A's rows, and of panels of 32 columns of B.

The exponent of a product is a word of 16 bits, the first ones of a float64: the sum of a word of A and one of B. A zero of a window is
packed as a tiny positive value. Infinities and NaNs are packed as zeros, and another kernel does their lines. Where products of even and
odd k are summed apart, those of even k come first in each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.llvm.simd import (
    bitcast,
    convert,
    even_lanes,
    highest_lane,
    lane_bits,
    load,
    lowest_lane,
    maximum,
    minimum,
    odd_lanes,
    select,
    splat,
    store,
    zeros,
)
from fastmma.kernels.matrices.memory import aligned_empty

LANES, PANEL = 8, 32
ROWS = 4  # at a time, at most
VECTORS = PANEL // LANES  # lane l of vector v holds column 4 l + v
_FOURS = PANEL // 4  # words of 32 bits of the signs of a line
TINY = float.fromhex("0x1p-700")  # its product with any element is less than a unit
NONE, SPECIAL = -16384, 16384  # exponents of zeros, and of infinities and NaNs
SCALE_BITS = 128
SCALE = float.fromhex("0x1p-128")  # of sums in windows, and of B
BIAS = 1023 + 52 - 24 - SCALE_BITS  # from exponents of products to those of 2**52 units
_TWICE = 0x10001  # a word times this is a pair of them
WORD = 4  # bits of a word below the exponent
QUARTER = 4  # what they are: a start is 1.25 * 2**52 units, and more where products are negative
_OF_ZERO = (0, -(1 << 15))  # words of zeros in A and B, whose sum with any is less than that of the smallest product
_MORE = float.fromhex("0x1.00000004p-128")  # times which B is packed: SCALE (1 + 2^-30)
_CHUNK = 64  # lines, or panels, of a thread at a time


@constant
@dataclass(frozen=True)
class Steps:
    """The steps for which a kernel is compiled.

    Attributes
    ----------
    terms : int
        Products of a window.
    ways : int
        Windows of a step: 2 where products of even and odd k are summed apart.
    exact : bool
        Whether nothing is aligned: a step's sum and c are rounded once.
    least : int
        The smallest exponent of a product with which float32 holds an exact sum that is subnormal.
    """

    terms: int
    ways: int = 1
    exact: bool = False
    least: int = 0

    @property
    def depth(self) -> int:
        """Products of a step."""
        return self.terms * self.ways


class Packed(NamedTuple):
    """One operand: values and exponents (rows, k) or (panels, k, 32), signs of the products of each window, and extremes of each line.

    Exponents of A are pairs of words, and moved by `BIAS`. Signs are bits of a byte, those of column 4 l + v of B in place 4 l + v + 1, or
    4 l for v = 3. Extremes are the exponents of numbers but zeros.
    """

    values: NDArray[np.float64]
    exponents: NDArray[Any]
    signs: NDArray[np.uint8]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]


@inner
def _exponent(value: Any, emin: Any) -> Any:
    """The exponent of a number, `NONE` of a zero and `SPECIAL` of an infinity or NaN."""
    field = (bitcast(value, np.int64) >> 52) & 0x7FF
    if value == 0:
        return np.int64(NONE)
    return np.int64(SPECIAL) if field == 0x7FF else max(field - 1023, emin)


@inner
def _place(how: Any, k: int) -> Any:
    """Return the place of a k in its step: of two windows, the first one has the even ones."""
    within = k % how.depth
    return k - within + within % how.ways * how.terms + within // how.ways


@inner
def _numbers(how: Any, value: Any, emin: int, low: Any, high: Any) -> Any:
    """As many numbers as a panel has columns, in place of zeros and others, their exponents, which those are, and the extremes."""
    bits = bitcast(value, np.int64)
    field = (bits >> splat(np.int64(52), PANEL)) & splat(np.int64(0x7FF), PANEL)
    zero, special = value == zeros(np.float64, PANEL), field == splat(np.int64(0x7FF), PANEL)
    empty = zero | special
    exponent = maximum(field - splat(np.int64(1023), PANEL), splat(np.int64(emin), PANEL))
    none, unlike = splat(np.int64(NONE), PANEL), splat(np.int64(SPECIAL), PANEL)
    low = minimum(low, select(empty, unlike, exponent))
    high = maximum(high, select(special, unlike, select(zero, none, exponent)))
    return select(empty, splat(0.0 if how.exact else TINY, PANEL), value), exponent, empty, low, high


@inner
def _pack_element(how: Any, value: Any, emin: Any, packed: Any, i: int, k: int) -> Any:
    """One element of a row; its exponent."""
    exponent, at = _exponent(value, emin), _place(how, k)
    number = exponent != NONE and exponent != SPECIAL
    packed.values[i, at] = value if number else 0.0 if how.exact else TINY
    word = (exponent + BIAS) << WORD if number else _OF_ZERO[0]
    packed.exponents[i, at] = np.int32((word | QUARTER) * _TWICE)
    packed.signs[i, at // how.terms] |= np.uint8(np.int64(number and value < 0) << at % how.terms)
    return exponent


@inner
def _pack_adjacent(how: Any, value: Any, emin: int, packed: Any, i: int, k: int, low: Any, high: Any) -> Any:
    """As many elements of a row as a panel has columns, where they stay in their places; the extremes of each."""
    number, exponent, empty, low, high = _numbers(how, value, emin, low, high)
    store(number, np.intp(packed.values[i, k:].ctypes.data))
    words = select(empty, splat(np.int64(_OF_ZERO[0]), PANEL), (exponent + splat(np.int64(BIAS), PANEL)) << splat(np.int64(WORD), PANEL))
    words = (words | splat(np.int64(QUARTER), PANEL)) * splat(np.int64(_TWICE), PANEL)
    store(convert(words, np.int32), np.intp(packed.exponents[i, k:].ctypes.data))
    negative = lane_bits(number < zeros(np.float64, PANEL))
    for window in range(PANEL // how.terms):
        packed.signs[i, k // how.terms + window] = np.uint8(negative >> how.terms * window & (1 << how.terms) - 1)
    return low, high


@compiled
def _pack_rows(how: Any, a: Any, emin: int, packed: Any, first: int, last: int) -> None:
    whole = a.shape[1] // PANEL * PANEL if how.ways == 1 else 0
    for i in range(first, last):
        least, most = splat(np.int64(SPECIAL), PANEL), splat(np.int64(NONE), PANEL)
        for k in range(0, whole, PANEL):
            value = convert(load(np.intp(a[i, k:].ctypes.data), np.float32, PANEL), np.float64)
            least, most = _pack_adjacent(how, value, emin, packed, i, k, least, most)
        low, high = lowest_lane(least), highest_lane(most)
        for k in range(whole, packed.values.shape[1]):
            exponent = _pack_element(how, np.float64(a[i, k]) if k < a.shape[1] else 0.0, emin, packed, i, k)
            high = max(high, exponent)
            if exponent not in (NONE, SPECIAL):
                low = min(low, exponent)
        packed.lowest[i], packed.highest[i] = low, high


@inner
def in_vectors(numbers: Any) -> Any:
    """The numbers of a panel's columns, in the order in which its vectors hold them."""
    even, odd = even_lanes(numbers), odd_lanes(numbers)
    return even_lanes(even), even_lanes(odd), odd_lanes(even), odd_lanes(odd)


@inner
def _pack_line(how: Any, value: Any, emin: int, places: Any, at: int, low: Any, high: Any) -> Any:
    """One k of a panel; its extremes."""
    number, exponent, empty, low, high = _numbers(how, value, emin, low, high)
    vectors = in_vectors(number if how.exact else number * splat(_MORE, PANEL))
    values, exponents, signs = places
    store(vectors[0], values)
    store(vectors[1], values + 8 * LANES)
    store(vectors[2], values + 16 * LANES)
    store(vectors[3], values + 24 * LANES)
    words = select(empty, splat(np.int64(_OF_ZERO[1]), PANEL), exponent << splat(np.int64(WORD), PANEL))
    store(convert(words, np.int16), exponents)
    ones = convert(bitcast(number, np.uint64) >> splat(np.uint64(63), PANEL), np.uint8) << splat(np.uint8(at % how.terms), PANEL)
    fours = bitcast(ones, np.uint32)
    turned = fours << splat(np.uint32(8), _FOURS) | fours >> splat(np.uint32(24), _FOURS)
    store(bitcast(load(signs, np.uint8, PANEL), np.uint32) | turned, signs)
    return low, high


@compiled
def _pack_columns(how: Any, b: Any, emin: int, packed: Any, first: int, last: int) -> None:
    depth, columns = b.shape
    line = np.zeros(PANEL, np.float32)
    for panel in range(first, last):
        start = panel * PANEL
        wide = min(PANEL, columns - start)
        low, high = splat(np.int64(SPECIAL), PANEL), splat(np.int64(NONE), PANEL)
        for k in range(packed.values.shape[1]):
            at = _place(how, k)
            row = np.intp(line.ctypes.data)
            if k < depth and wide == PANEL:
                row = np.intp(b[k, start:].ctypes.data)
            else:
                for column in range(PANEL):
                    line[column] = b[k, start + column] if k < depth and column < wide else np.float32(0)
            values, exponents, signs = packed.values[panel, at:], packed.exponents[panel, at:], packed.signs[panel, at // how.terms :]
            places = np.intp(values.ctypes.data), np.intp(exponents.ctypes.data), np.intp(signs.ctypes.data)
            low, high = _pack_line(how, convert(load(row, np.float32, PANEL), np.float64), emin, places, at, low, high)
        store(low, np.intp(packed.lowest[start:].ctypes.data))
        store(high, np.intp(packed.highest[start:].ctypes.data))


def _memory(how: Steps, shape: tuple[int, ...], lines: int, dtype: Any) -> Packed:
    count, depth, *wide = shape
    signs = np.zeros((count, depth // how.terms, *wide), np.uint8)
    return Packed(aligned_empty(shape, np.float64), aligned_empty(shape, dtype), signs, np.full(lines, SPECIAL), np.full(lines, NONE))


def packed_rows(how: Steps, a: NDArray[np.float32], emin: int, threads: int) -> Packed:
    """A of (M, K), of a format whose smallest normal exponent is `emin`."""
    rows, depth = a.shape
    lines = rows + ROWS - 1
    packed = _memory(how, (lines, -(-depth // how.depth) * how.depth), lines, np.int32)
    packed.values[rows:] = 0
    parallel_for(lambda first, last, _: _pack_rows(how, a, emin, packed, first, last), rows, threads, _CHUNK)
    return packed


def packed_columns(how: Steps, b: NDArray[np.float32], emin: int, threads: int) -> Packed:
    """B of (K, N), likewise."""
    depth, columns = b.shape
    panels = -(-columns // PANEL)
    packed = _memory(how, (panels, -(-depth // how.depth) * how.depth, PANEL), panels * PANEL, np.int16)
    parallel_for(lambda first, last, _: _pack_columns(how, b, emin, packed, first, last), panels, threads)
    return packed
