"""Matrix products of words: how k is cut, where panels lie, which thread computes which block of the result."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.host.threads import parallel_for, worth_waking
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.panels import WORDS_SCRATCH, Operand, Plan, Result, multiplier, multiply_batch, packer
from fastmma.kernels.macro_tiles import MacroTile, OfWorkers, cut, finish_empty
from fastmma.kernels.matrices.memory import LINE, AlignedMemory

Bytes = NDArray[np.uint8]
Words = NDArray[np.int32]

_SLICE_BYTES = 24 << 10  # of a panel of B: it stays in the L1 cache while all rows pass
_LONG_SLICES = {16: 128 << 10}  # by lanes: long vectors have time to come from the L2 cache, and fewer slices pass over the results
_CHUNK_ROWS = 4096  # rows of a task: fewer pack their panel of B more often
_TASKS_PER_THREAD = 4
_TILES_PER_TASK = 1024
_PACKED_WORDS = 1 << 22  # of A, packed in some hundredths of a second
_WAKING_WORDS = 1 << 24  # products of words in the time of waking a thread
_UNDIVIDED = 1 << 24  # products of words that one thread does without a look around
_WHOLE = LINE  # bytes past a panel that may be read: the words of a tile's rows are loaded as a whole vector


class Arithmetic(NamedTuple):
    """The arithmetic of the words of a tile, as numbers."""

    operation: int = 0  # of the tile's words
    flip_a: int = 0  # 128 exchanges signed and unsigned bytes; it marks signed bytes that are widened to int16
    flip_b: int = 0
    biased: int = 0  # 1: what the flip of b takes away is added again, from the row sums of a
    period: int = 0  # elements of k after which the sum is clamped to int32; 0: it wraps


def _plan(config: WordsConfig, arithmetic: Arithmetic, k: int) -> Plan:
    words = -(-k // config.elements)
    slice_words = segment = max(1, _LONG_SLICES.get(config.lanes, _SLICE_BYTES) // (4 * config.columns))
    if arithmetic.period:
        segment = -(-arithmetic.period // config.elements)
        words = -(-words // segment) * segment
        slice_words = max(1, slice_words // segment) * segment
    return Plan(arithmetic.operation, int(arithmetic.period > 0), arithmetic.biased, k, words, slice_words, segment, -(-words // segment))


def _operand(array: Bytes, flip: int) -> tuple[Bytes, Operand]:
    """Matrices (..., lines, k) as the kernels read them, copied if neither stride is one byte."""
    if 1 not in array.strides[-2:]:
        array = np.ascontiguousarray(array)
    line_stride, k_stride = array.strides[-2:]
    return array, Operand(address_of(array), line_stride, k_stride, flip, array.strides[0])


def _accumulator(config: WordsConfig, c: Words | None, out: Words) -> tuple[object, Result]:
    """Return what holds `c` (zeros for None) and how to read it; a copy if its columns are apart or `out` is another part of it."""
    if c is None:
        zeros = AlignedMemory(4 * config.columns, zeroed=True)
        return zeros, Result(zeros.address, 0, 0)
    same = (address_of(c), c.strides) == (address_of(out), out.strides)
    if c.strides[-1] != c.itemsize or (not same and np.may_share_memory(c, out)):
        c = np.array(c, order="C")
    return c, Result(address_of(c), c.strides[-2], c.itemsize, c.strides[0])


class Where(NamedTuple):
    """The addresses of the matrices of a product, or of a batch of them, and what holds the copies among them."""

    a: Operand
    b: Operand
    c: Result
    out: Result
    held: tuple[object, ...]


def locate(config: WordsConfig, arithmetic: Arithmetic, a: Bytes, b: Bytes, c: Words | None, out: Words) -> Where:
    """Find matrices (..., M, K), (..., K, N) and (..., M, N), of which the rows of `out` are contiguous."""
    a, a_operand = _operand(a, arithmetic.flip_a)
    b, b_operand = _operand(b.swapaxes(-1, -2), arithmetic.flip_b)
    memory, c_result = _accumulator(config, c, out)
    out_result = Result(address_of(out), out.strides[-2], out.itemsize, out.strides[0])
    return Where(a_operand, b_operand, c_result, out_result, (a, b, memory))


def _scratch(config: WordsConfig, plan: Plan) -> int:
    """Bytes for single words, a register tile of the result, a slice of a panel of B."""
    return WORDS_SCRATCH + 4 * config.columns * (config.rows + min(plan.slice, plan.words))


def gemm(config: WordsConfig, arithmetic: Arithmetic, a: Bytes, b: Bytes, c: Words | None, out: Words, threads: int) -> None:
    """``out = c + a b`` for matrices with any strides; `c` may be `out`."""
    (m, k), n = a.shape, b.shape[1]
    if finish_empty(k, c, out):
        return
    plan = _plan(config, arithmetic, k)
    threads = worth_waking(threads, m * n * plan.words // _WAKING_WORDS)
    target = out if out.strides[1] == out.itemsize else np.empty((m, n), np.int32)
    where = locate(config, arithmetic, a, b, c, target)
    if threads == 1 and m * n * plan.words <= _UNDIVIDED:  # two calls of compiled code, as a call takes as long as a part of a product
        _multiply((packer(config), multiplier(config)), plan, *where[:4], target.shape, _whole_memory(config, plan, m))
    else:
        _in_macro_tiles(config, plan, where, target.shape, threads)
    if target is not out:
        out[...] = target


def _whole_memory(config: WordsConfig, plan: Plan, rows: int) -> AlignedMemory:
    """Room for all panels of A, zeroed, their starts, and scratch."""
    lines = 4 * config.rows * -(-rows // config.rows)
    return AlignedMemory(lines * plan.words + _WHOLE, lines * plan.segments + _WHOLE, _scratch(config, plan), zeroed=True)


def _multiply(
    kernels: tuple[Any, Any], plan: Plan, a: Operand, b: Operand, c: Result, out: Result, shape: tuple[int, ...], memory: AlignedMemory
) -> None:
    """A product of a shape, in memory of its own, by what packs rows of A and what multiplies."""
    (pack, multiply), (rows, columns), (panels, starts, scratch) = kernels, shape, memory.addresses
    pack(plan, a, rows, panels, starts, scratch)
    multiply(plan, panels, starts, b, c, out, (0, rows), (0, columns), scratch)


class FixedWords:
    """A product of a shape (rows, columns, k), computed again and again: a call takes addresses, or arrays; results are C-contiguous.

    `a` and `b` are strides in bytes, from row to row and from column to column; one of both is a single byte. Threads may share it: each
    call has memory of its own, which the next one takes over.
    """

    def __init__(
        self,
        config: WordsConfig,
        arithmetic: Arithmetic,
        shape: tuple[int, int, int],
        a: tuple[int, int],
        b: tuple[int, int],
        *,
        start: bool,
    ) -> None:
        rows, columns, k = shape
        self._config, self._plan, self._shape = config, _plan(config, arithmetic, k), (rows, columns)
        self._a, self._b = (*a, arithmetic.flip_a), (b[1], b[0], arithmetic.flip_b)  # of operands, all but the address
        self._zeros = None if start else AlignedMemory(4 * config.columns, zeroed=True)
        self._repeated = None if self._zeros is None else Result(self._zeros.address, 0, 0)
        self._kernels = packer(config), multiplier(config)
        self._free: list[AlignedMemory] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the product, from `start` on if it has such; every product is within reach."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _whole_memory(self._config, self._plan, self._shape[0])
        stride = 4 * self._shape[1]
        left, right = Operand(address_at(a), *self._a), Operand(address_at(b), *self._b)
        c = self._repeated or Result(address_at(start), stride, 4)
        _multiply(self._kernels, self._plan, left, right, c, Result(out, stride, 4), self._shape, memory)
        self._free.append(memory)
        return True


def address_at(given: Any) -> int:
    """Return an address, or that of an array."""
    return given if type(given) is int else address_of(given)


def _in_macro_tiles(config: WordsConfig, plan: Plan, where: Where, shape: tuple[int, ...], threads: int) -> None:
    """Multiply in macro tiles for threads."""
    m, n = shape
    row_panels = -(-m // config.rows)
    panel_bytes, starts_bytes = 4 * config.rows * plan.words, 4 * config.rows * plan.segments * plan.biased
    panels = AlignedMemory(row_panels * panel_bytes + _WHOLE, zeroed=True)
    starts = AlignedMemory(row_panels * starts_bytes + _WHOLE, zeroed=True)
    scratch = OfWorkers(lambda: AlignedMemory(_scratch(config, plan)))
    pack_rows, multiply_block = packer(config), multiplier(config)

    def pack(first: int, last: int, worker: int) -> None:
        row = first * config.rows
        moved = where.a._replace(address=where.a.address + row * where.a.line_stride)
        lines = min(last * config.rows, m) - row
        pack_rows(plan, moved, lines, panels.address + first * panel_bytes, starts.address + first * starts_bytes, scratch[worker].address)

    shared = -(-row_panels // (_TASKS_PER_THREAD * threads)) if threads > 1 else row_panels
    parallel_for(pack, row_panels, threads, min(shared, max(1, _PACKED_WORDS // (config.rows * plan.words))))

    def multiply(macro_tile: MacroTile, memory: AlignedMemory) -> None:
        row_range, column_range = macro_tile[:2], macro_tile[2:]
        multiply_block(plan, panels.address, starts.address, where.b, where.c, where.out, row_range, column_range, memory.address)

    macro_tiles = cut(m, n, (config.rows, config.columns), threads, _CHUNK_ROWS, _TASKS_PER_THREAD)
    macro_tiles.run(threads, scratch, multiply)


def tiles(config: WordsConfig, arithmetic: Arithmetic, a: Bytes, b: Bytes, c: Words | None, out: Words, threads: int) -> None:
    """``out = c + a b`` for a batch of matrices, one instruction each; `c` and `out` C-contiguous, `c` may be `out`."""
    count, m, k = a.shape
    n = b.shape[2]
    if finish_empty(k, c, out):
        return
    plan = _plan(config, arithmetic, k)
    threads = worth_waking(threads, out.size * plan.words // _WAKING_WORDS)
    where = locate(config, arithmetic, a, b, c, out)
    panel_bytes = 4 * config.rows * -(-m // config.rows) * (plan.words + plan.segments)
    held = OfWorkers(lambda: AlignedMemory(panel_bytes + LINE + _WHOLE, _scratch(config, plan), zeroed=True))

    def multiply(first: int, last: int, worker: int) -> None:
        multiply_batch(config, plan, where.a, where.b, where.c, where.out, m, n, first, last, *held[worker].addresses)

    parallel_for(multiply, count, threads, min(_TILES_PER_TASK, -(-count // (_TASKS_PER_THREAD * threads))))
