"""Matrix products of packed words: operands become panels of words, register tiles run over slices of k, threads over blocks of the result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fastmma.kernels.word_dot import Tile, copy_byte, load_word, multiply, store_word, sum_rows, word_of_run, words_of_lines
from fastmma.threads import parallel_for

_SLICE_BYTES = 24 << 10  # of a panel of B: it stays in the L1 cache while all rows pass
_CHUNK_ROWS = 1536  # rows of a task, so that its part of the result stays in the L2 cache
_TASKS_PER_THREAD = 4
_TILES_PER_TASK = 1024
_LINE = 64


class _Operand(NamedTuple):
    """One-byte elements in memory: lines (rows of A or columns of B) along k; one of the two strides is a single byte."""

    address: int
    line_stride: int
    k_stride: int
    flip: int


class _Result(NamedTuple):
    """int32 in memory, columns contiguous, strides in bytes; a column step of 0 repeats the same few columns."""

    address: int
    row_stride: int
    column_step: int


class _Plan(NamedTuple):
    """How k is cut, in words: slices of whole segments; a segment's sums start afresh."""

    k: int
    words: int
    slice: int
    segment: int
    segments: int  # in all
    biased: bool  # the segments' sums start at a multiple of the row sums of A


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _pack_edge(tile: Tile, operand: _Operand, line: int, k: int, count: int, scratch: int) -> int:
    """The word of fewer elements than a word holds, or of a line that has no full vector of neighbours."""
    address = operand.address + line * operand.line_stride + k * operand.k_stride
    store_word(np.int32(0), scratch)
    for i in range(4, tile.elements, 4):
        store_word(np.int32(0), scratch + i)
    for i in range(count):
        copy_byte(address + i * operand.k_stride, scratch + i)
    return word_of_run(tile, scratch, operand.flip)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _pack(
    tile: Tile, operand: _Operand, k: int, first_word: int, words: int, first: int, last: int, width: int, panel_words: int, target: int, scratch: int
) -> None:
    """Pack lines `first` to `last` into panels of `width` lines and `panel_words` words; words that lie wholly past k are left alone."""
    full = max(0, min(words, k // tile.elements - first_word))
    if operand.k_stride == 1:
        whole = last
        for line in range(first, last):
            source = operand.address + line * operand.line_stride + first_word * tile.elements
            panel, column = divmod(line - first, width)
            place = target + 4 * (panel * panel_words * width + column)
            for word in range(full):
                store_word(word_of_run(tile, source + word * tile.elements, operand.flip), place + 4 * width * word)
    else:
        whole = first + (last - first) // tile.lanes * tile.lanes
        for word in range(full):
            source = operand.address + (first_word + word) * tile.elements * operand.k_stride
            for line in range(first, whole, tile.lanes):
                panel, column = divmod(line - first, width)
                place = target + 4 * ((panel * panel_words + word) * width + column)
                if column + tile.lanes <= width:
                    words_of_lines(tile, source + line, operand.k_stride, operand.flip, place)
                else:
                    words_of_lines(tile, source + line, operand.k_stride, operand.flip, scratch)
                    for i in range(tile.lanes):
                        store_word(load_word(scratch + 4 * i), place)
                        place += 4
                        column += 1
                        if column == width:
                            column = 0
                            place += 4 * width * (panel_words - 1)
    rest = min(k - (first_word + full) * tile.elements, tile.elements) if full < words else 0
    for line in range(first, last):
        panel, column = divmod(line - first, width)
        place = target + 4 * (panel * panel_words * width + column)
        if line >= whole:
            for word in range(full):
                k_first = (first_word + word) * tile.elements
                store_word(_pack_edge(tile, operand, line, k_first, tile.elements, scratch), place + 4 * width * word)
        if rest > 0:
            k_first = (first_word + full) * tile.elements
            store_word(_pack_edge(tile, operand, line, k_first, rest, scratch), place + 4 * width * full)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _pack_rows(tile: Tile, plan: _Plan, operand: _Operand, first: int, last: int, target: int, starts: int, scratch: int) -> None:
    """Pack rows of A (from a multiple of the tile's rows on) into zeroed panels, and the numbers with which their segments start."""
    _pack(tile, operand, plan.k, 0, plan.words, first, last, tile.rows, plan.words, target, scratch)
    if plan.biased:
        for panel in range(-(-(last - first) // tile.rows)):
            for segment in range(plan.segments):
                skipped = segment * plan.segment
                words = min(plan.segment, plan.words - skipped)
                sum_rows(tile, target + 4 * tile.rows * (panel * plan.words + skipped), words, starts + 4 * tile.rows * (panel * plan.segments + segment))


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _copy(source: int, source_stride: int, target: int, target_stride: int, rows: int, columns: int) -> None:
    for i in range(rows):
        for j in range(columns):
            store_word(load_word(source + i * source_stride + 4 * j), target + i * target_stride + 4 * j)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _block(
    tile: Tile,
    plan: _Plan,
    a: int,
    starts: int,
    b: _Operand,
    c: _Result,
    out: _Result,
    first_row: int,
    last_row: int,
    first_column: int,
    last_column: int,
    scratch: int,
) -> None:
    """``out = c + a b`` for some rows (from a multiple of the tile's rows on) and at most a tile's columns; `a`, `starts` are packed."""
    corner = scratch + 4 * 32
    panel = corner + 4 * tile.rows * tile.columns
    width = last_column - first_column
    starts_step = 4 * tile.rows if plan.biased else 0
    for skipped in range(0, plan.words, plan.slice):
        words = min(plan.slice, plan.words - skipped)
        segment_words = min(plan.segment, words)
        _pack(tile, b, plan.k, skipped, words, first_column, last_column, tile.columns, words, panel, scratch)
        for row in range(first_row, last_row, tile.rows):
            height = min(tile.rows, last_row - row)
            target = out.address + row * out.row_stride + first_column * out.column_step
            before, before_stride, after, after_stride = target, out.row_stride, target, out.row_stride
            if skipped == 0:
                before, before_stride = c.address + row * c.row_stride + first_column * c.column_step, c.row_stride
            partial = height < tile.rows or width < tile.columns
            if partial:
                _copy(before, before_stride, corner, 4 * tile.columns, height, width)
                before, before_stride, after, after_stride = corner, 4 * tile.columns, corner, 4 * tile.columns
            a_panel = a + 4 * tile.rows * (row // tile.rows * plan.words + skipped)
            start = starts + (row // tile.rows * plan.segments + skipped // plan.segment) * starts_step
            segments = -(-words // segment_words)
            multiply(tile, a_panel, panel, segments, segment_words, start, starts_step, before, before_stride, after, after_stride)
            if partial:
                _copy(corner, 4 * tile.columns, target, out.row_stride, height, width)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _batch(
    tile: Tile, plan: _Plan, a: _Operand, b: _Operand, c: _Result, out: _Result, m: int, n: int, first: int, last: int, a_panels: int, scratch: int
) -> None:
    """Some of many small products whose matrices follow one another in memory; `a_panels` begins with the zeros of packed rows and starts."""
    starts = a_panels + 4 * tile.rows * -(-m // tile.rows) * plan.words + 64
    for i in range(first, last):
        a_i = _Operand(a.address + i * m * plan.k, a.line_stride, a.k_stride, a.flip)
        b_i = _Operand(b.address + i * n * plan.k, b.line_stride, b.k_stride, b.flip)
        c_i = _Result(c.address + i * m * n * c.column_step, c.row_stride, c.column_step)
        out_i = _Result(out.address + 4 * i * m * n, out.row_stride, out.column_step)
        _pack_rows(tile, plan, a_i, 0, m, a_panels, starts, scratch)
        for column in range(0, n, tile.columns):
            _block(tile, plan, a_panels, starts, b_i, c_i, out_i, 0, m, column, min(column + tile.columns, n), scratch)


def _aligned(size: int, zeroed: bool = False) -> tuple[NDArray[np.uint8], int]:
    """A buffer that starts on a cache line and may be read one line past its end, and its address."""
    buffer = (np.zeros if zeroed else np.empty)(size + 2 * _LINE, np.uint8)
    offset = -buffer.ctypes.data % _LINE
    return buffer[offset:], buffer.ctypes.data + offset


def _operand(array: NDArray[np.uint8], flip: int) -> tuple[NDArray[np.uint8], _Operand]:
    """Lines x k elements as the kernels read them, copied if neither stride is one byte."""
    if 1 not in array.strides:
        array = np.ascontiguousarray(array)
    return array, _Operand(array.ctypes.data, array.strides[0], array.strides[1], flip)


def _plan(tile: Tile, k: int, period: int, biased: bool) -> _Plan:
    words = -(-k // tile.elements)
    slice_words = max(1, _SLICE_BYTES // (4 * tile.columns))
    segment = slice_words
    if tile.saturate:
        segment = -(-period // tile.elements)
        words = -(-words // segment) * segment
        slice_words = max(1, slice_words // segment) * segment
    return _Plan(k, words, slice_words, segment, -(-words // segment), biased)


def _scratch(tile: Tile, plan: _Plan, threads: int) -> list[tuple[NDArray[np.uint8], int]]:
    """For each thread: 128 bytes for single words, a register tile of the result, a slice of a panel of B."""
    return [_aligned(128 + 4 * tile.columns * (tile.rows + min(plan.slice, plan.words))) for _ in range(threads)]


def gemm(
    tile: Tile,
    a: NDArray[np.uint8],
    b: NDArray[np.uint8],
    c: NDArray[np.int32] | None,
    out: NDArray[np.int32],
    threads: int,
    *,
    period: int = 0,
    flips: tuple[int, int] = (0, 0),
    biased: bool = False,
) -> None:
    """``out = c + a b`` in the tile's arithmetic, for matrices with any strides; `c` may be `out`.

    `flips` are xored to the bytes of a and b; `biased` adds what the flip of b took away, from the row sums of a.
    """
    (m, k), n = a.shape, b.shape[1]
    if m == 0 or n == 0:
        return
    if k == 0:
        out[...] = 0 if c is None else c
        return
    plan = _plan(tile, k, period, biased)
    a, a_operand = _operand(a, flips[0])
    b, b_operand = _operand(b.T, flips[1])
    target = out if out.strides[1] == out.itemsize else np.empty((m, n), np.int32)
    if c is None:
        zeros, address = _aligned(4 * tile.columns, zeroed=True)
        c_result = _Result(address, 0, 0)
    else:
        if c.strides[1] != c.itemsize or (c.ctypes.data, c.strides) != (target.ctypes.data, target.strides) and np.may_share_memory(c, target):
            c = np.array(c, order="C")
        c_result = _Result(c.ctypes.data, c.strides[0], 4)
    out_result = _Result(target.ctypes.data, target.strides[0], 4)

    row_panels, column_panels = -(-m // tile.rows), -(-n // tile.columns)
    panel_bytes = 4 * tile.rows * plan.words
    starts_bytes = 4 * tile.rows * plan.segments if biased else 0
    panels, panels_address = _aligned(row_panels * panel_bytes, zeroed=True)
    starts, starts_address = _aligned(max(row_panels * starts_bytes, 4 * tile.rows), zeroed=True)
    scratch = _scratch(tile, plan, threads)

    def pack(first: int, last: int, worker: int) -> None:
        first_row, last_row = first * tile.rows, min(last * tile.rows, m)
        target = panels_address + first * panel_bytes
        moved = a_operand._replace(address=a_operand.address + first_row * a_operand.line_stride)
        _pack_rows(tile, plan, moved, 0, last_row - first_row, target, starts_address + first * starts_bytes, scratch[worker][1])

    parallel_for(pack, row_panels, threads, max(1, -(-row_panels // (_TASKS_PER_THREAD * threads))))

    chunks = max(-(-m // _CHUNK_ROWS), min(-(-_TASKS_PER_THREAD * threads // column_panels) if threads > 1 else 1, -(-row_panels // 8)))
    height = -(-row_panels // chunks) * tile.rows

    def multiply(task: int, stop: int, worker: int) -> None:
        column, row = task % column_panels * tile.columns, task // column_panels * height
        last_row, last_column = min(row + height, m), min(column + tile.columns, n)
        _block(
            tile, plan, panels_address, starts_address, b_operand, c_result, out_result, row, last_row, column, last_column, scratch[worker][1]
        )

    parallel_for(multiply, column_panels * -(-m // height), threads)
    if target is not out:
        out[...] = target


def tiles(
    tile: Tile,
    a: NDArray[np.uint8],
    b: NDArray[np.uint8],
    c: NDArray[np.int32] | None,
    out: NDArray[np.int32],
    threads: int,
    *,
    flips: tuple[int, int] = (0, 0),
    biased: bool = False,
) -> None:
    """``out = c + a b`` for a batch of matrices that follow each other without gaps, one instruction each; a and b row- or column-major."""
    count, m, k = a.shape
    n = b.shape[2]
    if out.size == 0:
        return
    if k == 0:
        out[...] = 0 if c is None else c
        return
    plan = _plan(tile, k, k, biased)
    zeros, address = _aligned(4 * tile.columns, zeroed=True)
    c_result = _Result(address, 0, 0) if c is None else _Result(c.ctypes.data, 4 * n, 4)
    a_operand = _Operand(a.ctypes.data, a.strides[1], a.strides[2], flips[0])
    b_operand = _Operand(b.ctypes.data, b.strides[2], b.strides[1], flips[1])
    out_result = _Result(out.ctypes.data, 4 * n, 4)
    scratch = _scratch(tile, plan, threads)
    panels = [_aligned(4 * tile.rows * -(-m // tile.rows) * (plan.words + plan.segments) + _LINE, zeroed=True) for _ in range(threads)]

    def multiply(first: int, last: int, worker: int) -> None:
        _batch(tile, plan, a_operand, b_operand, c_result, out_result, m, n, first, last, panels[worker][1], scratch[worker][1])

    parallel_for(multiply, count, threads, max(1, min(_TILES_PER_TASK, -(-count // (_TASKS_PER_THREAD * threads)))))
