"""The fused dot-product-add, exactly, on any CPU: align, truncate, sum, round once.

Products are exact in the panels' dtype; scaled by 2**(align_bits - emax), their integer parts are the truncated terms. float32 panels
serve finite elements of moderate exponents, their terms being summed as int32. All other blocks are done afterwards from float64
panels, where infinities and NaNs follow from IEEE arithmetic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.step_end import accumulator_exponent, ieee_sum, narrow_step_end, wide_step_end
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import (
    convert,
    integer_part,
    itemsize_of,
    load,
    load_pair,
    load_scalar,
    load_twice,
    maximum,
    power_of_two,
    splat,
    store,
    zeros,
)
from fastmma.kernels.matrices.accumulators import load_rows, store_rows
from fastmma.kernels.matrices.addresses import (
    LANES,
    LINES,
    NOWHERE,
    Lines,
    Matrix,
    batch_matrix,
    matrix,
    matrix_part,
    pack_lines,
    rows_from,
)
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import Fused
from fastmma.kernels.pieces import OfWorkers, Piece, Pieces, finish_empty

PAIRS = LINES // 2  # of rows in a block
INT32_TERMS = 16  # that many products below 2**27 sum up within int32
LOWEST, HIGHEST = -100, 120  # exponents of elements and of products that float32 panels can hold
LOWEST_FLOOR = -512  # far below every exponent, and 2**(align_bits - emax) is still finite

# a block's work memory, in bytes: PAIRS vectors of each kind
VECTOR = 4 * LANES
ACCUMULATOR = 0
ADDEND = ACCUMULATOR + PAIRS * VECTOR
EMAX = ADDEND + PAIRS * VECTOR
SCALE = EMAX + PAIRS * VECTOR
TOTAL = SCALE + 2 * PAIRS * VECTOR
WORK = TOTAL + 2 * PAIRS * VECTOR

TILES_AT_ONCE = 512
STEPS = 1 << 24  # of a piece, which takes some hundredths of a second


class Block(NamedTuple):
    """Addresses of the packed 8 rows of A and 8 columns of B, and of the work memory."""

    a_values: int
    a_exponents: int
    b_values: int
    b_exponents: int
    work: int


class Problem(NamedTuple):
    """A multiplication: how, of what, and how large; of a batch, its first one."""

    p: Fused
    order: int
    a: Matrix
    b: Matrix
    c: Matrix
    out: Matrix
    rows: int
    columns: int
    depth: int
    padded_depth: int  # the k extent of panels


class Packed(NamedTuple):
    """Addresses of A's panels, of their exponents' ranges (two int32 a block) and of a worker's scratch memory."""

    values: int
    exponents: int
    ranges: int
    scratch: int


@inner
def _align(p: Fused, order: int, start: int, block: Block, dtype: Any) -> None:
    """The emax of every result of a step, and what it scales products by."""
    high0 = splat(np.int16(p.emax_floor), LANES)
    high1 = high0
    high2 = high0
    high3 = high0
    for term in range(p.terms):
        k = start + load_scalar(order + 4 * term, np.int32)
        a = block.a_exponents + 2 * LINES * k
        b = load_twice(block.b_exponents + 2 * LINES * k, np.int16, LANES)
        high0 = maximum(high0, b + load_pair(a, np.int16, LANES))
        high1 = maximum(high1, b + load_pair(a + 4, np.int16, LANES))
        high2 = maximum(high2, b + load_pair(a + 8, np.int16, LANES))
        high3 = maximum(high3, b + load_pair(a + 12, np.int16, LANES))
    store(convert(high0, np.int32), block.work + EMAX)
    store(convert(high1, np.int32), block.work + EMAX + VECTOR)
    store(convert(high2, np.int32), block.work + EMAX + 2 * VECTOR)
    store(convert(high3, np.int32), block.work + EMAX + 3 * VECTOR)
    size = itemsize_of(dtype)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
        emax = maximum(load(block.work + EMAX + place, np.int32, LANES), accumulator_exponent(p, accumulator))
        store(emax, block.work + EMAX + place)
        # below the lowest exponent of float32 panels all products are zero: any finite scale will do
        scale = power_of_two(p.align_bits - maximum(emax, LOWEST if size == 4 else LOWEST_FLOOR), dtype)
        store(scale, block.work + SCALE + place * size // 4)


@inner
def _add_products(order: int, terms: int, start: int, block: Block, first: bool, narrow: bool, dtype: Any) -> None:
    """Add sums of truncated products to the totals, or put the `first` ones there; `narrow` totals are int32, others float64."""
    size = itemsize_of(dtype)
    scale0 = load(block.work + SCALE, dtype, LANES)
    scale1 = load(block.work + SCALE + LANES * size, dtype, LANES)
    scale2 = load(block.work + SCALE + 2 * LANES * size, dtype, LANES)
    scale3 = load(block.work + SCALE + 3 * LANES * size, dtype, LANES)
    sum0 = integer_part(zeros(dtype, LANES))
    sum1 = sum0
    sum2 = sum0
    sum3 = sum0
    for term in range(terms):
        k = start + load_scalar(order + 4 * term, np.int32)
        a = block.a_values + LINES * size * k
        b = load_twice(block.b_values + LINES * size * k, dtype, LANES)
        sum0 += integer_part(load_pair(a, dtype, LANES) * b * scale0)
        sum1 += integer_part(load_pair(a + 2 * size, dtype, LANES) * b * scale1)
        sum2 += integer_part(load_pair(a + 4 * size, dtype, LANES) * b * scale2)
        sum3 += integer_part(load_pair(a + 6 * size, dtype, LANES) * b * scale3)
    total = block.work + TOTAL
    if narrow:
        store(convert(sum0, np.int32), total)
        store(convert(sum1, np.int32), total + VECTOR)
        store(convert(sum2, np.int32), total + 2 * VECTOR)
        store(convert(sum3, np.int32), total + 3 * VECTOR)
        return
    if first:
        for place in range(0, 2 * PAIRS * VECTOR, VECTOR):
            store(zeros(np.int32, LANES), total + place)
    store(load(total, np.float64, LANES) + convert(sum0, np.float64), total)
    store(load(total + 2 * VECTOR, np.float64, LANES) + convert(sum1, np.float64), total + 2 * VECTOR)
    store(load(total + 4 * VECTOR, np.float64, LANES) + convert(sum2, np.float64), total + 4 * VECTOR)
    store(load(total + 6 * VECTOR, np.float64, LANES) + convert(sum3, np.float64), total + 6 * VECTOR)


@inner
def _multiply_block(problem: Problem, block: Block, row: int, column: int, dtype: Any) -> None:
    """All steps of 8 rows by 8 columns."""
    p = problem.p
    period = p.terms * max(p.restart, 1)
    # 2**(align_bits + 2) is above every product
    narrow = itemsize_of(dtype) == 4 and p.align_bits <= 25 and p.terms << (p.align_bits + 2) <= 1 << 31
    at_once = p.terms if narrow else INT32_TERMS
    c = matrix_part(problem.c, 0, column)
    columns = problem.columns - column
    for place in range(0, PAIRS * VECTOR, VECTOR):
        store(load_rows(c, row + 2 * place // VECTOR, problem.rows, columns), block.work + ACCUMULATOR + place)
    for start in range(0, problem.depth, period):
        if p.restart != 0:
            for place in range(0, PAIRS * VECTOR, VECTOR):
                store(load(block.work + ACCUMULATOR + place, np.int32, LANES), block.work + ADDEND + place)
                store(zeros(np.int32, LANES), block.work + ACCUMULATOR + place)
        for position in range(0, period, p.terms):
            order = problem.order + 4 * position
            _align(p, order, start, block, dtype)
            for first in range(0, p.terms, at_once):
                _add_products(order + 4 * first, min(at_once, p.terms - first), start, block, first == 0, narrow, dtype)
            for place in range(0, PAIRS * VECTOR, VECTOR):
                accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
                emax = load(block.work + EMAX + place, np.int32, LANES)
                if narrow:
                    result = narrow_step_end(p, load(block.work + TOTAL + place, np.int32, LANES), accumulator, emax)
                else:
                    result = wide_step_end(p, load(block.work + TOTAL + 2 * place, np.float64, LANES), accumulator, emax)
                store(result, block.work + ACCUMULATOR + place)
        if p.restart != 0:
            for place in range(0, PAIRS * VECTOR, VECTOR):
                accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
                addend = load(block.work + ADDEND + place, np.int32, LANES)
                store(ieee_sum(p, accumulator, addend), block.work + ACCUMULATOR + place)
    out = matrix_part(problem.out, 0, column)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        result = load(block.work + ACCUMULATOR + place, np.int32, LANES)
        store_rows(result, out, row + 2 * place // VECTOR, problem.rows, columns)


@inner
def _tile(batch: Problem, index: int) -> Problem:
    """Problem `index` of a contiguous batch."""
    return Problem(
        batch.p,
        batch.order,
        batch_matrix(batch.a, index, batch.rows * batch.depth),
        batch_matrix(batch.b, index, batch.depth * batch.columns),
        batch_matrix(batch.c, index, batch.rows * batch.columns),
        batch_matrix(batch.out, index, batch.rows * batch.columns),
        batch.rows,
        batch.columns,
        batch.depth,
        batch.padded_depth,
    )


@compiled
def _run(
    batch: Problem, packed: Packed, dtype: Any, first: int, last: int, first_block: int, last_block: int, first_panel: int, last_panel: int
) -> int:
    """For every tile pack some blocks of 8 rows of A, then do some panels of 8 columns; `dtype` is that of the panels.

    Returns how many blocks of the result were left to float64 panels; these do only the blocks that float32 panels leave.
    """
    size = itemsize_of(dtype)
    panel_size = LINES * batch.padded_depth
    b_exponents = packed.scratch + WORK
    b_values = b_exponents + 2 * panel_size
    left = 0
    for index in range(first, last):
        problem = _tile(batch, index)
        for block in range(first_block, last_block):
            a = matrix_part(problem.a, LINES * block, 0)
            low, high = pack_lines(
                problem.p.a,
                Lines(a.address, a.row_stride, a.column_stride, a.itemsize),
                problem.rows - LINES * block,
                problem.depth,
                problem.padded_depth,
                packed.values + size * panel_size * block,
                packed.exponents + 2 * panel_size * block,
                dtype,
            )
            store(np.int32(low), packed.ranges + 8 * block)
            store(np.int32(high), packed.ranges + 8 * block + 4)
        for panel in range(first_panel, last_panel):
            b = matrix_part(problem.b, 0, LINES * panel)
            b_low, b_high = pack_lines(
                problem.p.b,
                Lines(b.address, b.column_stride, b.row_stride, b.itemsize),
                problem.columns - LINES * panel,
                problem.depth,
                problem.padded_depth,
                b_values,
                b_exponents,
                dtype,
            )
            for block in range(-(-problem.rows // LINES)):
                a_low = load_scalar(packed.ranges + 8 * block, np.int32)
                a_high = load_scalar(packed.ranges + 8 * block + 4, np.int32)
                moderate = min(a_low, b_low, a_low + b_low) >= LOWEST and max(a_high, b_high, a_high + b_high) <= HIGHEST
                if moderate != (size == 4):
                    left += 1
                    continue
                a_values = packed.values + size * panel_size * block
                place = Block(a_values, packed.exponents + 2 * panel_size * block, b_values, b_exponents, packed.scratch)
                _multiply_block(problem, place, LINES * block, LINES * panel, dtype)
    return left


def _problem(
    p: Fused, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any], order: NDArray[np.int32] | None
) -> tuple[Problem, NDArray[np.int32]]:
    """The problem, and the array that its order is the address of."""
    period = p.terms * max(p.restart, 1)
    table = np.arange(period, dtype=np.int32) if order is None else np.ascontiguousarray(order, np.int32)
    p = p._replace(emax_floor=max(p.emax_floor, LOWEST_FLOOR))
    rows, columns = out.shape[-2:]
    depth = a.shape[-1]
    unit = max(period, LINES)
    places = (matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out))
    return Problem(p, table.ctypes.data, *places, rows, columns, depth, -(-depth // unit) * unit), table


def _scratch(problem: Problem, dtype: type[np.float32 | np.float64]) -> AlignedMemory:
    """A worker's memory: a block's work and a panel of B."""
    return AlignedMemory(WORK + (2 + np.dtype(dtype).itemsize) * LINES * problem.padded_depth)


class _PackedRows:
    """Memory for the panels of all of A."""

    def __init__(self, problem: Problem, dtype: type[np.float32 | np.float64]) -> None:
        self.blocks = -(-problem.rows // LINES)
        elements = LINES * problem.padded_depth
        self._sizes = np.dtype(dtype).itemsize * elements, 2 * elements, 8  # of a block
        self._memories = [AlignedMemory(self.blocks * size) for size in self._sizes]

    def packed(self, scratch: int, block: int = 0) -> Packed:
        """The addresses from a block on, with a worker's scratch memory."""
        values, exponents, ranges = (memory.address + block * size for memory, size in zip(self._memories, self._sizes, strict=True))
        return Packed(values, exponents, ranges, scratch)


def _multiply(problem: Problem, dtype: type[np.float32 | np.float64], threads: int) -> int:
    """A pass over a whole matrix; how many blocks it left."""
    rows = _PackedRows(problem, dtype)
    left: list[int] = []

    def pack(start: int, stop: int, _worker: int) -> None:
        _run(problem, rows.packed(0), dtype, 0, 1, start, stop, 0, 0)

    def multiply(piece: Piece, scratch: AlignedMemory) -> None:
        block, panel = piece.row // LINES, piece.column // LINES
        c, out = rows_from(problem.c, piece.row), rows_from(problem.out, piece.row)
        part = problem._replace(c=c, out=out, rows=piece.last_row - piece.row)
        left.append(_run(part, rows.packed(scratch.address, block), dtype, 0, 1, 0, 0, panel, panel + 1))

    parallel_for(pack, rows.blocks, threads, min(-(-rows.blocks // (4 * threads)), max(1, STEPS // (LINES * problem.depth))))
    high = max(1, STEPS // (LINES * LINES * problem.depth))
    Pieces(problem.rows, problem.columns, LINES * high, LINES).run(threads, OfWorkers(lambda: _scratch(problem, dtype)), multiply)
    return sum(left)


def gemm(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    threads: int,
    order: NDArray[np.int32] | None = None,
) -> None:
    """Write the accumulation of ``a @ b`` onto `c` (None: +0) to `out`.

    `a` (M, K) and `b` (K, N) are codes, `c` and `out` (M, N) f32 or f16 bits, all of any strides; `out` may be `c`.
    `order` permutes each period of k (``terms * max(restart, 1)`` long): position q of period j takes k = j * period + order[q].
    """
    if finish_empty(a.shape[1], c, out):
        return
    problem, _table = _problem(p, a, b, c, out, order)
    if _multiply(problem, np.float32, threads):
        _multiply(problem, np.float64, threads)


def tiles(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    threads: int,
    order: NDArray[np.int32] | None = None,
) -> None:
    """Write many products, each onto its c: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    if finish_empty(a.shape[2], c, out):
        return
    batch, _table = _problem(p, a, b, c, out, order)
    panels = -(-batch.columns // LINES)

    def memory(dtype: Any) -> OfWorkers[tuple[_PackedRows, AlignedMemory]]:
        return OfWorkers(lambda: (_PackedRows(batch, dtype), _scratch(batch, dtype)))

    passes = {dtype: memory(dtype) for dtype in (np.float32, np.float64)}

    def multiply(start: int, stop: int, worker: int) -> None:
        for dtype, held in passes.items():
            rows, scratch = held[worker]
            if not _run(batch, rows.packed(scratch.address), dtype, start, stop, 0, rows.blocks, 0, panels):
                return

    parallel_for(multiply, len(out), threads, min(TILES_AT_ONCE, max(1, STEPS // (batch.rows * batch.columns * batch.depth))))
