"""A batch of products in blocks, compiled: codes arranged as the kernel of `fastmma.kernels.fused.block_kernel` reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from fastmma.kernels.fused.batch_numbers import KERNEL, Batch, Matrices, batch_at, size_at, work_at
from fastmma.kernels.fused.block_kernel import INTEGERS, POINTERS, BlockArguments, Blocks
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, Arrangement, BlockConfig
from fastmma.kernels.fused.step_end import ieee_sum
from fastmma.kernels.fused.tile_kernel import Tiles
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import inner, separate
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.kinds import kind_of
from fastmma.kernels.llvm.micro_kernel import MicroKernel, run_at
from fastmma.kernels.llvm.simd import load, load_scalar, store
from fastmma.kernels.matrices.accumulators import load_rows, store_rows
from fastmma.kernels.matrices.addresses import LINES, Matrix
from fastmma.kernels.matrices.permutation import by_plan
from fastmma.kernels.params import Fused

AHEAD = 6  # products: the memory of one is asked for while the one so far before it is computed


def _emit(config: BlockConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    (Tiles if config.tiles else Blocks)(config, builder, BlockArguments(*arguments)).run()


BLOCKS = MicroKernel(_emit, POINTERS, INTEGERS)


@inner
def _move(size: int, source: int, inside: bool, target: int) -> None:
    """One code of `size` bytes, 0 if it is not inside."""
    if size == 1:
        store(load_scalar(source, np.uint8) if inside else np.uint8(0), target)
    elif size == 2:
        store(load_scalar(source, np.uint16) if inside else np.uint16(0), target)
    else:
        store(load_scalar(source, np.uint32) if inside else np.uint32(0), target)


@inner
def _move_line(size: int, source: int, stride: int, count: int, target: int) -> None:
    """8 codes of `size` bytes, of which `count` are inside and the others 0."""
    if count >= LINES and stride == size:
        store(load(source, np.uint8, 8), target)
        if size > 1:
            store(load(source + 8, np.uint8, 8), target + 8)
        if size > 2:
            store(load(source + 16, np.uint8, 16), target + 16)
    else:
        for place in range(LINES):
            _move(size, source + place * stride, place < count, target + place * size)


@inner
def _arrange_left(how: Any, source: Matrices, rows: int, depth: int, unit: int, target: int) -> None:
    """A as [block of rows][unit][row][k], zeros past its end."""
    size = how.a_itemsize
    for first in range(0, rows, ROWS):
        for start in range(0, depth, unit):
            for row in range(first, first + ROWS):
                for k in range(start, start + unit, LINES):
                    place = source.address + row * source.row_stride + k * source.column_stride
                    _move_line(size, place, source.column_stride, depth - k if row < rows else 0, target)
                    target += LINES * size


@inner
def _arrange_right(how: Any, source: Matrices, columns: int, depth: int, unit: int, target: int) -> None:
    """B as [panel][k][column], zeros past its end."""
    size = how.b_itemsize
    for first in range(0, columns, COLUMNS):
        for k in range(-(-depth // unit) * unit):
            place = source.address + k * source.row_stride + first * source.column_stride
            _move_line(size, place, source.column_stride, columns - first if k < depth else 0, target)
            target += COLUMNS * size


@inner
def _arrange_sums(how: Any, source: Matrices, rows: int, columns: int, target: int) -> None:
    """c as [row][column], zeros past its end up to whole blocks."""
    size = how.sum_bytes
    for row in range(-(-rows // ROWS) * ROWS):
        for first in range(0, columns, COLUMNS):
            place = source.address + row * source.row_stride + first * source.column_stride
            _move_line(size, place, source.column_stride, columns - first if row < rows else 0, target)
            target += COLUMNS * size


@inner
def _hand_out(how: Any, source: int, rows: int, columns: int, target: Matrices) -> None:
    """Results of whole blocks to where the caller wants them."""
    size = how.sum_bytes
    row_size = -(-columns // COLUMNS) * COLUMNS * size
    for row in range(rows):
        for column in range(columns):
            place = target.address + row * target.row_stride + column * target.column_stride
            _move(size, source + row * row_size + column * size, True, place)


@inner
def _matrix(batch: Matrices, index: int) -> Matrices:
    """One of a batch."""
    return Matrices(batch.address + index * batch.stride, 0, batch.row_stride, batch.column_stride)


@separate
def _permute(granule: int, source: int, stride: int, how: Matrices, target: int, count: int) -> None:
    """Matrices between registers and codes."""
    if granule == 1:
        by_plan(np.uint8, source, stride, target, how.column_stride, how.row_stride, count)
    elif granule == 2:
        by_plan(np.uint16, source, stride, target, how.column_stride, how.row_stride, count)
    else:
        by_plan(np.uint32, source, stride, target, how.column_stride, how.row_stride, count)


@inner
def _run_kernel(numbers: int, batch: Batch, places: Any, strides: Any, first: int, count: int, after: int, memory: int) -> None:
    """Compute some products, and ask for the matrices that will be read `after` them."""
    ahead = (
        batch.a.address + after * batch.a.stride,
        batch.b.address + after * batch.b.stride,
        batch.c.address + after * batch.c.stride,
    )
    own = (batch.bad + first, memory)
    shape = (count, -(-batch.rows // ROWS), -(-batch.columns // COLUMNS), -(-batch.depth // batch.unit))
    run_at(load_scalar(numbers + KERNEL, np.int64), places + own + ahead + shape + strides)


@separate
def run_batch(how: Any, numbers: int, a: int, b: int, c: int, out: int, bad: int, first: int, last: int) -> None:
    """Compute products first to last of the batch of matrices in these arrays whose `numbers_of` are at this address."""
    batch = batch_at(numbers, a, b, c, out, bad)
    size, work = size_at(numbers), work_at(numbers)
    row_size = -(-batch.columns // COLUMNS) * COLUMNS * how.sum_bytes
    for start in range(first, last, work.at_once):
        count = min(work.at_once, last - start)
        a, a_stride = batch.a.address + start * batch.a.stride, batch.a.stride
        b, b_stride = batch.b.address + start * batch.b.stride, batch.b.stride
        c, c_stride, c_row = batch.c.address + start * batch.c.stride, batch.c.stride, batch.c.row_stride
        out, out_stride, out_row = batch.out.address + start * batch.out.stride, batch.out.stride, batch.out.row_stride
        if batch.arrange_a:
            a, a_stride = work.a, size.a
            for index in range(count):
                _arrange_left(how, _matrix(batch.a, start + index), batch.rows, batch.depth, batch.unit, a + index * a_stride)
        if batch.arrange_b:
            b, b_stride = work.b, size.b
            for index in range(count):
                _arrange_right(how, _matrix(batch.b, start + index), batch.columns, batch.depth, batch.unit, b + index * b_stride)
        if batch.arrange_c:
            c, c_stride, c_row = work.c, size.out, row_size
            for index in range(count):
                _arrange_sums(how, _matrix(batch.c, start + index), batch.rows, batch.columns, c + index * c_stride)
        if batch.arrange_out:
            out, out_stride, out_row = work.out, size.out, row_size
        after = (start + count) if batch.arrange_out else (start + AHEAD)
        strides = (a_stride, b_stride, c_stride, out_stride, c_row, out_row)
        _run_kernel(numbers, batch, (a, b, c, out), strides, start, count, after, work.memory)
        if batch.arrange_out:
            for index in range(count):
                _hand_out(how, out + index * out_stride, batch.rows, batch.columns, _matrix(batch.out, start + index))


@separate
def run_registers(numbers: int, a: int, b: int, c: int, out: int, bad: int, first: int, last: int) -> None:
    """Compute products first to last of the batch of registers in these arrays whose `numbers_of` are at this address."""
    batch = batch_at(numbers, a, b, c, out, bad)
    size, work = size_at(numbers), work_at(numbers)
    row_size = size.out // batch.rows
    for start in range(first, last, work.at_once):
        count = min(work.at_once, last - start)
        _permute(batch.granule_a, batch.a.address + start * batch.a.stride, batch.a.stride, batch.a, work.a, count)
        _permute(batch.granule_b, batch.b.address + start * batch.b.stride, batch.b.stride, batch.b, work.b, count)
        _permute(batch.granule_c, batch.c.address + start * batch.c.stride, batch.c.stride, batch.c, work.c, count)
        places, strides = (work.a, work.b, work.c, work.out), (size.a, size.b, size.out, size.out, row_size, row_size)
        _run_kernel(numbers, batch, places, strides, start, count, start + count, work.memory)
        _permute(batch.granule_out, work.out, size.out, batch.out, batch.out.address + start * batch.out.stride, count)


_KINDS = kinds.int64, *[kinds.any_array] * 5, kinds.int64, kinds.int64


@lru_cache(64)
def batch_runner(how: Arrangement) -> Callable[..., None]:
    """`run_batch` for one arrangement."""
    return partial(emitted(run_batch, kind_of(how), *_KINDS), how)


@cache
def registers_runner() -> Callable[..., None]:
    """`run_registers`, emitted."""
    return emitted(run_registers, *_KINDS)


@separate
def add_sums(p: Fused, c: Matrices, out: Matrices, itemsize: int, rows: int, columns: int, first: int, last: int) -> None:
    """Add `c` to `out` by IEEE additions, to nearest even, in products first to last."""
    for index in range(first, last):
        left, right = _matrix(c, index), _matrix(out, index)
        for column in range(0, columns, LINES):
            before = Matrix(left.address + column * left.column_stride, left.row_stride, left.column_stride, itemsize)
            target = Matrix(right.address + column * right.column_stride, right.row_stride, right.column_stride, itemsize)
            for row in range(0, rows, 2):
                sums = load_rows(target, row, rows, columns - column)
                store_rows(ieee_sum(p, sums, load_rows(before, row, rows, columns - column)), target, row, rows, columns - column)


@lru_cache(64)
def sums_adder(p: Any) -> Callable[..., None]:
    """`add_sums` for parameters of a kind."""
    place = kind_of(Matrices(0, 0, 0, 0))
    return emitted(add_sums, p, place, place, *[kinds.int64] * 5)
