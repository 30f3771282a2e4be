"""Matrix products of bytes on AMX: both operands are packed into tiles once, threads compute macro tiles, and sums wrap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.integer.amx_kernel import BLOCK, KERNEL, SCRATCH, AmxConfig
from fastmma.kernels.integer.amx_panels import WORDS, packers
from fastmma.kernels.integer.panels import WORDS_SCRATCH, Operand
from fastmma.kernels.integer.words import Arithmetic, Where, locate
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES
from fastmma.kernels.macro_tiles import FEWEST_BLOCKS, MacroTile, MacroTiles, OfWorkers, cut, finish_empty
from fastmma.kernels.matrices.addresses import address_of
from fastmma.kernels.matrices.memory import AlignedMemory

_Bytes = NDArray[np.int8] | NDArray[np.uint8]

_PANEL_BYTES = 1 << 20  # of B in a macro tile: a half of the L2 cache, which two threads may share
_SLICE = 4096  # of k
_CHUNK_ROWS = 4096
_TASKS_PER_THREAD = 2
_PACKED_AT_ONCE = 1 << 20  # bytes of an operand in a task, at least a block
_WORK_OF_A_THREAD = 1 << 29  # multiply-adds, half a millisecond
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
    config = AmxConfig(a.dtype.kind == "i", b.dtype.kind == "i", plain)
    product = _Product(config, where, (m, n, k))
    product.run(min(threads, max(1, m * n * k // _WORK_OF_A_THREAD)))
    if target is not out:
        out[...] = target


def _memory(size: int) -> tuple[int, AlignedMemory]:
    """Memory of at least so many bytes, and how many."""
    try:
        found = _kept.pop()
    except IndexError:  # another thread has it
        return size, AlignedMemory(size)
    return found if found[0] >= size else (size, AlignedMemory(size))


class _Product:
    """The packed operands of a product."""

    def __init__(self, config: AmxConfig, where: Where, shape: tuple[int, int, int]) -> None:
        self._where, self._shape, self._multiply = where, shape, KERNEL.function(config)
        self._blocks = tuple(-(-lines // BLOCK) for lines in shape[:2])
        self._chunks = -(-shape[2] // ROW_BYTES)
        self._block_bytes = self._chunks * 2 * TILE_BYTES  # of one operand
        self._scratch = OfWorkers(lambda: AlignedMemory(max(SCRATCH, WORDS_SCRATCH)))

    def run(self, threads: int) -> None:
        """Pack and multiply."""
        m, n, k = self._shape
        size = sum(self._blocks) * self._block_bytes
        kept, memory = _memory(size)
        self._a, self._b = memory.address, memory.address + self._blocks[0] * self._block_bytes
        parallel_for(self._pack, sum(self._blocks), threads, max(1, _PACKED_AT_ONCE // self._block_bytes))
        _cut(m, n, min(k, _SLICE), threads).run(threads, self._scratch, self._compute)
        _kept.append((kept, memory))

    def _pack(self, first: int, last: int, worker: int) -> None:
        """Pack some of the blocks of rows of A and, after them, of columns of B."""
        (m, n, _), rows = self._shape, self._blocks[0]
        pack_rows, pack_columns = packers()
        if first < rows:
            self._pack_by(pack_rows, self._where.a, first, min(last, rows), m, self._a, worker)
        if last > rows:
            self._pack_by(pack_columns, self._where.b, max(first, rows) - rows, last - rows, n, self._b, worker)

    def _pack_by(self, pack: Callable[..., None], operand: Operand, first: int, last: int, lines: int, target: int, worker: int) -> None:
        place = target + first * self._block_bytes
        pack(operand, self._shape[2], first * BLOCK, min(last * BLOCK, lines), place, self._scratch[worker].address)

    def _compute(self, tile: MacroTile, memory: AlignedMemory) -> None:
        """Compute a macro tile, slice by slice of k."""
        (row, last_row, column, last_column), (_, _, c, out, _) = tile, self._where
        after = out.address + row * out.row_stride + column * out.column_step
        before, before_stride, before_step = c.address + row * c.row_stride + column * c.column_step, c.row_stride, BLOCK * c.column_step
        a, b = self._a + row // BLOCK * self._block_bytes, self._b + column // BLOCK * self._block_bytes
        for skipped in range(0, self._chunks, _SLICE // ROW_BYTES):
            places = a + skipped * 2 * TILE_BYTES, b + skipped * TILE_BYTES, before, after, memory.address
            strides = self._block_bytes, self._block_bytes // 2, before_stride, before_step, out.row_stride
            sizes = min(_SLICE // ROW_BYTES, self._chunks - skipped), last_row - row, last_column - column
            numbers = np.array([*places, *strides, *sizes], np.int64)
            self._multiply(address_of(numbers))
            before, before_stride, before_step = after, out.row_stride, BLOCK * out.column_step


def _cut(rows: int, columns: int, depth: int, threads: int) -> MacroTiles:
    """MacroTiles whose part of B stays in the L2 cache, narrower where threads would have too few of them."""
    width = max(1, _PANEL_BYTES // (depth * BLOCK * min(threads, 2)))
    if threads > 1:
        chunks = -(-rows // (BLOCK * FEWEST_BLOCKS))
        width = min(width, max(2, -(-columns // BLOCK) * chunks // (_TASKS_PER_THREAD * threads)))
    return cut(rows, columns, (BLOCK, width * BLOCK), threads, _CHUNK_ROWS, _TASKS_PER_THREAD)
