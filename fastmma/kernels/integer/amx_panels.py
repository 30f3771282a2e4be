"""Compiled loops that pack bytes into the tiles of AMX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.integer.amx_lines import BYTES, LINES, Numbers, copy_line, copy_lines, copy_part, copy_turned, copy_woven
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.panels import Operand, Result
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS
from fastmma.kernels.llvm.compilation import compiled, separate
from fastmma.kernels.llvm.direct import emitted, entry_of, record_of
from fastmma.kernels.llvm.micro_kernel import run_at

WORDS = WordsConfig("bytes", TILE_ROWS, BLOCK, 2)  # words as tiles have them, and blocks
_WORDS_OF_ROW = ROW_BYTES // 4
_COLUMNS_AT_ONCE = 256  # of B: their rows are in one page


@compiled
def pack_rows(how: Numbers, a: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack rows first (of a block) to last of A into tiles: [block][tile of k][tile of rows][row][k], zeros past k."""
    whole, chunks = k // ROW_BYTES, -(-k // ROW_BYTES)
    for line in range(first, last, TILE_ROWS):
        block, row = divmod(line - first, BLOCK)
        place = target + block * chunks * 2 * TILE_BYTES + row * ROW_BYTES
        rows = min(TILE_ROWS, last - line)
        if a.k_stride == 1:
            source = a.address + line * a.line_stride
            for start in range(0, whole, LINES):  # before the next row: neighbours share a cache line
                for i in range(rows):
                    old, new = source + i * a.line_stride + start * ROW_BYTES, place + start * 2 * TILE_BYTES + i * ROW_BYTES
                    if start + LINES <= whole:
                        copy_lines(how, old, new, 2 * TILE_BYTES)
                    else:
                        for chunk in range(whole - start):
                            copy_line(how, old + chunk * ROW_BYTES, new + chunk * 2 * TILE_BYTES)
            if k % ROW_BYTES:
                for i in range(rows):
                    end = place + whole * 2 * TILE_BYTES + i * ROW_BYTES
                    copy_part(how, source + i * a.line_stride + whole * ROW_BYTES, end, k % ROW_BYTES)
        else:
            for chunk in range(chunks):
                words = chunk * _WORDS_OF_ROW
                done = min(_WORDS_OF_ROW, k // 4 - words) if rows == TILE_ROWS else 0
                for word in range(done):
                    copy_woven(how, a.address + line + 4 * (words + word) * a.k_stride, a.k_stride, scratch + word * ROW_BYTES)
                room = scratch + done * ROW_BYTES
                _weave(how, a, line, rows, (words + done, words + _WORDS_OF_ROW), k, room, scratch + TILE_BYTES)
                copy_turned(BYTES, scratch, ROW_BYTES, place + chunk * 2 * TILE_BYTES)


@separate
def _weave(how: Numbers, operand: Operand, line: int, lines: int, words: tuple[int, int], count: int, target: int, scratch: int) -> None:
    """Pack some words of k of lines, at most a tile's, that are neighbours in memory; zeros past `count`."""
    source, (first, last) = operand.address + line, words
    for word in range(first, last):
        for i in range(4):
            k = 4 * word + i
            copy_part(how, source + k * operand.k_stride, scratch + i * ROW_BYTES, lines if k < count else 0)
        copy_woven(BYTES, scratch, ROW_BYTES, target + (word - first) * ROW_BYTES)


@compiled
def pack_columns(how: Numbers, b: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack columns first (of a tile) to last of B: [tile of columns][word of k][column][k], zeros past k."""
    chunks, whole = -(-k // ROW_BYTES), first + (last - first) // TILE_ROWS * TILE_ROWS
    if b.k_stride == 1:
        _turn(how, b, k, first, last, target, scratch)
        return
    for start in range(first, whole, _COLUMNS_AT_ONCE):
        for word in range(k // 4):
            source, place = b.address + 4 * word * b.k_stride, target + word * ROW_BYTES
            for line in range(start, min(start + _COLUMNS_AT_ONCE, whole), TILE_ROWS):
                copy_woven(how, source + line, b.k_stride, place + (line - first) // TILE_ROWS * chunks * TILE_BYTES)
    words = chunks * _WORDS_OF_ROW
    for line in range(first, last, TILE_ROWS):
        done = k // 4 if line < whole else 0
        place = target + (line - first) // TILE_ROWS * chunks * TILE_BYTES + done * ROW_BYTES
        _weave(how, b, line, min(TILE_ROWS, last - line), (done, words), k, place, scratch)


@separate
def _turn(how: Numbers, b: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack columns whose elements follow one another in memory."""
    place = target
    for line in range(first, last, TILE_ROWS):
        for start in range(0, k, ROW_BYTES):
            count, lines = min(ROW_BYTES, k - start), min(TILE_ROWS, last - line)
            source = b.address + line * b.line_stride + start
            if lines == TILE_ROWS and count == ROW_BYTES:
                copy_turned(how, source, b.line_stride, place)
            else:
                for i in range(TILE_ROWS):
                    copy_part(how, source + i * b.line_stride, scratch + i * ROW_BYTES, count if i < lines else 0)
                copy_turned(BYTES, scratch, ROW_BYTES, place)
            place += TILE_BYTES


@compiled
def multiply_whole(
    of_a: Numbers,
    of_b: Numbers,
    kernel: int,
    a: Operand,
    b: Operand,
    c: Result,
    out: Result,
    shape: tuple[int, int, int],
    slice_chunks: int,
    packed_rows: int,
    panels: int,
    scratch: int,
) -> None:
    """``out = c + a b`` for a shape (rows, columns, k): pack B, then `packed_rows` of A after others, and multiply slices of k.

    The micro-kernel is at an address.
    """
    rows, columns, k = shape
    chunks = -(-k // ROW_BYTES)
    a_panels = panels + -(-columns // BLOCK) * chunks * 2 * TILE_BYTES
    pack_columns(of_b, b, k, 0, columns, panels, scratch)
    for row in range(0, rows, packed_rows):
        last = min(row + packed_rows, rows)
        pack_rows(of_a, a, k, row, last, a_panels, scratch)
        before, before_strides = c.address + row * c.row_stride, (c.row_stride, BLOCK * c.column_step)
        after = out.address + row * out.row_stride
        for start in range(0, chunks, slice_chunks):
            places = a_panels + start * 2 * TILE_BYTES, panels + start * TILE_BYTES, before, after, scratch
            steps_of_packed = chunks * 2 * TILE_BYTES, chunks * TILE_BYTES
            rest = out.row_stride, min(slice_chunks, chunks - start), last - row, columns
            run_at(kernel, places + steps_of_packed + before_strides + rest)
            before, before_strides = after, (out.row_stride, BLOCK * out.column_step)


_OPERAND, _RESULT = kinds.kind_of(Operand(0, 0, 0, 0)), kinds.kind_of(Result(0, 0, 0))
_GIVEN = _OPERAND, *[kinds.int64] * 5


@lru_cache(16)
def packers(of_a: Numbers, of_b: Numbers) -> tuple[Callable[..., None], Callable[..., None]]:
    """`pack_rows` and `pack_columns`."""
    return _packer(pack_rows, of_a), _packer(pack_columns, of_b)


def _packer(function: Any, how: Numbers) -> Callable[..., None]:
    return partial(emitted(function, kinds.kind_of(how), *_GIVEN), how)


@lru_cache(16)
def entries(of_a: Numbers, of_b: Numbers) -> tuple[int, int]:
    """Return the addresses of the code of both, which takes the address of a record of their numbers."""
    return entry_of(pack_rows, kinds.kind_of(of_a), *_GIVEN), entry_of(pack_columns, kinds.kind_of(of_b), *_GIVEN)


_WHOLE = kinds.int64, _OPERAND, _OPERAND, _RESULT, _RESULT, kinds.Group((kinds.int64,) * 3), *[kinds.int64] * 4
record_of_whole = record_of(*_WHOLE)
A_IN_RECORD, B_IN_RECORD = 1, 1 + len(Operand._fields)  # where that record has the addresses of the operands, ...
C_IN_RECORD = B_IN_RECORD + len(Operand._fields)
OUT_IN_RECORD = C_IN_RECORD + len(Result._fields)  # ... of c, and of the results


@lru_cache(16)
def whole(of_a: Numbers, of_b: Numbers) -> Callable[..., None]:
    """`multiply_whole`."""
    return partial(emitted(multiply_whole, kinds.kind_of(of_a), kinds.kind_of(of_b), *_WHOLE), of_a, of_b)


@lru_cache(16)
def entry_of_whole(of_a: Numbers, of_b: Numbers) -> Callable[[int], None]:
    """`multiply_whole` of the address of a record."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry_of(multiply_whole, kinds.kind_of(of_a), kinds.kind_of(of_b), *_WHOLE))
