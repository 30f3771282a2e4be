"""Compiled loops that pack bytes into the tiles of AMX."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from fastmma.kernels.integer.amx_kernel import BLOCK
from fastmma.kernels.integer.amx_lines import copy_line, copy_part, copy_turned, copy_woven
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.panels import Operand, Result
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS
from fastmma.kernels.llvm.compilation import compiled, separate
from fastmma.kernels.llvm.direct import emitted, entry_of
from fastmma.kernels.llvm.micro_kernel import run_at

WORDS = WordsConfig("bytes", TILE_ROWS, BLOCK, 2)  # words as tiles have them, and blocks
_WORDS_OF_ROW = ROW_BYTES // 4
_CHUNKS_AT_ONCE = 4  # tiles of k of a row of A that are packed before the next row: neighbours share a cache line
_COLUMNS_AT_ONCE = 128  # of B, likewise: their rows are in one page


@compiled
def pack_rows(a: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack rows first (of a block) to last of A into tiles: [block][tile of k][tile of rows][row][k], zeros past k."""
    whole, rest = k // ROW_BYTES, k % ROW_BYTES
    chunks = -(-k // ROW_BYTES)
    for line in range(first, last, TILE_ROWS):
        block, row = divmod(line - first, BLOCK)
        place = target + block * chunks * 2 * TILE_BYTES + row * ROW_BYTES
        rows = min(TILE_ROWS, last - line)
        if a.k_stride == 1:
            source = a.address + line * a.line_stride
            for start in range(0, whole, _CHUNKS_AT_ONCE):
                for i in range(rows):
                    for chunk in range(start, min(start + _CHUNKS_AT_ONCE, whole)):
                        copy_line(source + i * a.line_stride + chunk * ROW_BYTES, place + chunk * 2 * TILE_BYTES + i * ROW_BYTES, a.flip)
            if rest:
                for i in range(rows):
                    end = place + whole * 2 * TILE_BYTES + i * ROW_BYTES
                    copy_part(source + i * a.line_stride + whole * ROW_BYTES, end, rest, a.flip)
        else:
            for chunk in range(chunks):
                _weave(a, line, rows, chunk * ROW_BYTES, min(ROW_BYTES, k - chunk * ROW_BYTES), scratch, scratch + TILE_BYTES)
                copy_turned(scratch, ROW_BYTES, place + chunk * 2 * TILE_BYTES, 0)


@separate
def _weave(operand: Operand, line: int, lines: int, first: int, count: int, target: int, scratch: int) -> None:
    """Pack lines, at most a tile's, that are neighbours in memory, for as many words of k as a row of a tile has; zeros past `count`."""
    source = operand.address + line + first * operand.k_stride
    whole = count // 4 if lines == TILE_ROWS else 0
    for word in range(whole):
        copy_woven(source + 4 * word * operand.k_stride, operand.k_stride, target + word * ROW_BYTES, operand.flip)
    for word in range(whole, _WORDS_OF_ROW):
        for i in range(4):
            k = 4 * word + i
            copy_part(source + k * operand.k_stride, scratch + i * ROW_BYTES, lines if k < count else 0, operand.flip)
        copy_woven(scratch, ROW_BYTES, target + word * ROW_BYTES, 0)


@compiled
def pack_columns(b: Operand, k: int, first: int, last: int, target: int, scratch: int) -> None:
    """Pack columns first (of a tile) to last of B: [tile of columns][word of k][column][k], zeros past k."""
    chunks = -(-k // ROW_BYTES)
    for start in range(first, last, _COLUMNS_AT_ONCE):
        for chunk in range(chunks):
            count = min(ROW_BYTES, k - chunk * ROW_BYTES)
            for line in range(start, min(start + _COLUMNS_AT_ONCE, last), TILE_ROWS):
                place, lines = target + ((line - first) // TILE_ROWS * chunks + chunk) * TILE_BYTES, min(TILE_ROWS, last - line)
                if b.k_stride != 1:
                    _weave(b, line, lines, chunk * ROW_BYTES, count, place, scratch)
                    continue
                source = b.address + line * b.line_stride + chunk * ROW_BYTES
                if lines == TILE_ROWS and count == ROW_BYTES:
                    copy_turned(source, b.line_stride, place, b.flip)
                else:
                    for i in range(TILE_ROWS):
                        copy_part(source + i * b.line_stride, scratch + i * ROW_BYTES, count if i < lines else 0, b.flip)
                    copy_turned(scratch, ROW_BYTES, place, 0)


@compiled
def multiply_whole(
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
    pack_rows(a, k, 0, rows, panels, scratch)
    pack_columns(b, k, 0, columns, b_panels, scratch)
    strides = chunks * 2 * TILE_BYTES, chunks * TILE_BYTES
    before, before_strides = c.address, (c.row_stride, BLOCK * c.column_step)
    for start in range(0, chunks, slice_chunks):
        places = panels + start * 2 * TILE_BYTES, b_panels + start * TILE_BYTES, before, out.address, scratch
        steps = strides + before_strides + (out.row_stride,)
        run_at(kernel, places + steps + (min(slice_chunks, chunks - start), rows, columns))
        before, before_strides = out.address, (out.row_stride, BLOCK * out.column_step)


_OPERAND, _RESULT = kinds.kind_of(Operand(0, 0, 0, 0)), kinds.kind_of(Result(0, 0, 0))
_GIVEN = _OPERAND, *[kinds.int64] * 5


@cache
def packers() -> tuple[Callable[..., None], Callable[..., None]]:
    """`pack_rows` and `pack_columns`."""
    rows, columns = (emitted(each, *_GIVEN) for each in (pack_rows, pack_columns))
    return rows, columns


@cache
def entries() -> tuple[int, int]:
    """Return the addresses of the code of both, which takes the address of a record of their numbers."""
    rows, columns = (entry_of(each, *_GIVEN) for each in (pack_rows, pack_columns))
    return rows, columns


@cache
def whole() -> Callable[..., None]:
    """`multiply_whole`."""
    shape = kinds.Group((kinds.int64,) * 3)
    given = kinds.int64, _OPERAND, _OPERAND, _RESULT, _RESULT, shape, *[kinds.int64] * 3
    return emitted(multiply_whole, *given)
