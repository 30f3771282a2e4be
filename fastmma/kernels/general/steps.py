"""The loop over the steps of a macro tile of products, for sums of either kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.general import digits, limbs, window
from fastmma.kernels.general.lines import DecodedLines
from fastmma.kernels.general.step_end import (
    StepMemory,
    ieee_sum,
    kind_of,
    make_work,
    of_column,
    put_specials,
    raise_emax,
    read_accumulators,
    write_accumulators,
)
from fastmma.kernels.llvm.compilation import compiled, separate
from fastmma.kernels.params import General

_window_terms, _limb_terms, _digit_step = window.add_terms, limbs.add_terms, digits.step


@separate
def _add_addends(p: General, addends: Any, state: Any) -> None:
    """Return what the sums of an instruction started without joins them."""
    for row in range(len(state)):
        for j in range(state.shape[1]):
            state[row, j] = np.uint32(ieee_sum(p, state[row, j], addends[row, j]))


@separate
def _settle_doubts(
    p: General,
    a: DecodedLines,
    b: DecodedLines,
    reach: Any,
    i: int,
    columns: Any,
    first: int,
    last: int,
    work: StepMemory,
    own: Any,
    before: Any,
    codes: Any,
) -> None:
    """Columns in doubt again, from the accumulators `before` the step: one by one if they are few."""
    width, doubtful = len(codes), np.int64(0)
    for j in range(width):
        doubtful += work.doubtful[j]
    if doubtful > width >> 3:
        for j in range(width):
            codes[j] = before[j]
        _digit_step(p, a, b, reach, i, columns, first, last, work, own, codes)
    elif doubtful != 0:
        for j in range(width):
            if work.doubtful[j] != 0:
                at = columns[0] + j
                codes[j] = before[j]
                _digit_step(p, a, b, reach, i, (at, at + 1), first, last, of_column(work, j), own, codes[j : j + 1])


@separate
def _multiply(
    p: General,
    a: DecodedLines,
    b: DecodedLines,
    offset: int,
    reach: Any,
    special: bool,
    in_window: bool,
    row: int,
    columns: Any,
    state: Any,
) -> None:
    """Rows from `row` on by columns; `state` (row, column) holds codes of c and gets those of d."""
    rows, width = state.shape
    limbs = bool(p.limbs) or not in_window
    work, kinds, before = make_work(width, digits.DIGITS if limbs else 1), np.zeros(width, np.uint8), np.zeros(width, np.uint32)
    own = np.zeros((1, digits.DIGITS), np.int64)
    addends = np.empty_like(state)
    depth, infinite = a.exponents.shape[1], (2 * p.bias + 1) << p.fraction
    for unit, start in enumerate(range(0, depth, p.unit)):
        if p.split != 0 and unit % p.split == 0:
            for line in range(rows):
                for j in range(width):
                    addends[line, j] = state[line, j]
                    state[line, j] = 0
        stop = min(start + p.unit, depth)
        for first in range(start, stop, p.terms * p.group):
            last = min(first + p.terms * p.group, stop)
            for line in range(rows):
                codes, i = state[line], row + line
                read_accumulators(p, codes, work)
                found = np.int64(0)
                for j in range(width):
                    found |= np.int64((codes[j] & infinite) == infinite)
                if found != 0 or special:
                    for j in range(width):
                        kinds[j] = kind_of(p, codes[j])
                raise_emax(a.exponents, b.exponents, i, columns, first, last, work.emax)
                if limbs:
                    for j in range(width):
                        before[j] = codes[j]
                if in_window:
                    _window_terms(p, a, b, offset, i, columns, first, last, work)
                    write_accumulators(p, work, work.emax, codes)
                else:
                    _limb_terms(p, a, b, offset, i, columns, first, last, work)
                    write_accumulators(p, work, work.units, codes)
                if limbs:
                    _settle_doubts(p, a, b, reach, i, columns, first, last, work, own, before, codes)
                if found != 0 or special:
                    put_specials(p, a, b, i, columns, first, last, kinds, codes)
        if p.split != 0 and unit % p.split == p.split - 1:
            _add_addends(p, addends, state)


@separate
def _move(state: Any, tile: int, row: int, column: int, codes: Any, read: bool) -> None:
    """A macro tile of the state to or from memory of its own; an assignment of arrays would take seconds to compile."""
    for line in range(len(codes)):
        for j in range(codes.shape[1]):
            if read:
                codes[line, j] = state[tile, row + line, column + j]
            else:
                state[tile, row + line, column + j] = codes[line, j]


@compiled
def run_macro_tile(
    p: General,
    a: DecodedLines,
    b: DecodedLines,
    offset: int,
    reach: Any,
    special: bool,
    in_window: bool,
    tiles: Any,
    rows: Any,
    columns: Any,
    state: Any,
) -> None:
    """Rows by columns of some products; `state` (product, row, column) holds codes of c and gets those of d."""
    for tile in range(tiles[0], tiles[1]):
        x = DecodedLines(a.significands[tile], a.exponents[tile], a.bases[min(tile, len(a.bases) - 1)], a.kinds[tile])
        y = DecodedLines(b.significands[tile], b.exponents[tile], b.bases[min(tile, len(b.bases) - 1)], b.kinds[tile])
        codes = np.empty((rows[1] - rows[0], columns[1] - columns[0]), np.uint32)
        _move(state, tile, rows[0], columns[0], codes, True)
        _multiply(p, x, y, offset, reach, special, in_window, rows[0], columns, codes)
        _move(state, tile, rows[0], columns[0], codes, False)
