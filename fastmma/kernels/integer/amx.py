"""Matrix products of bytes on AMX: both operands are packed into tiles once, threads compute macro tiles, and sums wrap."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.block_tiles import BLOCK, BlockTiles, cut_blocks
from fastmma.kernels.integer.amx_kernel import KERNEL, SCRATCH, AmxConfig
from fastmma.kernels.integer.amx_lines import BYTES, Numbers
from fastmma.kernels.integer.amx_panels import (
    A_IN_RECORD,
    B_IN_RECORD,
    C_IN_RECORD,
    OUT_IN_RECORD,
    WORDS,
    entries,
    entry_of_whole,
    packers,
    record_of_whole,
    whole,
)
from fastmma.kernels.integer.words import Arithmetic, Where, address_at, locate
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES
from fastmma.kernels.llvm.pieces import Phase, run_phases
from fastmma.kernels.macro_tiles import MacroTile, finish_empty
from fastmma.kernels.matrices.memory import AlignedMemory, KeptMemory

_Bytes = NDArray[np.int8] | NDArray[np.uint8]
_Code = tuple[AmxConfig, tuple[Numbers, Numbers]]

_PANEL_BYTES = 1 << 20  # of B in a macro tile: a half of the L2 cache
_CHUNKS = 64  # tiles of k in a slice
_ROWS_BYTES = 1 << 16  # of A that are packed and multiplied before the next ones
_UNDIVIDED = 1 << 32  # multiply-adds without a look around, some milliseconds
_PACKED_AT_ONCE = 1 << 19  # bytes of an operand in a piece, at least a block
_WORK_OF_A_THREAD = 1 << 27  # multiply-adds, an eighth of a millisecond
_ADDRESS, _PANELS, _PACKING_SCRATCH = 1, 9, 10  # numbers of a call that packs, after the function's address ...
_OF_A, _BEFORE, _AFTER, _SCRATCH_OF_SUMS = 1, 3, 4, 5  # ... and of one that multiplies, where those of A and B come first
_NUMBERS = struct.Struct("=13q").pack
_KEPT = KeptMemory()  # for packed operands


def gemm(
    a: _Bytes,
    b: _Bytes,
    c: NDArray[np.int32] | None,
    out: NDArray[np.int32],
    threads: int,
    *,
    how: tuple[Numbers, Numbers] = (BYTES, BYTES),
    plain: bool = False,
) -> None:
    """``out = c + a b``, wrapping, for a (M, K), b (K, N) and int32 c, out (M, N) with any strides; `c` may be `out`.

    `how` says which numbers the codes of both operands are, where these are not bytes. `plain` code in place of AMX's instructions runs on
    any CPU.
    """
    (m, k), n = a.shape, b.shape[1]
    if finish_empty(k, c, out):
        return
    target = out if out.strides[1] == out.itemsize else np.empty((m, n), np.int32)
    where = locate(WORDS, Arithmetic(), a.view(np.uint8), b.view(np.uint8), c, target)
    a_signed, b_signed = (each.dtype.kind == "i" or numbers.sign > 0 for each, numbers in zip((a, b), how, strict=True))
    config, shape = AmxConfig(a_signed, b_signed, plain), (m, n, k)
    threads = min(threads, max(1, m * n * k // _WORK_OF_A_THREAD))
    if threads == 1 and n * min(k, _CHUNKS * ROW_BYTES) <= _PANEL_BYTES and m * n * k <= _UNDIVIDED:
        rows, size = _rows_at_once(shape)
        with _KEPT.lent(size + SCRATCH) as memory:
            whole(*how)(KERNEL.address(config), *where[:4], shape, _CHUNKS, rows, memory, memory + size)
    else:
        product = _Product(config, shape, how)
        with _KEPT.lent(product.size) as memory:
            if threads == 1:
                product.alone(where, memory)
            else:
                run_phases(_phases((config, how), shape, where, memory, threads), threads, SCRATCH)
    if target is not out:
        out[...] = target


class FixedBytes:
    """A product of a shape (rows, columns, k), computed again and again, as `fastmma.kernels.integer.words.FixedWords` is."""

    def __init__(self, config: AmxConfig, shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], *, start: bool) -> None:
        self._kernel, self._shape, self._strides, self._multiply = KERNEL.address(config), shape, (a, b), entry_of_whole(BYTES, BYTES)
        self._zeros = None if start else AlignedMemory(4 * BLOCK, zeroed=True)
        self._free: list[_OfCall] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the product, from `start` on if it has such; every product is within reach."""
        try:
            call = self._free.pop()
        except IndexError:
            call = self._new()
        numbers = call.numbers
        numbers[A_IN_RECORD], numbers[B_IN_RECORD], numbers[OUT_IN_RECORD] = address_at(a), address_at(b), out
        if self._zeros is None:
            numbers[C_IN_RECORD] = address_at(start)
        self._multiply(call.record)
        self._free.append(call)
        return True

    def _new(self) -> _OfCall:
        """Memory for a call, and a record with all but the addresses of matrices."""
        rows, size = _rows_at_once(self._shape)
        memory, stride = AlignedMemory(size, SCRATCH), 4 * self._shape[1]
        (a_row, a_k), (b_k, b_column) = self._strides
        c = (0, stride, 4, 0) if self._zeros is None else (self._zeros.address, 0, 0, 0)
        operands = (0, a_row, a_k, 0, 0), (0, b_column, b_k, 0, 0), c, (0, stride, 4, 0)
        record = record_of_whole(self._kernel, *operands, self._shape, _CHUNKS, rows, *memory.addresses)
        numbers = (ctypes.c_int64 * (len(record) // 8)).from_buffer_copy(record)
        return _OfCall(memory, numbers, ctypes.addressof(numbers))


class _OfCall(NamedTuple):
    """The memory of a call, and its record, which lies at an address."""

    memory: AlignedMemory
    numbers: Any
    record: int


def _rows_at_once(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return how many rows of A are packed before they are multiplied, and bytes for them and all of B."""
    rows, columns, k = shape
    block_bytes = -(-k // ROW_BYTES) * 2 * TILE_BYTES
    blocks = min(-(-rows // BLOCK), max(1, _ROWS_BYTES // block_bytes))
    return blocks * BLOCK, (blocks + -(-columns // BLOCK)) * block_bytes


class _Product:
    """A product of a shape (rows, columns, k): where its packed operands lie, A's blocks before those of B, and what multiplies them."""

    def __init__(self, config: AmxConfig, shape: tuple[int, int, int], how: tuple[Numbers, Numbers]) -> None:
        self._shape, self._multiply, self._packers = shape, KERNEL.function(config), packers(*how)
        self.chunks = -(-shape[2] // ROW_BYTES)
        self.blocks = -(-shape[0] // BLOCK), -(-shape[1] // BLOCK)
        self.block_bytes = self.chunks * 2 * TILE_BYTES  # of one operand
        self.size = sum(self.blocks) * self.block_bytes

    def pack(self, where: Where, panels: int, blocks: tuple[int, int], scratch: int) -> None:
        """Pack some of the blocks of rows of A and, after them, of columns of B."""
        (first, last), (m, n, k), rows = blocks, self._shape, self.blocks[0]
        pack_rows, pack_columns = self._packers
        if first < rows:
            pack_rows(where.a, k, first * BLOCK, min(last * BLOCK, m), panels + first * self.block_bytes, scratch)
        if last > rows:
            first = max(first, rows)
            lines = (first - rows) * BLOCK, min((last - rows) * BLOCK, n)
            pack_columns(where.b, k, *lines, panels + first * self.block_bytes, scratch)

    def compute(self, where: Where, panels: int, tile: MacroTile, scratch: int) -> None:
        """Compute a macro tile, slice by slice of k."""
        for start in range(0, self.chunks, _CHUNKS):
            self._multiply(_NUMBERS(*self.numbers(where, panels, tile, start, scratch)))  # type: ignore[arg-type]  # ctypes takes bytes

    def numbers(self, where: Where, panels: int, tile: Any, start: int, scratch: int) -> tuple[Any, ...]:
        """Return the record that multiplies a slice of one macro tile, or of arrays of them: later slices add to the results."""
        (row, last_row, column, last_column), (_, _, c, out, _) = tile, where
        after = out.address + row * out.row_stride + column * out.column_step
        before = after, out.row_stride, BLOCK * out.column_step
        if start == 0:
            before = c.address + row * c.row_stride + column * c.column_step, c.row_stride, BLOCK * c.column_step
        a = panels + row // BLOCK * self.block_bytes + start * 2 * TILE_BYTES
        b = panels + (self.blocks[0] + column // BLOCK) * self.block_bytes + start * TILE_BYTES
        steps = self.block_bytes, self.block_bytes // 2, *before[1:], out.row_stride
        return a, b, before[0], after, scratch, *steps, min(_CHUNKS, self.chunks - start), last_row - row, last_column - column

    def alone(self, where: Where, panels: int) -> None:
        """Compute the product on the caller's thread, where signal handlers run between two pieces."""
        blocks, at_once, memory = sum(self.blocks), self.at_once(), AlignedMemory(SCRATCH)
        scratch = memory.address
        for first in range(0, blocks, at_once):
            self.pack(where, panels, (first, min(first + at_once, blocks)), scratch)
        for tile in zip(*(line.tolist() for line in self.tiles(1)), strict=True):
            self.compute(where, panels, MacroTile(*tile), scratch)

    def at_once(self) -> int:
        """Count the blocks of an operand that are packed in a piece."""
        return max(1, _PACKED_AT_ONCE // self.block_bytes)

    def tiles(self, threads: int) -> BlockTiles:
        """Cut the results for so many threads."""
        m, n, k = self._shape
        return cut_blocks(m, n, min(k, _CHUNKS * ROW_BYTES), threads)


def _phases(code: _Code, shape: tuple[int, int, int], where: Where, panels: int, threads: int) -> tuple[Phase, Phase]:
    """Packing and multiplication as pieces for threads; those of the same shapes and strides differ by addresses alone."""
    a, b, c, out, _ = where
    apart = Where(a._replace(address=0), b._replace(address=0), c._replace(address=0), out._replace(address=0), ())
    packing, multiplication, of_a = _records(code, shape, apart, threads)
    packing, multiplication = packing.copy(), multiplication.copy()
    packing[:of_a, 0, _ADDRESS] += a.address
    packing[of_a:, 0, _ADDRESS] += b.address
    packing[:, 0, _PANELS] += panels
    multiplication[:, :, _OF_A:_BEFORE] += panels
    multiplication[:, 0, _BEFORE] += c.address
    multiplication[:, 1:, _BEFORE] += out.address
    multiplication[:, :, _AFTER] += out.address
    return Phase(packing, _PACKING_SCRATCH), Phase(multiplication, _SCRATCH_OF_SUMS)


@lru_cache(64)
def _records(code: _Code, shape: tuple[int, int, int], where: Where, threads: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The calls of both phases for operands, results and panels at address 0, and how many pieces pack A."""
    (config, how), (m, n, k) = code, shape
    product = _Product(config, shape, how)
    at_once = product.at_once()
    firsts = [np.arange(0, blocks, at_once) for blocks in product.blocks]
    packing = np.zeros((sum(map(len, firsts)), 1, 1 + len(where.a) + 5), np.int64)
    panels = 0
    parts = np.split(packing[:, 0], [len(firsts[0])])
    for records, first, size, operand, entry in zip(parts, firsts, (m, n), where[:2], entries(*how), strict=True):
        records[:, 0], records[:, 1:-5], records[:, -5] = entry, operand, k
        records[:, -4], records[:, -3] = first * BLOCK, np.minimum((first + at_once) * BLOCK, size)
        records[:, _PANELS] = panels + first * product.block_bytes
        panels += product.blocks[0] * product.block_bytes
    tiles = product.tiles(threads)
    multiplication = np.zeros((len(tiles.row), -(-product.chunks // _CHUNKS), 14), np.int64)
    multiplication[:, :, 0] = KERNEL.address(config)
    for number in range(multiplication.shape[1]):
        for place, value in enumerate(product.numbers(where, 0, tiles, number * _CHUNKS, 0), start=1):
            multiplication[:, number, place] = value
    return packing, multiplication, len(firsts[0])
