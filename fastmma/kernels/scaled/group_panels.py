"""Packing for `fastmma.kernels.scaled.group_micro_kernel`, and one macro tile, rows by a panel of columns, slab by slab of k."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import aligned_empty
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.micro_kernel import run_at
from fastmma.kernels.llvm.simd import bitcast, extract, insert, interleave, lane_bits, load, load_scalar, maximum, select, splat, store
from fastmma.kernels.scaled.group_micro_kernel import EXCESS, MARKED, TERMS, GroupConfig

BIAS_A = 12  # makes bytes of A positive
SLAB_STEPS = 8
RUN = 16  # elements that are packed together: no group has fewer
_RUN_WORDS = RUN // 4
_WORDS = 8  # of B that are packed together ...
_PAIRS, _BYTES = 2 * _WORDS, 4 * _WORDS  # ... as lanes of int16 and of bytes
_COLUMNS = 4  # of a transposed B, whose words of a run are exchanged


class Rows(NamedTuple):
    """A packed for one kind of kernels: bytes (slab, row, k); scales, their exponents and bits of what is not zero (slab, row, group)."""

    elements: NDArray[np.uint8]
    scales: NDArray[np.float64]
    exponents: NDArray[np.int32]
    nonzero: NDArray[np.int32]


class Slab(NamedTuple):
    """A panel of B packed, for some steps, and the running sums of all rows."""

    words: NDArray[np.int32]
    starts: NDArray[np.int32]
    scales: NDArray[np.float64]
    exponents: NDArray[np.int32]
    nonzero: NDArray[np.int32]
    state: NDArray[np.float32]


def slab_of(tile: GroupConfig, steps: int, rows: int) -> Slab:
    """Memory for panels of a product of so many steps, and macro tiles of so many rows."""
    terms = min(steps, SLAB_STEPS) * TERMS
    return Slab(
        aligned_empty((min(steps, SLAB_STEPS) * tile.step // 4, tile.columns), np.int32),
        aligned_empty((terms, tile.columns), np.int32),
        aligned_empty((terms, tile.columns), np.float64),
        aligned_empty((terms, tile.columns), np.int32),
        aligned_empty((terms, tile.columns), np.int32),
        aligned_empty((rows, tile.columns), np.float32),
    )


@inner
def signed(codes: Any) -> Any:
    """e2m1 values times 2 as bytes, in lanes of uint8."""
    magnitude = codes & 7
    six = maximum(magnitude, 6)
    twice = magnitude + maximum(magnitude, 4) + six + six - 16
    return select((codes & 8) != 0, 0 - twice, twice)


@inner
def _run_of(source: int, count: int) -> Any:
    """Codes that follow one another, zeros after the first `count`."""
    if count >= RUN:
        return load(source, np.uint8, RUN)
    codes = splat(np.uint8(0), RUN)
    for place in range(count):
        codes = insert(codes, place, load_scalar(source + place, np.uint8))
    return codes


@compiled
def pack_rows(a: Any, scale_codes: Any, alive: Any, block: int, first: int, last: int, elements: Any) -> None:
    """Pack rows first to last of A (C-contiguous codes); zeros past its rows and columns, and where a scale is zero."""
    slabs, rows, depth = elements.shape
    bias = splat(np.uint8(BIAS_A), RUN)
    for row in range(first, last):
        columns = a.shape[1] if row < a.shape[0] else 0
        source = a.ctypes.data + row * a.shape[1]
        number, left = 0, block  # the scale of the next run, and how many elements it is still of
        for slab in range(slabs):
            target = elements.ctypes.data + (slab * rows + row) * depth
            for place in range(0, depth, RUN):
                k = slab * depth + place
                packed = bias
                if k < columns and alive[scale_codes[row, number]] != 0:
                    packed = bias + signed(_run_of(source + k, columns - k))
                store(packed, target + place)
                left -= RUN
                if left == 0:
                    number, left = number + 1, block


@compiled
def nonzero_rows(elements: Any, group: int, first: int, last: int, nonzero: Any) -> None:
    """A bit for each element of a group of packed rows first to last that is not zero."""
    for slab in range(nonzero.shape[0]):
        for row in range(first, last):
            for term in range(nonzero.shape[2]):
                bits = np.int64(0)
                for place in range(0, group, RUN):
                    run = load(elements[slab, row].ctypes.data + term * group + place, np.uint8, RUN)
                    bits |= lane_bits(run != BIAS_A) << place
                nonzero[slab, row, term] = np.int32(bits)


@separate
def _word(b: Any, turned: bool, k: int, column: int) -> Any:
    """4 codes of a column of B, zeros past its edges."""
    depth, columns = (b.shape[1], b.shape[0]) if turned else b.shape
    word = np.uint32(0)
    if column < columns:
        for i in range(min(4, depth - k)):
            code = b[column, k + i] if turned else b[k + i, column]
            word |= np.uint32(np.uint32(code) << np.uint32(8 * i))
    return np.int32(word)


@inner
def _exchange(source: int, stride: int, target: int, width: int) -> None:
    """The words of a run of `_COLUMNS` lines of a transposed B, of `width` columns a row."""
    first = interleave(load(source, np.int32, _RUN_WORDS), load(source + stride, np.int32, _RUN_WORDS))
    second = interleave(load(source + 2 * stride, np.int32, _RUN_WORDS), load(source + 3 * stride, np.int32, _RUN_WORDS))
    pairs = interleave(bitcast(first, np.int64), bitcast(second, np.int64))
    for word in range(_RUN_WORDS):
        store(extract(pairs, 2 * word), target + 4 * width * word)
        store(extract(pairs, 2 * word + 1), target + 4 * width * word + 8)


@separate
def _copy_words(b: Any, turned: bool, column: int, first: int, count: int, words: Any) -> None:
    """The codes of `count` words of k from element `first` on of a panel of B, [word][column]."""
    depth, columns = (b.shape[1], b.shape[0]) if turned else b.shape
    width = words.shape[1]
    source, stride = b.ctypes.data, b.shape[1]
    for word in range(0, count, _RUN_WORDS):
        k = first + 4 * word
        target = words[word].ctypes.data
        if k + RUN <= depth and column + width <= columns:
            if turned:
                for j in range(0, width, _COLUMNS):
                    _exchange(source + (column + j) * stride + k, stride, target + 4 * j, width)
            else:
                for i in range(0, RUN, 4):
                    for j in range(0, width, _WORDS):
                        place = source + (k + i) * stride + column + j
                        low = interleave(load(place, np.uint8, _WORDS), load(place + stride, np.uint8, _WORDS))
                        high = interleave(load(place + 2 * stride, np.uint8, _WORDS), load(place + 3 * stride, np.uint8, _WORDS))
                        store(interleave(bitcast(low, np.uint16), bitcast(high, np.uint16)), target + i * width + 4 * j)
        else:
            for i in range(_RUN_WORDS):
                for j in range(width):
                    words[word + i, j] = _word(b, turned, k + 4 * i, column + j)


@separate
def _pack_columns(
    tile: Any, b: Any, turned: bool, scale_codes: Any, scales: Any, block: int, column: int, first: int, last: int, factor: float, slab: Any
) -> None:
    """Pack steps first to last of a panel of B; its scales times a power of two."""
    depth = b.shape[1] if turned else b.shape[0]
    width = tile.columns
    in_group = tile.group // 4
    alive = np.empty(width, np.int32)
    count = min(scale_codes.shape[1] - column, width)
    half = tile.lanes // 2
    start = first * tile.step
    multiples = scales.values * factor
    _copy_words(b, turned, column, start, (last - first) * tile.terms * in_group, slab.words)
    for term in range((last - first) * tile.terms):
        k = start + term * tile.group
        number = k // block
        for quad in range(0, width, 4):
            # two columns, then two for the other half of the vector
            lane = quad % tile.lanes
            place = quad - lane + lane // 2
            for each in range(4):
                j = quad + each
                code = np.uint8(0)
                alive[j] = 0
                if j < count and k < depth:
                    code = scale_codes[number, column + j]
                    alive[j] = -np.int32(scales.alive[code])
                slab.scales[term, place + each % 2 + each // 2 * half] = multiples[code]
                if tile.aligned:
                    slab.exponents[term, j] = (scales.exponents[code] + EXCESS // 2) << 20
        for j in range(0, width, _WORDS):
            mask = bitcast(load(alive.ctypes.data + 4 * j, np.int32, _WORDS), np.uint8)
            sums = splat(np.int16(0), _PAIRS)
            nonzero = splat(np.int32(0), _WORDS)
            target = slab.words.ctypes.data + 4 * (term * in_group * width + j)
            for word in range(in_group):
                values = signed(load(target, np.uint8, _BYTES)) & mask
                store(values, target)
                pairs = bitcast(values, np.int16)
                sums = sums + (pairs >> 8) + ((pairs << 8) >> 8)
                if tile.aligned:
                    ones = bitcast(select(values != 0, splat(np.uint8(1), _BYTES), 0), np.int32)
                    bits = (ones | (ones >> 7) | (ones >> 14) | (ones >> 21)) & 15
                    nonzero = nonzero | (bits << (4 * word))
                target += 4 * width
            pairs_of_sums = bitcast(sums, np.int32)
            total = (pairs_of_sums >> 16) + ((pairs_of_sums << 16) >> 16)
            store(total * np.int32(-BIAS_A) + np.int32(-(2**31)), slab.starts.ctypes.data + 4 * (term * width + j))
            if tile.aligned:
                store(nonzero, slab.nonzero.ctypes.data + 4 * (term * width + j))
                if tile.group <= MARKED:
                    exponents = slab.exponents.ctypes.data + 4 * (term * width + j)
                    store(load(exponents, np.int32, _WORDS) | nonzero, exponents)


@compiled
def run_macro_tile(
    tile: Any,
    kernel: int,
    rows: Any,
    first: int,
    last: int,
    b: Any,
    turned: bool,
    scale_codes: Any,
    scales: Any,
    block: int,
    column: int,
    factor: float,
    state_factors: Any,
    slab: Any,
) -> None:
    """All of k for rows first to last (a whole number of blocks) by a panel; `slab.state` holds c and gets d."""
    depth = b.shape[1] if turned else b.shape[0]
    steps = -(-depth // tile.step)
    at_once = len(slab.starts) // TERMS
    for start in range(0, steps, at_once):
        stop = min(start + at_once, steps)
        _pack_columns(tile, b, turned, scale_codes, scales, block, column, start, stop, factor, slab)
        number = start // at_once
        run_at(
            kernel,
            (
                rows.elements[number, first].ctypes.data,
                rows.scales[number, first].ctypes.data,
                rows.exponents[number, first].ctypes.data,
                slab.words.ctypes.data,
                slab.starts.ctypes.data,
                slab.scales.ctypes.data,
                slab.exponents.ctypes.data,
                rows.nonzero[number, first].ctypes.data,
                slab.nonzero.ctypes.data,
                slab.state.ctypes.data,
                rows.elements.strides[1],
                rows.scales.strides[1],
                rows.exponents.strides[1],
                rows.nonzero.strides[1],
                (last - first) // tile.rows,
                stop - start,
                1,
                state_factors[0],
                state_factors[1],
            ),
        )
