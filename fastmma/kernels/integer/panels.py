"""Compiled loops over register tiles: operands become panels of words, tiles run over slices of k and over blocks of the result."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.micro_kernel import copy_byte, load_word, multiply, row_biases, store_word, word_of_run, words_of_lines
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import compiled, separate
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.kinds import kind_of
from fastmma.kernels.matrices.memory import LINE

WORDS_SCRATCH = 4 * LINE


class Operand(NamedTuple):
    """One-byte elements in memory: lines (rows of A or columns of B) along k; one of the two strides is a single byte."""

    address: int
    line_stride: int
    k_stride: int
    flip: int  # xored to the bytes (or: sign bit of those that widen to int16)
    step: int = 0  # bytes to the next matrix of a batch


class Result(NamedTuple):
    """int32 in memory, columns contiguous, strides in bytes; a column step of 0 repeats the same few columns."""

    address: int
    row_stride: int
    column_step: int
    step: int = 0  # bytes to the next matrix of a batch


class Plan(NamedTuple):
    """The cuts of k, in words: slices of whole segments; a segment's sums start afresh."""

    operation: int
    saturate: int
    biased: int
    k: int
    words: int
    slice: int
    segment: int
    segments: int  # in all


@separate
def _pack_edge(config: WordsConfig, operand: Operand, line: int, k: int, count: int, scratch: int) -> int:
    """The word of fewer elements than a word holds, or of a line that has no full vector of neighbours."""
    address = operand.address + line * operand.line_stride + k * operand.k_stride
    store_word(np.int32(0), scratch)
    for i in range(4, config.elements, 4):
        store_word(np.int32(0), scratch + i)
    for i in range(count):
        copy_byte(address + i * operand.k_stride, scratch + i)
    word: int = word_of_run(config, scratch, operand.flip)
    return word


@separate
def pack_words(
    config: WordsConfig,
    operand: Operand,
    k: int,
    first_word: int,
    words: int,
    first: int,
    last: int,
    width: int,
    panel_words: int,
    target: int,
    scratch: int,
) -> None:
    """Pack lines `first` to `last` into panels of `width` lines and `panel_words` words; words that lie wholly past k are left alone."""
    full = max(0, min(words, k // config.elements - first_word))
    if operand.k_stride == 1:
        whole = last
        for line in range(first, last):
            source = operand.address + line * operand.line_stride + first_word * config.elements
            panel, column = divmod(line - first, width)
            place = target + 4 * (panel * panel_words * width + column)
            for word in range(full):
                store_word(word_of_run(config, source + word * config.elements, operand.flip), place + 4 * width * word)
    else:
        whole = first + (last - first) // config.lines * config.lines
        for word in range(full):
            source = operand.address + (first_word + word) * config.elements * operand.k_stride
            for line in range(first, whole, config.lines):
                panel, column = divmod(line - first, width)
                place = target + 4 * ((panel * panel_words + word) * width + column)
                if column + config.lines <= width:
                    words_of_lines(config, source + line, operand.k_stride, operand.flip, place)
                else:
                    words_of_lines(config, source + line, operand.k_stride, operand.flip, scratch)
                    for i in range(config.lines):
                        store_word(load_word(scratch + 4 * i), place)
                        place += 4
                        column += 1
                        if column == width:
                            column = 0
                            place += 4 * width * (panel_words - 1)
    rest = min(k - (first_word + full) * config.elements, config.elements) if full < words else 0
    for line in range(first, last):
        panel, column = divmod(line - first, width)
        place = target + 4 * (panel * panel_words * width + column)
        if line >= whole:
            for word in range(full):
                k_first = (first_word + word) * config.elements
                store_word(_pack_edge(config, operand, line, k_first, config.elements, scratch), place + 4 * width * word)
        if rest > 0:
            k_first = (first_word + full) * config.elements
            store_word(_pack_edge(config, operand, line, k_first, rest, scratch), place + 4 * width * full)


@compiled
def pack_rows(config: WordsConfig, plan: Plan, operand: Operand, lines: int, target: int, starts: int, scratch: int) -> None:
    """Pack rows of A into zeroed panels, and the numbers with which their segments start."""
    pack_words(config, operand, plan.k, 0, plan.words, 0, lines, config.rows, plan.words, target, scratch)
    if plan.biased:
        for panel in range(-(-lines // config.rows)):
            for segment in range(plan.segments):
                skipped = segment * plan.segment
                words = min(plan.segment, plan.words - skipped)
                row_biases(
                    config,
                    plan.operation,
                    target + 4 * config.rows * (panel * plan.words + skipped),
                    words,
                    starts + 4 * config.rows * (panel * plan.segments + segment),
                )


@separate
def _copy(source: int, source_stride: int, target: int, target_stride: int, rows: int, columns: int) -> None:
    for i in range(rows):
        for j in range(columns):
            store_word(load_word(source + i * source_stride + 4 * j), target + i * target_stride + 4 * j)


@separate
def _multiply_panel(
    config: WordsConfig,
    plan: Plan,
    a: int,
    starts: int,
    b: Operand,
    c: Result,
    out: Result,
    row_range: tuple[int, int],
    column_range: tuple[int, int],
    scratch: int,
) -> None:
    """``out = c + a b`` for some rows and at most a tile's columns."""
    first_row, last_row = row_range
    first_column, last_column = column_range
    corner = scratch + WORDS_SCRATCH
    panel = corner + 4 * config.rows * config.columns
    width = last_column - first_column
    starts_step = 4 * config.rows if plan.biased else 0
    for skipped in range(0, plan.words, plan.slice):
        words = min(plan.slice, plan.words - skipped)
        segment_words = min(plan.segment, words)
        pack_words(config, b, plan.k, skipped, words, first_column, last_column, config.columns, words, panel, scratch)
        for row in range(first_row, last_row, config.rows):
            height = min(config.rows, last_row - row)
            target = out.address + row * out.row_stride + first_column * out.column_step
            before, before_stride, after, after_stride = target, out.row_stride, target, out.row_stride
            if skipped == 0:
                before, before_stride = c.address + row * c.row_stride + first_column * c.column_step, c.row_stride
            partial = height < config.rows or width < config.columns
            if partial:
                _copy(before, before_stride, corner, 4 * config.columns, height, width)
                before, before_stride, after, after_stride = corner, 4 * config.columns, corner, 4 * config.columns
            a_panel = a + 4 * config.rows * (row // config.rows * plan.words + skipped)
            start = starts + (row // config.rows * plan.segments + skipped // plan.segment) * starts_step
            segments = -(-words // segment_words)
            multiply(
                config,
                plan.operation,
                plan.saturate,
                a_panel,
                a_panel + 4 * config.rows * plan.words,
                panel,
                segments,
                segment_words,
                start,
                starts_step,
                before,
                before_stride,
                after,
                after_stride,
            )
            if partial:
                _copy(corner, 4 * config.columns, target, out.row_stride, height, width)


@compiled
def multiply_block(
    config: WordsConfig,
    plan: Plan,
    a: int,
    starts: int,
    b: Operand,
    c: Result,
    out: Result,
    row_range: tuple[int, int],
    column_range: tuple[int, int],
    scratch: int,
) -> None:
    """``out = c + a b`` for some rows (from a multiple of the tile's rows on) and some columns; `a`, `starts` are packed."""
    first, last = column_range
    for column in range(first, last, config.columns):
        _multiply_panel(config, plan, a, starts, b, c, out, row_range, (column, min(column + config.columns, last)), scratch)


@compiled
def multiply_batch(
    config: WordsConfig,
    plan: Plan,
    a: Operand,
    b: Operand,
    c: Result,
    out: Result,
    m: int,
    n: int,
    first: int,
    last: int,
    a_panels: int,
    scratch: int,
) -> None:
    """Some of the products of a batch; `a_panels` is zeroed room for the packed rows of one A and their starts."""
    starts = a_panels + 4 * config.rows * -(-m // config.rows) * plan.words + LINE
    for i in range(first, last):
        a_i = Operand(a.address + i * a.step, a.line_stride, a.k_stride, a.flip, a.step)
        b_i = Operand(b.address + i * b.step, b.line_stride, b.k_stride, b.flip, b.step)
        c_i = Result(c.address + i * c.step, c.row_stride, c.column_step, c.step)
        out_i = Result(out.address + i * out.step, out.row_stride, out.column_step, out.step)
        pack_rows(config, plan, a_i, m, a_panels, starts, scratch)
        multiply_block(config, plan, a_panels, starts, b_i, c_i, out_i, (0, m), (0, n), scratch)


_KINDS = kind_of(Plan(*[0] * len(Plan._fields))), kind_of(Operand(0, 0, 0, 0)), kind_of(Result(0, 0, 0))


@lru_cache(64)
def packer(config: WordsConfig) -> Callable[..., None]:
    """`pack_rows` for a tile."""
    plan, operand, _ = _KINDS
    return partial(emitted(pack_rows, kind_of(config), plan, operand, *[kinds.int64] * 4), config)


@lru_cache(64)
def multiplier(config: WordsConfig) -> Callable[..., None]:
    """`multiply_block` for a tile."""
    plan, operand, result = _KINDS
    pair = kinds.Group((kinds.int64, kinds.int64))
    given = plan, kinds.int64, kinds.int64, operand, result, result, pair, pair, kinds.int64
    return partial(emitted(multiply_block, kind_of(config), *given), config)
