"""Packing for `fastmma.kernels.fused.window_lanes`: values, exponents and signs of A's rows, and of panels of 32 columns of B.

The exponent of a product is a word of 16 bits, the first ones of a float64: the sum of a word of A and one of B. Of formats with few
exponents it is a byte, a byte of A less one of B: of two rows at a time. A zero of a window is packed as a tiny positive value. Infinities
and NaNs are packed as zeros, and another kernel does their lines. Where products of even and odd k are summed apart, those of even k come
first in each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.decode.lanes import field_of, first_special_of, magnitude_of, signed, value_of
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.llvm.simd import (
    bitcast,
    convert,
    even_lanes,
    highest_lane,
    lane_bits,
    load,
    load_scalar,
    lowest_lane,
    maximum,
    minimum,
    odd_lanes,
    select,
    splat,
    store,
)
from fastmma.kernels.matrices.addresses import Matrix, code_place, load_adjacent_codes, load_code, matrix, matrix_part
from fastmma.kernels.matrices.loans import Loan
from fastmma.kernels.params import Element, Specials

Codes = NDArray[Any]

LANES, PANEL = 8, 32  # lane l of vector v holds column 4 l + v
ROWS = 4  # at a time, at most
_BOTH = 2 * LANES  # elements of a step in two windows
_FOURS = PANEL // 4  # words of 32 bits of the signs of a line
TINY = float.fromhex("0x1p-700")  # its product with any element is less than a unit
NONE, SPECIAL = -16384, 16384  # exponents of zeros, and of infinities and NaNs
SCALE_BITS = 128
SCALE = float.fromhex("0x1p-128")  # of sums in windows, and of B
BIAS = 1023 + 52 - 24 - SCALE_BITS  # from exponents of products to those of 2**52 units
_TWICE = 0x10001  # a word times this is a pair of them
_BOTH_BYTES = 0x101
WORD = 4  # bits of a word below the exponent
QUARTER = 4  # what they are: a start is 1.25 * 2**52 units, and more where products are negative
FIELD_OF_BYTES = 3 << 8  # what a byte is added to
_NEGATED = 16  # less the exponent of B, its byte; 16 is more than the largest exponent
_OF_ZERO = (0, -(1 << 15))  # words of zeros in A and B, whose sum with any is less than that of the smallest product
_BYTE_OF_ZERO = 255  # of B: no byte of A is larger; that of A is 0
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
    narrow : bool
        Whether exponents are bytes.
    """

    terms: int
    ways: int = 1
    exact: bool = False
    least: int = 0
    narrow: bool = False

    @property
    def depth(self) -> int:
        """Products of a step."""
        return self.terms * self.ways


class Packed(NamedTuple):
    """One operand: values and exponents (rows, k) or (panels, k, 32), signs of the products of each window, and extremes of each line.

    Exponents of A are pairs of words, and moved by `BIAS`. Signs are bits of a byte, those of column 4 l + v of B in place 4 l + v + 1, or
    4 l for v = 3. Exponents that are bytes, and their signs, are twice the bytes of two rows of A, in turns, and twice that of B. Extremes
    are the exponents of numbers but zeros.
    """

    values: NDArray[np.float64]
    exponents: NDArray[Any]
    signs: NDArray[Any]
    lowest: NDArray[np.int32]
    highest: NDArray[np.int32]


@inner
def _place(how: Any, k: int) -> Any:
    """Return the place of a k in its step: of two windows, the first one has the even ones."""
    within = k % how.depth
    return k - within + within % how.ways * how.terms + within // how.ways


@inner
def _read(source: Matrix, i: int, count: int, padded: int, line: int) -> None:
    """The first codes of a row, which lie side by side, as int32 at `line`; zeros past `count`."""
    address = code_place(source, i, 0)
    whole = count // LANES * LANES
    for k in range(0, whole, LANES):
        store(load_adjacent_codes(address + k * source.itemsize, source.itemsize), line + 4 * k)
    for k in range(whole, padded):
        code = np.int32(0)
        if k < count:
            code = load_code(address + k * source.itemsize, source.itemsize)
        store(code, line + 4 * k)


@inner
def _line(source: Matrix, i: int, count: int, line: int) -> Any:
    """As many codes of a row as a panel has columns; zeros past `count`."""
    if count < PANEL:  # by way of memory, from which a load that takes more than one store wrote has to wait
        _read(source, i, count, PANEL, line)
        return load(line, np.int32, PANEL)
    address = code_place(source, i, 0)
    if source.itemsize == 1:
        return convert(load(address, np.uint8, PANEL), np.int32)
    if source.itemsize == 2:
        return convert(load(address, np.uint16, PANEL), np.int32)
    return load(address, np.int32, PANEL)


@inner
def _special(codes: Any, magnitude: Any, element: Element) -> Any:
    """Mark infinities and NaNs."""
    if element.specials == Specials.NEGATIVE_ZERO:
        return codes == 1 << element.exponent_bits + element.mantissa_bits
    return magnitude >= first_special_of(element)


@inner
def _numbers(how: Any, codes: Any, element: Element, low: Any, high: Any) -> Any:
    """Numbers of codes in place of zeros and others, their exponents, which those are, and the extremes."""
    codes = codes >> element.shift
    magnitude = magnitude_of(codes, element)
    field = field_of(magnitude, element)
    exponent = field - element.bias
    zero, special = magnitude == 0, _special(codes, magnitude, element)
    empty = zero | special
    low = minimum(low, select(empty, SPECIAL, exponent))
    high = maximum(high, select(special, SPECIAL, select(zero, NONE, exponent)))
    value = signed(value_of(magnitude, field, -element.bias - element.mantissa_bits, element, np.float64), codes, element)
    return select(empty, 0.0 if how.exact else TINY, value), exponent, empty, low, high


@inner
def places_of(packed: Any, line: int, held: int) -> Any:
    """The addresses of a line, or panel, whose exponents and signs are those of line `held`."""
    return (
        np.intp(packed.values[line].ctypes.data),
        np.intp(packed.exponents[held].ctypes.data),
        np.intp(packed.signs[held].ctypes.data),
    )


@inner
def held_row(how: Any, i: int) -> int:
    """Return where the exponents of a row are: of two rows they may be together."""
    return i // 2 if how.narrow else i


@inner
def _pack_eight(how: Any, codes: Any, element: Element, places: Any, i: int, k: int, low: Any, high: Any) -> Any:
    """Eight elements of a row, from place k on; the extremes."""
    number, exponent, empty, low, high = _numbers(how, codes, element, low, high)
    store(number, places[0] + 8 * k)
    negative, second = lane_bits(number < 0.0), i % 2
    if how.narrow:
        both = select(empty, 0, exponent + (BIAS - FIELD_OF_BYTES + _NEGATED)) * _TWICE << 8 * second
        store(load(places[1] + 4 * k, np.int32, LANES) & -second | both, places[1] + 4 * k)
    else:
        store((select(empty, _OF_ZERO[0], (exponent + BIAS) << WORD) | QUARTER) * _TWICE, places[1] + 4 * k)
    for window in range(LANES // how.terms):
        signs, at = negative >> how.terms * window & (1 << how.terms) - 1, k // how.terms + window
        if how.narrow:
            before = np.int64(load_scalar(places[2] + 4 * at, np.uint32)) & -second
            store(np.uint32(signs * _TWICE << 8 * second | before), places[2] + 4 * at)
        else:
            store(np.uint8(signs), places[2] + at)
    return low, high


@compiled
def _pack_rows(how: Any, source: Matrix, depth: int, element: Element, packed: Any, first: int, last: int) -> None:
    padded = packed.values.shape[1]
    codes = np.empty(padded, np.int32)
    line = np.intp(codes.ctypes.data)
    for i in range(first, last):
        _read(source, i, depth, padded, line)
        places = places_of(packed, i, held_row(how, i))
        low, high = splat(np.int32(SPECIAL), LANES), splat(np.int32(NONE), LANES)
        if how.ways == 1:
            for k in range(0, padded, LANES):
                low, high = _pack_eight(how, load(line + 4 * k, np.int32, LANES), element, places, i, k, low, high)
        else:
            for k in range(0, padded, _BOTH):
                both = load(line + 4 * k, np.int32, _BOTH)
                low, high = _pack_eight(how, even_lanes(both), element, places, i, k, low, high)
                low, high = _pack_eight(how, odd_lanes(both), element, places, i, k + LANES, low, high)
        packed.lowest[i], packed.highest[i] = lowest_lane(low), highest_lane(high)


@inner
def in_vectors(numbers: Any) -> Any:
    """The numbers of a panel's columns, in the order in which its vectors hold them."""
    even, odd = even_lanes(numbers), odd_lanes(numbers)
    return even_lanes(even), even_lanes(odd), odd_lanes(even), odd_lanes(odd)


@inner
def _pack_line(how: Any, codes: Any, element: Element, places: Any, at: int, low: Any, high: Any) -> Any:
    """One k of a panel; its extremes."""
    number, exponent, empty, low, high = _numbers(how, codes, element, low, high)
    vectors = in_vectors(number if how.exact else number * splat(_MORE, PANEL))
    values, exponents, signs = places
    store(vectors[0], values)
    store(vectors[1], values + 8 * LANES)
    store(vectors[2], values + 16 * LANES)
    store(vectors[3], values + 24 * LANES)
    words = select(empty, _OF_ZERO[1], exponent << WORD)
    if how.narrow:
        words = select(empty, _BYTE_OF_ZERO, _NEGATED - exponent) * _BOTH_BYTES
    store(convert(words, np.int16), exponents)
    ones = convert(bitcast(number, np.uint64) >> splat(np.uint64(63), PANEL), np.uint8) << splat(np.uint8(at % how.terms), PANEL)
    fours = bitcast(ones, np.uint32)
    turned = fours << splat(np.uint32(8), _FOURS) | fours >> splat(np.uint32(24), _FOURS)
    if how.narrow:
        twice = convert(bitcast(turned, np.uint8), np.uint16) * np.uint16(_BOTH_BYTES)
        store(load(signs, np.uint16, PANEL) | twice, signs)
    else:
        store(bitcast(load(signs, np.uint8, PANEL), np.uint32) | turned, signs)
    return low, high


@compiled
def _pack_columns(how: Any, source: Matrix, depth: int, columns: int, element: Element, packed: Any, first: int, last: int) -> None:
    some = np.zeros(PANEL, np.int32)
    line = np.intp(some.ctypes.data)
    for panel in range(first, last):
        start = panel * PANEL
        wide, part = min(PANEL, columns - start), matrix_part(source, 0, start)
        values, exponents, signs = places_of(packed, panel, panel)
        low, high = splat(np.int32(SPECIAL), PANEL), splat(np.int32(NONE), PANEL)
        for k in range(packed.values.shape[1]):
            at = _place(how, k)
            codes = _line(part, k, wide if k < depth else 0, line)
            places = values + 8 * PANEL * at, exponents + 2 * PANEL * at, signs + (2 if how.narrow else 1) * PANEL * (at // how.terms)
            low, high = _pack_line(how, codes, element, places, at, low, high)
        store(low, np.intp(packed.lowest[start:].ctypes.data))
        store(high, np.intp(packed.highest[start:].ctypes.data))


def _memory(how: Steps, shape: tuple[int, ...], held: int, kinds: tuple[Any, Any], lines: int, loan: Loan) -> Packed:
    """Memory for values of this shape, and for `held` lines of exponents and signs of these kinds."""
    _, depth, *wide = shape
    signs = np.zeros((held, depth // how.terms, *wide), kinds[1])
    extremes = np.full(lines, SPECIAL, np.int32), np.full(lines, NONE, np.int32)
    shapes = (shape, np.float64), ((held, depth, *wide), kinds[0])
    values, exponents = (loan.memory(math.prod(each) * np.dtype(kind).itemsize).array(each, kind) for each, kind in shapes)
    return Packed(values, exponents, signs, *extremes)


def _whole(depth: int, unit: int) -> int:
    return -(-depth // unit) * unit


def packed_rows(how: Steps, a: Codes, element: Element, threads: int, loan: Loan) -> Packed:
    """A of (M, K), whose codes of a row lie side by side."""
    rows, depth = a.shape
    lines = rows + ROWS - 1
    held, kinds = (-(-lines // 2), (np.int32, np.uint32)) if how.narrow else (lines, (np.int32, np.uint8))
    packed = _memory(how, (lines, _whole(depth, max(how.depth, LANES))), held, kinds, lines, loan)
    packed.values[rows:] = 0
    parallel_for(lambda first, last, _: _pack_rows(how, matrix(a), depth, element, packed, first, last), rows, threads, _CHUNK)
    return packed


def packed_columns(how: Steps, b: Codes, element: Element, threads: int, loan: Loan) -> Packed:
    """B of (K, N), likewise."""
    depth, columns = b.shape
    panels = -(-columns // PANEL)
    kinds = np.int16, np.uint16 if how.narrow else np.uint8
    packed = _memory(how, (panels, _whole(depth, how.depth), PANEL), panels, kinds, panels * PANEL, loan)
    parallel_for(lambda first, last, _: _pack_columns(how, matrix(b), depth, columns, element, packed, first, last), panels, threads)
    return packed
