"""The dot-product-add, fused or grouped, with or without block scaling, exactly, on any CPU: align, truncate, sum, round once.

float32 panels serve finite elements of moderate exponents, their terms being summed as int32. All other blocks are done afterwards from
float64 panels, where infinities and NaNs follow from IEEE arithmetic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.decode.tables import scale_table_of
from fastmma.kernels.fused.portable_block import LOWEST, LOWEST_FLOOR, WORK, Block, PortableArguments, multiply_block
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import itemsize_of, load_scalar, store
from fastmma.kernels.macro_tiles import MacroTile, MacroTiles, OfWorkers, finish_empty
from fastmma.kernels.matrices.addresses import (
    LINES,
    NOWHERE,
    Lines,
    LineScales,
    batch_matrix,
    matrix,
    pack_lines,
    pack_scales,
    rows_from,
)
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import Element, Fused

HIGHEST = 120  # exponent of elements and of products that float32 panels can hold
TILES_AT_ONCE = 512
STEPS = 1 << 24  # of a macro tile, which takes some hundredths of a second


class Scaling(NamedTuple):
    """Block scaling: codes of scales of A's rows and B's columns, for every `block` k, and how many products make a term.

    A term of one product has the exponent of its factors and of their scales, which are powers of two; one of a group that of scales.
    """

    element: Element
    block: int
    group: int
    a: NDArray[np.uint8]
    b: NDArray[np.uint8]


class Packed(NamedTuple):
    """Addresses of A's panels, of their exponents' ranges (two int32 a block) and of a worker's scratch memory."""

    values: int
    exponents: int
    ranges: int
    scratch: int


@inner
def _lines_from(scales: LineScales | None, offset: int) -> LineScales | None:
    """Scales from some bytes on."""
    if scales is None:
        return None
    return LineScales(scales.address + offset, scales.line_stride, scales.stride, scales.block, scales.exponents, scales.values)


@inner
def _size(scales: LineScales | None, lines: int, depth: int) -> int:
    """Count the scales of lines of so many k."""
    if scales is None:
        return 0
    return lines * (-(-depth // scales.block))


@inner
def _tile(batch: PortableArguments, index: int) -> PortableArguments:
    """Problem `index` of a contiguous batch."""
    return PortableArguments(
        batch.p,
        batch.group,
        batch.order,
        batch_matrix(batch.a, index, batch.rows * batch.depth),
        batch_matrix(batch.b, index, batch.depth * batch.columns),
        batch_matrix(batch.c, index, batch.rows * batch.columns),
        batch_matrix(batch.out, index, batch.rows * batch.columns),
        _lines_from(batch.scale_a, index * _size(batch.scale_a, batch.rows, batch.depth)),
        _lines_from(batch.scale_b, index * _size(batch.scale_b, batch.columns, batch.depth)),
        batch.rows,
        batch.columns,
        batch.depth,
        batch.padded_depth,
    )


@inner
def _pack(
    problem: PortableArguments,
    element: Element,
    whole: Lines,
    scales: LineScales | None,
    first: int,
    lines: int,
    values: int,
    exponents: int,
    dtype: Any,
) -> Any:
    """Pack 8 lines from the `first` on, zeros past the last one; their lowest and their highest exponent."""
    part = Lines(whole.address + first * whole.line_stride, whole.line_stride, whole.stride, whole.itemsize)
    count, depth, padded_depth = lines - first, problem.depth, problem.padded_depth
    if scales is None:
        return pack_lines(element, part, None, count, depth, padded_depth, values, exponents, dtype)
    own = _lines_from(scales, first * scales.line_stride)
    if problem.group == 1:
        return pack_lines(element, part, own, count, depth, padded_depth, values, exponents, dtype)
    found = pack_lines(element, part, None, count, depth, padded_depth, values, exponents, dtype)
    pack_scales(own, count, depth, padded_depth, problem.group, exponents)
    return found


@compiled
def _run(
    batch: PortableArguments,
    packed: Packed,
    dtype: Any,
    first: int,
    last: int,
    first_block: int,
    last_block: int,
    first_panel: int,
    last_panel: int,
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
        rows = Lines(problem.a.address, problem.a.row_stride, problem.a.column_stride, problem.a.itemsize)
        columns = Lines(problem.b.address, problem.b.column_stride, problem.b.row_stride, problem.b.itemsize)
        for block in range(first_block, last_block):
            values, exponents = packed.values + size * panel_size * block, packed.exponents + 2 * panel_size * block
            low, high = _pack(problem, problem.p.a, rows, problem.scale_a, LINES * block, problem.rows, values, exponents, dtype)
            store(np.int32(low), packed.ranges + 8 * block)
            store(np.int32(high), packed.ranges + 8 * block + 4)
        for panel in range(first_panel, last_panel):
            b_low, b_high = _pack(
                problem, problem.p.b, columns, problem.scale_b, LINES * panel, problem.columns, b_values, b_exponents, dtype
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
                multiply_block(problem, place, LINES * block, LINES * panel, dtype)
    return left


def _scales(scaling: Scaling | None) -> tuple[LineScales | None, LineScales | None]:
    """Addresses of the scales of rows and of columns; of a batch, those of the first product."""
    if scaling is None:
        return None, None
    a, b, table = matrix(scaling.a), matrix(scaling.b), scale_table_of(scaling.element)
    block, tables = scaling.block, (table.exponents.ctypes.data, table.values.ctypes.data)
    return LineScales(a.address, a.row_stride, a.column_stride, block, *tables), LineScales(
        b.address, b.column_stride, b.row_stride, block, *tables
    )


def _problem(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    order: NDArray[np.int32] | None,
    scaling: Scaling | None,
) -> tuple[PortableArguments, NDArray[np.int32]]:
    """The problem, and the array that its order is the address of."""
    period = p.terms * max(p.split, 1)
    table = np.arange(period, dtype=np.int32) if order is None else np.ascontiguousarray(order, np.int32)
    p = p._replace(emax_floor=max(p.emax_floor, LOWEST_FLOOR))
    rows, columns = out.shape[-2:]
    depth = a.shape[-1]
    unit = max(period, LINES)
    places = (matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out), *_scales(scaling))
    group = 1 if scaling is None else scaling.group
    return PortableArguments(p, group, table.ctypes.data, *places, rows, columns, depth, -(-depth // unit) * unit), table


def _scratch(problem: PortableArguments, dtype: type[np.float32 | np.float64]) -> AlignedMemory:
    """A worker's memory: a block's work and a panel of B."""
    return AlignedMemory(WORK + (2 + np.dtype(dtype).itemsize) * LINES * problem.padded_depth)


class _PackedRows:
    """Memory for the panels of all of A."""

    def __init__(self, problem: PortableArguments, dtype: type[np.float32 | np.float64]) -> None:
        self.blocks = -(-problem.rows // LINES)
        elements = LINES * problem.padded_depth
        self._sizes = np.dtype(dtype).itemsize * elements, 2 * elements, 8  # of a block
        self._memories = [AlignedMemory(self.blocks * size) for size in self._sizes]

    def packed(self, scratch: int, block: int = 0) -> Packed:
        """The addresses from a block on, with a worker's scratch memory."""
        values, exponents, ranges = (memory.address + block * size for memory, size in zip(self._memories, self._sizes, strict=True))
        return Packed(values, exponents, ranges, scratch)


def _multiply(problem: PortableArguments, dtype: type[np.float32 | np.float64], threads: int) -> int:
    """A pass over a whole matrix; how many blocks it left."""
    rows = _PackedRows(problem, dtype)
    left: list[int] = []

    def pack(start: int, stop: int, _worker: int) -> None:
        _run(problem, rows.packed(0), dtype, 0, 1, start, stop, 0, 0)

    def multiply(macro_tile: MacroTile, scratch: AlignedMemory) -> None:
        block, panel = macro_tile.row // LINES, macro_tile.column // LINES
        c, out = rows_from(problem.c, macro_tile.row), rows_from(problem.out, macro_tile.row)
        part = problem._replace(c=c, out=out, rows=macro_tile.last_row - macro_tile.row)
        left.append(_run(part, rows.packed(scratch.address, block), dtype, 0, 1, 0, 0, panel, panel + 1))

    parallel_for(pack, rows.blocks, threads, min(-(-rows.blocks // (4 * threads)), max(1, STEPS // (LINES * problem.depth))))
    high = max(1, STEPS // (LINES * LINES * problem.depth))
    MacroTiles(problem.rows, problem.columns, LINES * high, LINES).run(threads, OfWorkers(lambda: _scratch(problem, dtype)), multiply)
    return sum(left)


def gemm(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    threads: int,
    order: NDArray[np.int32] | None = None,
    scaling: Scaling | None = None,
) -> None:
    """Write the accumulation of ``a @ b`` onto `c` (None: +0) to `out`.

    `a` (M, K) and `b` (K, N) are codes, `c` and `out` (M, N) f32 or f16 bits, all of any strides; `out` may be `c`.
    `order` permutes each period of k (``terms * max(split, 1)`` long): position q of period j takes k = j * period + order[q].
    """
    if finish_empty(a.shape[1], c, out):
        return
    problem, _table = _problem(p, a, b, c, out, order, scaling)
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
    scaling: Scaling | None = None,
) -> None:
    """Write many products, each onto its c: a (T, m, k), b (T, k, n), c and out (T, m, n), all C-contiguous."""
    if finish_empty(a.shape[2], c, out):
        return
    batch, _table = _problem(p, a, b, c, out, order, scaling)
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
