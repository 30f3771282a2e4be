"""Compiled loops that pack bytes into the tiles of AMX."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from fastmma.kernels.integer.amx_kernel import BLOCK
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.micro_kernel import copy_byte, copy_line, copy_turned, load_word, store_word, words_of_lines
from fastmma.kernels.integer.panels import Operand, Result, pack_words
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.direct import emitted, entry_of
from fastmma.kernels.llvm.micro_kernel import run_at

WORDS = WordsConfig("bytes", TILE_ROWS, BLOCK, 2)  # words as tiles have them, and blocks
_WORDS_OF_ROW = ROW_BYTES // 4


@compiled
def pack_rows(config: WordsConfig, a: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack rows first (of a block) to last of A into tiles: [block][tile of k][tile of rows][row][k], zeros past k."""
    chunks = -(-k // ROW_BYTES)
    if k % ROW_BYTES:
        for line in range(first, last):
            block, row = divmod(line - first, BLOCK)
            place = target + (block * chunks + chunks - 1) * 2 * TILE_BYTES + row * ROW_BYTES
            for word in range(_WORDS_OF_ROW):
                store_word(np.int32(0), place + 4 * word)
    whole = first if a.k_stride == 1 else first + (last - first) // TILE_ROWS * TILE_ROWS
    for line in range(first, whole, TILE_ROWS):
        block, row = divmod(line - first, BLOCK)
        place = target + block * chunks * 2 * TILE_BYTES + row * ROW_BYTES
        for word in range(k // 4):
            words_of_lines(config, a.address + line + 4 * word * a.k_stride, a.k_stride, 0, scratch)
            chunk, number = divmod(word, _WORDS_OF_ROW)
            for i in range(TILE_ROWS):
                store_word(load_word(scratch + 4 * i), place + chunk * 2 * TILE_BYTES + i * ROW_BYTES + 4 * number)
    for line in range(first, last):
        block, row = divmod(line - first, BLOCK)
        place = target + block * chunks * 2 * TILE_BYTES + row * ROW_BYTES
        source = a.address + line * a.line_stride
        done = k // 4 * 4 if line < whole else 0
        if a.k_stride == 1:
            done = k // ROW_BYTES * ROW_BYTES
            for chunk in range(k // ROW_BYTES):
                copy_line(source + chunk * ROW_BYTES, place + chunk * 2 * TILE_BYTES)
        for i in range(done, k):
            copy_byte(source + i * a.k_stride, place + i // ROW_BYTES * 2 * TILE_BYTES + i % ROW_BYTES)


@compiled
def pack_columns(config: WordsConfig, b: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack columns first (of a tile) to last of B: [tile of columns][word of k][column][k]; what lies past k or the last one stays."""
    chunks, words, whole, done = -(-k // ROW_BYTES), -(-k // 4), first, 0
    if b.k_stride == 1:
        whole, done = first + (last - first) // TILE_ROWS * TILE_ROWS, k // ROW_BYTES * _WORDS_OF_ROW
    place = target
    for line in range(first, whole, TILE_ROWS):
        source = b.address + line * b.line_stride
        for chunk in range(k // ROW_BYTES):
            copy_turned(source + chunk * ROW_BYTES, b.line_stride, place + chunk * TILE_BYTES)
        place += chunks * TILE_BYTES
    pack_words(config, b, k, done, words - done, first, whole, TILE_ROWS, chunks * _WORDS_OF_ROW, target + done * ROW_BYTES, scratch)
    pack_words(config, b, k, 0, words, whole, last, TILE_ROWS, chunks * _WORDS_OF_ROW, place, scratch)


@compiled
def multiply_whole(
    config: WordsConfig,
    kernel: int,
    a: Operand,
    b: Operand,
    c: Result,
    out: Result,
    shape: tuple[int, int, int],
    slice_chunks: int,
    panels: int,
    scratch: int,
) -> None:
    """``out = c + a b`` for a shape (rows, columns, k): pack A and B, then multiply slices of k by the micro-kernel at an address."""
    rows, columns, k = shape
    chunks = -(-k // ROW_BYTES)
    b_panels = panels + -(-rows // BLOCK) * chunks * 2 * TILE_BYTES
    pack_rows(config, a, k, 0, rows, panels, scratch)
    pack_columns(config, b, k, 0, columns, b_panels, scratch)
    strides = chunks * 2 * TILE_BYTES, chunks * TILE_BYTES
    before, before_strides = c.address, (c.row_stride, BLOCK * c.column_step)
    for start in range(0, chunks, slice_chunks):
        places = panels + start * 2 * TILE_BYTES, b_panels + start * TILE_BYTES, before, out.address, scratch
        steps = strides + before_strides + (out.row_stride,)
        run_at(kernel, places + steps + (min(slice_chunks, chunks - start), rows, columns))
        before, before_strides = out.address, (out.row_stride, BLOCK * out.column_step)


_OPERAND, _RESULT = kinds.kind_of(Operand(0, 0, 0, 0)), kinds.kind_of(Result(0, 0, 0))
_GIVEN = kinds.kind_of(WORDS), _OPERAND, *[kinds.int64] * 5


@cache
def packers() -> tuple[Callable[..., None], Callable[..., None]]:
    """`pack_rows` and `pack_columns`."""
    rows, columns = (partial(emitted(each, *_GIVEN), WORDS) for each in (pack_rows, pack_columns))
    return rows, columns


@cache
def entries() -> tuple[int, int]:
    """Return the addresses of the code of both, which takes the address of a record of their numbers, after `WORDS`."""
    rows, columns = (entry_of(each, *_GIVEN) for each in (pack_rows, pack_columns))
    return rows, columns


@cache
def whole() -> Callable[..., None]:
    """`multiply_whole`."""
    shape = kinds.Group((kinds.int64,) * 3)
    given = kinds.int64, _OPERAND, _OPERAND, _RESULT, _RESULT, shape, *[kinds.int64] * 3
    return partial(emitted(multiply_whole, kinds.kind_of(WORDS), *given), WORDS)
