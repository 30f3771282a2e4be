"""Matrix products of bytes on AMX: both operands are packed into tiles once, threads compute macro tiles, and sums wrap."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.integer.amx_kernel import BLOCK, KERNEL, SCRATCH, AmxConfig
from fastmma.kernels.integer.amx_panels import WORDS, packers
from fastmma.kernels.integer.panels import WORDS_SCRATCH, Operand, Result
from fastmma.kernels.integer.words import Arithmetic, Where, address_at, locate
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES
from fastmma.kernels.macro_tiles import FEWEST_BLOCKS, MacroTile, MacroTiles, OfWorkers, cut, finish_empty
from fastmma.kernels.matrices.memory import AlignedMemory

_Bytes = NDArray[np.int8] | NDArray[np.uint8]

_PANEL_BYTES = 1 << 20  # of B in a macro tile: a half of the L2 cache, which two threads may share
_SLICE = 4096  # of k
_CHUNK_ROWS = 4096
_TASKS_PER_THREAD = 2
_PACKED_AT_ONCE = 1 << 20  # bytes of an operand in a task, at least a block
_WORK_OF_A_THREAD = 1 << 29  # multiply-adds, half a millisecond
_SCRATCH = max(SCRATCH, WORDS_SCRATCH)
_NUMBERS = struct.Struct("=13q").pack
_kept: deque[tuple[int, AlignedMemory]] = deque(maxlen=1)  # packed operands' memory: to map it anew takes longer than to pack


def gemm(a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None, out: NDArray[np.int32], threads: int, *, plain: bool = False) -> None:
    """``out = c + a b``, wrapping, for a (M, K), b (K, N) and int32 c, out (M, N) with any strides; `c` may be `out`.

    `plain` code in place of AMX's instructions runs on any CPU.
    """
    (m, k), n = a.shape, b.shape[1]
    if finish_empty(k, c, out):
        return
    target = out if out.strides[1] == out.itemsize else np.empty((m, n), np.int32)
    where = locate(WORDS, Arithmetic(), a.view(np.uint8), b.view(np.uint8), c, target)
    product = _Product(AmxConfig(a.dtype.kind == "i", b.dtype.kind == "i", plain), (m, n, k))
    threads = min(threads, max(1, m * n * k // _WORK_OF_A_THREAD))
    scratch = OfWorkers(lambda: AlignedMemory(_SCRATCH))
    kept, memory = _memory(product.size)

    def pack(first: int, last: int, worker: int) -> None:
        product.pack(where, memory.address, (first, last), scratch[worker].address)

    def compute(tile: MacroTile, own: AlignedMemory) -> None:
        product.compute(where, memory.address, tile, own.address)

    parallel_for(pack, sum(product.blocks), threads, max(1, _PACKED_AT_ONCE // product.block_bytes))
    _cut(m, n, min(k, _SLICE), threads).run(threads, scratch, compute)
    _kept.append((kept, memory))
    if target is not out:
        out[...] = target


def _memory(size: int) -> tuple[int, AlignedMemory]:
    """Memory of at least so many bytes, and how many."""
    try:
        found = _kept.pop()
    except IndexError:  # another thread has it
        return size, AlignedMemory(size)
    return found if found[0] >= size else (size, AlignedMemory(size))


class FixedBytes:
    """A product of a shape (rows, columns, k), computed again and again, as `fastmma.kernels.integer.words.FixedWords` is."""

    def __init__(self, config: AmxConfig, shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], *, start: bool) -> None:
        rows, columns, _ = shape
        self._product, self._a, self._b = _Product(config, shape), (*a, 0), (b[1], b[0], 0)  # of operands, all but the address
        self._whole, self._stride = MacroTile(0, rows, 0, columns), 4 * columns
        self._zeros = None if start else AlignedMemory(4 * BLOCK, zeroed=True)
        self._repeated = None if self._zeros is None else Result(self._zeros.address, 0, 0)
        self._free: list[AlignedMemory] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the product, from `start` on if it has such; every product is within reach."""
        product = self._product
        try:
            memory = self._free.pop()
        except IndexError:
            memory = AlignedMemory(product.size, _SCRATCH)
        panels, scratch = memory.addresses
        c = self._repeated or Result(address_at(start), self._stride, 4)
        left, right = Operand(address_at(a), *self._a), Operand(address_at(b), *self._b)
        where = Where(left, right, c, Result(out, self._stride, 4), ())
        product.pack(where, panels, (0, sum(product.blocks)), scratch)
        product.compute(where, panels, self._whole, scratch)
        self._free.append(memory)
        return True


class _Product:
    """A product of a shape (rows, columns, k): where its packed operands lie, A's blocks before those of B, and what multiplies them."""

    def __init__(self, config: AmxConfig, shape: tuple[int, int, int]) -> None:
        self._shape, self._multiply, self._packers = shape, KERNEL.function(config), packers()
        self._chunks = -(-shape[2] // ROW_BYTES)
        self.blocks = -(-shape[0] // BLOCK), -(-shape[1] // BLOCK)
        self.block_bytes = self._chunks * 2 * TILE_BYTES  # of one operand
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
        (row, last_row, column, last_column), (_, _, c, out, _) = tile, where
        after = out.address + row * out.row_stride + column * out.column_step
        before, before_stride, before_step = c.address + row * c.row_stride + column * c.column_step, c.row_stride, BLOCK * c.column_step
        a, b = (panels + block * self.block_bytes for block in (row // BLOCK, self.blocks[0] + column // BLOCK))
        for skipped in range(0, self._chunks, _SLICE // ROW_BYTES):
            places = a + skipped * 2 * TILE_BYTES, b + skipped * TILE_BYTES, before, after, scratch
            strides = self.block_bytes, self.block_bytes // 2, before_stride, before_step, out.row_stride
            sizes = min(_SLICE // ROW_BYTES, self._chunks - skipped), last_row - row, last_column - column
            self._multiply(_NUMBERS(*places, *strides, *sizes))  # type: ignore[arg-type]  # ctypes takes the address of bytes
            before, before_stride, before_step = after, out.row_stride, BLOCK * out.column_step


def _cut(rows: int, columns: int, depth: int, threads: int) -> MacroTiles:
    """MacroTiles whose part of B stays in the L2 cache, narrower where threads would have too few of them."""
    width = max(1, _PANEL_BYTES // (depth * BLOCK * min(threads, 2)))
    if threads > 1:
        chunks = -(-rows // (BLOCK * FEWEST_BLOCKS))
        width = min(width, max(2, -(-columns // BLOCK) * chunks // (_TASKS_PER_THREAD * threads)))
    return cut(rows, columns, (BLOCK, width * BLOCK), threads, _CHUNK_ROWS, _TASKS_PER_THREAD)
