"""Packing for `fastmma.kernels.scaled.group_micro_kernel`, and one piece of a product, rows by a panel of columns, slab by slab of k."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.micro_kernel import run_at
from fastmma.kernels.scaled.group_micro_kernel import EXCESS, MARKED, TERMS

BIAS_A = 12  # makes bytes of A positive


class Rows(NamedTuple):
    """A packed for one kind of kernels: bytes (row, k); scales, their exponents and bits of what is not zero (row, group)."""

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


@compiled
def _twice(code: int) -> int:
    """Twice the value of an e2m1 code."""
    magnitude = code & 7
    value = magnitude + max(magnitude, 4) + 2 * max(magnitude, 6) - 16
    return -value if code & 8 else value


@compiled
def pack_rows(a: Any, scale_codes: Any, alive: Any, block: int, group: int, first: int, last: int, elements: Any) -> None:
    """Pack rows first to last of A (C-contiguous codes); zeros past its rows and columns, and where a scale is zero."""
    for row in range(first, last):
        line = elements[row]
        line[:] = BIAS_A
        if row >= len(a):
            continue
        source = a[row]
        for start in range(0, len(source), group):
            if alive[scale_codes[row, start // block]] != 0:
                for k in range(start, min(start + group, len(source))):
                    line[k] = np.uint8(_twice(np.int32(source[k])) + BIAS_A)


@compiled
def nonzero_rows(elements: Any, group: int, first: int, last: int, nonzero: Any) -> None:
    """A bit for each element of a group of packed rows first to last that is not zero."""
    for row in range(first, last):
        for term in range(nonzero.shape[1]):
            bits = np.int64(0)
            for i in range(group):
                bits |= np.int64(elements[row, term * group + i] != BIAS_A) << np.int64(i)
            nonzero[row, term] = np.int32(bits)


@compiled
def _load_columns(b: Any, turned: bool, k: int, column: int, codes: Any) -> None:
    """Codes of 4 rows of B from k on; zeros past its edges."""
    depth, columns = (b.shape[1], b.shape[0]) if turned else b.shape
    count = min(columns - column, codes.shape[1])
    if count < codes.shape[1] or k + 4 > depth:
        codes[:] = 0
    for i in range(min(4, depth - k)):
        if turned:
            for j in range(count):
                codes[i, j] = b[column + j, k + i]
        else:
            source = b[k + i, column : column + count]
            for j in range(count):
                codes[i, j] = source[j]


@compiled
def _pack_columns(
    tile: Any, b: Any, turned: bool, scale_codes: Any, scales: Any, block: int, column: int, first: int, last: int, factor: float, slab: Any
) -> None:
    """Pack steps first to last of a panel of B; its scales times a power of two."""
    depth = b.shape[1] if turned else b.shape[0]
    width = tile.columns
    codes = np.zeros((4, width), np.uint8)
    alive, sums = np.empty(width, np.int32), np.empty(width, np.int32)
    count = min(scale_codes.shape[1] - column, width)
    half = tile.lanes // 2
    for term in range((last - first) * TERMS):
        start = first * TERMS * tile.group + term * tile.group
        for j in range(width):
            code = np.uint8(0)
            alive[j] = 0
            if j < count and start < depth:
                code = scale_codes[start // block, column + j]
                alive[j] = -np.int32(scales.alive[code])
            # two columns, then two for the other half of the vector
            lane = j % tile.lanes
            place = j - lane + (lane & 2) * half // 2 + (lane // 4 * 2 + lane % 2)
            slab.scales[term, place] = scales.values[code] * factor
            slab.exponents[term, j] = (scales.exponents[code] + EXCESS // 2) << 20
        sums[:] = 0
        nonzero = slab.nonzero[term]
        nonzero[:] = 0
        for word in range(tile.group // 4):
            target = slab.words[term * (tile.group // 4) + word]
            if start + 4 * word >= depth:
                target[:] = 0
                continue
            _load_columns(b, turned, start + 4 * word, column, codes)
            for j in range(width):
                x0 = np.int32(_twice(np.int32(codes[0, j]))) & alive[j]
                x1 = np.int32(_twice(np.int32(codes[1, j]))) & alive[j]
                x2 = np.int32(_twice(np.int32(codes[2, j]))) & alive[j]
                x3 = np.int32(_twice(np.int32(codes[3, j]))) & alive[j]
                sums[j] += x0 + x1 + x2 + x3
                some = np.int32(x0 != 0) | np.int32(x1 != 0) << 1 | np.int32(x2 != 0) << 2 | np.int32(x3 != 0) << 3
                nonzero[j] |= np.int32(some << np.int32(4 * word))
                target[j] = (x0 & 255) | (x1 & 255) << 8 | (x2 & 255) << 16 | x3 << 24
        for j in range(width):
            slab.starts[term, j] = np.int32(-(2**31) - BIAS_A * sums[j])
            if tile.group <= MARKED:
                slab.exponents[term, j] |= nonzero[j]


@compiled
def run_piece(
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
        group = start * TERMS
        run_at(
            kernel,
            (
                rows.elements[first, start * tile.step :].ctypes.data,
                rows.scales[first, group:].ctypes.data,
                rows.exponents[first, group:].ctypes.data,
                slab.words.ctypes.data,
                slab.starts.ctypes.data,
                slab.scales.ctypes.data,
                slab.exponents.ctypes.data,
                rows.nonzero[first, min(group, rows.nonzero.shape[1] - 1) :].ctypes.data,
                slab.nonzero.ctypes.data,
                slab.state.ctypes.data,
                rows.elements.strides[0],
                rows.scales.strides[0],
                rows.exponents.strides[0],
                rows.nonzero.strides[0],
                (last - first) // tile.rows,
                stop - start,
                1,
                state_factors[0],
                state_factors[1],
            ),
        )
