"""Compiled loops that pack elements of e2m1, times their scales, into tiles of bf16, and note what bounds their sums."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmma.kernels.integer.amx_lines import BYTES, copy_part, copy_turned
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.direct import entry_of
from fastmma.kernels.llvm.simd import bitcast, fma, load, load_scalar, maximum, minimum, splat, store, zeros
from fastmma.kernels.matrices.memory import LINE
from fastmma.kernels.scaled.amx_group_kernel import CHUNK, AmxGroupConfig
from fastmma.kernels.scaled.amx_group_lines import load_products, load_twice_values, store_pairs, sums_of_lines

GROUP = 16  # elements that have one scale, at least
NO_UNIT = 1 << 20  # of zeros
_HIGHEST_UNIT = 60
FACTS = 3 * LINE  # bytes of a piece's

STEP = 128  # elements of a step, at most
_CODES, _NORMS = 0, STEP  # places in scratch memory: codes, and zeros after the last ones; sums of squares
_UNITS = _NORMS + TILE_ROWS * LINE
_PLACES = _UNITS + LINE  # of scales
_SCALES = _PLACES + STEP // GROUP * 8
_LINES = _SCALES + STEP // GROUP * LINE
SCRATCH = _LINES + STEP // CHUNK * TILE_BYTES


class Codes(NamedTuple):
    """One-byte codes in memory: lines (rows of A or columns of B) along k; 2**`k_shift` numbers share a code."""

    address: int
    line_stride: int
    k_stride: int
    k_shift: int = 0

    def after(self, count: int) -> Codes:
        """Return the codes after so many numbers of each line."""
        return self._replace(address=self.address + (count >> self.k_shift) * self.k_stride)


class Tables(NamedTuple):
    """Addresses of tables by the code of a scale.

    They have a half of its value as float32, log2 of the unit of its products with elements, and these products as bf16 numbers.
    """

    values: int
    units: int
    products: int


@inner
def _note(facts: int, sums: Any, units: Any) -> None:
    """Note sums of squares, also in units of their own step, and the least unit."""
    inverses = bitcast((127 - 2 * minimum(units, _HIGHEST_UNIT)) << 23, np.float32)  # of squares of units
    ratios = bitcast(sums * inverses, np.int32)
    store(maximum(load(facts, np.int32, TILE_ROWS), ratios), facts)
    store(maximum(load(facts + LINE, np.int32, TILE_ROWS), bitcast(sums, np.int32)), facts + LINE)
    store(minimum(load(facts + 2 * LINE, np.int32, TILE_ROWS), units), facts + 2 * LINE)


@inner
def _begin(facts: int) -> None:
    """Note nothing yet."""
    store(zeros(np.int32, TILE_ROWS), facts)
    store(zeros(np.int32, TILE_ROWS), facts + LINE)
    store(splat(np.int32(NO_UNIT), TILE_ROWS), facts + 2 * LINE)


@inner
def _note_places(scales: Codes, depth: int, k: int, groups: int, room: int) -> None:
    """Note where the scales of a step are, after the first one of a line. Zeros past `depth` have the last group's scale."""
    for number in range(groups):
        group = min(k // GROUP + number, (depth - 1) // GROUP)
        store(np.int64((group >> scales.k_shift) * scales.k_stride), room + _PLACES + 8 * number)


@separate
def _pack_step(
    how: AmxGroupConfig, source: int, scales: int, tables: Tables, left: int, place: int, stride: int, room: int, i: int
) -> None:
    """Pack a step of a line, of which so many k are left, into lines of tiles, `stride` bytes apart; note its squares and unit."""
    step = how.chunks * CHUNK
    if left < step:
        for part in range(0, step, LINE):
            copy_part(BYTES, source + part, room + _CODES + part, max(0, min(LINE, left - part)))
        source = room + _CODES
    unit, squares = NO_UNIT, zeros(np.float32, TILE_ROWS)
    for chunk in range(how.chunks):
        at = room + _PLACES + 16 * chunk
        first = int(load_scalar(scales + load_scalar(at, np.int64), np.uint8))
        second = int(load_scalar(scales + load_scalar(at + 8, np.int64), np.uint8))
        unit = min(unit, load_scalar(tables.units + 4 * first, np.int32), load_scalar(tables.units + 4 * second, np.int32))
        two = load_products(how, source + chunk * CHUNK, tables.products + LINE // 2 * first, tables.products + LINE // 2 * second)
        words = bitcast(two, np.int32)
        x, y = bitcast(words << 16, np.float32), bitcast(words & -(1 << 16), np.float32)
        squares = fma(x, x, fma(y, y, squares))
        store(two, place + chunk * stride)
    store(squares, room + _NORMS + i * LINE)
    store(np.int32(unit), room + _UNITS + 4 * i)


@compiled
def pack_lines(
    how: AmxGroupConfig,
    codes: Codes,
    scales: Codes,
    tables: Tables,
    depth: int,
    first: int,
    last: int,
    target: int,
    facts: int,
    room: int,
    turned: int,
) -> None:
    """Pack lines first (of a block) to last, whose elements follow one another: of A into [block][tile of k][tile of rows][row][k].

    If `turned`, of B into [tile of columns][tile of k][pair of k][column][k]. Zeros are past `depth` and past the last line.
    """
    _begin(facts)
    step = how.chunks * CHUNK
    steps = -(-depth // step)
    for line in range(first, last, TILE_ROWS):
        count = min(TILE_ROWS, last - line)
        tile = (line - first) // TILE_ROWS
        block, half = tile // 2, tile % 2
        for number in range(steps):
            _note_places(scales, depth, number * step, step // GROUP, room)
            source, line_scales = codes.address + line * codes.line_stride + number * step, scales.address + line * scales.line_stride
            place, stride = target + (((block * steps + number) * how.chunks) * 2 + half) * TILE_BYTES, 2 * TILE_BYTES
            if turned:
                place, stride = room + _LINES, TILE_BYTES
            for i in range(count):
                _pack_step(how, source, line_scales, tables, depth - number * step, place + i * ROW_BYTES, stride, room, i)
                source, line_scales = source + codes.line_stride, line_scales + scales.line_stride
            for i in range(count, TILE_ROWS):
                for chunk in range(how.chunks):
                    store(zeros(np.int32, TILE_ROWS), place + i * ROW_BYTES + chunk * stride)
                store(zeros(np.float32, TILE_ROWS), room + _NORMS + i * LINE)
                store(np.int32(NO_UNIT), room + _UNITS + 4 * i)
            if turned:
                for chunk in range(how.chunks):
                    start = target + ((tile * steps + number) * how.chunks + chunk) * TILE_BYTES
                    copy_turned(BYTES, place + chunk * TILE_BYTES, ROW_BYTES, start)
            _note(facts, sums_of_lines(room + _NORMS), load(room + _UNITS, np.int32, TILE_ROWS))


@separate
def _scales_of_step(scales: Codes, tables: Tables, depth: int, line: int, count: int, k: int, groups: int, room: int) -> None:
    """Note the scales of a step of some columns, and units. Zeros past the last ones have the scales of these."""
    _note_places(scales, depth, k, groups, room)
    for i in range(TILE_ROWS):
        unit, place = NO_UNIT, scales.address + (line + min(i, count - 1)) * scales.line_stride
        for number in range(groups):
            code = int(load_scalar(place + load_scalar(room + _PLACES + 8 * number, np.int64), np.uint8))
            unit = min(unit, load_scalar(tables.units + 4 * code, np.int32))
            store(load_scalar(tables.values + 4 * code, np.float32), room + _SCALES + number * LINE + 4 * i)
        store(np.int32(unit), room + _UNITS + 4 * i)


@compiled
def pack_columns(
    how: AmxGroupConfig,
    codes: Codes,
    scales: Codes,
    tables: Tables,
    depth: int,
    first: int,
    last: int,
    target: int,
    facts: int,
    room: int,
    _turned: int,  # calls of both have the same record
) -> None:
    """Pack columns first (of a block) to last of B, whose rows' elements follow one another, as `pack_lines` does."""
    _begin(facts)
    step = how.chunks * CHUNK
    steps = -(-depth // step)
    place = target
    for line in range(first, last, TILE_ROWS):
        count = min(TILE_ROWS, last - line)
        for number in range(steps):
            k = number * step
            _scales_of_step(scales, tables, depth, line, count, k, step // GROUP, room)
            squares = zeros(np.float32, TILE_ROWS)
            for row in range(k, k + step, 2):
                source, stride = codes.address + line + row * codes.k_stride, codes.k_stride
                if count < TILE_ROWS or row + 2 > depth:
                    copy_part(BYTES, source, room + _CODES, count if row < depth else 0)
                    copy_part(BYTES, source + stride, room + _CODES + LINE, count if row + 1 < depth else 0)
                    source, stride = room + _CODES, LINE
                scale = load(room + _SCALES + (row - k) // GROUP * LINE, np.float32, TILE_ROWS)
                x, y = load_twice_values(how, source) * scale, load_twice_values(how, source + stride) * scale
                squares = fma(x, x, fma(y, y, squares))
                store_pairs(x, y, place)
                place += ROW_BYTES
            _note(facts, squares, load(room + _UNITS, np.int32, TILE_ROWS))


CODES, TABLES = kinds.kind_of(Codes(0, 0, 0)), kinds.kind_of(Tables(0, 0, 0))
_GIVEN = CODES, CODES, TABLES, *[kinds.int64] * 6


@lru_cache(16)
def entries(how: AmxGroupConfig) -> tuple[int, int]:
    """Compile `pack_lines` and `pack_columns`, which take the address of a record of their numbers."""
    lines, columns = (entry_of(each, kinds.kind_of(how), *_GIVEN, kinds.int64) for each in (pack_lines, pack_columns))
    return lines, columns
