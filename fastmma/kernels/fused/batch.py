"""The fast x86 path of the fused dot-product-add for batches of tiles and small products: what it covers, cut into pieces for threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.block_batch import Batch, Matrices, Sizes, Work, add_sums, run_batch, sizes
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockKernel, Coding
from fastmma.kernels.fused.reach import (
    SINGLE_LARGEST_C,
    SINGLE_SMALLEST_C,
    Tiles,
    available_tiles,
    byte_excess,
    exact_in_lanes,
    excess_of,
    first_bad,
    floor_byte,
    single_lanes,
)
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import Coded, Element, Fused

Codes = NDArray[Any]
Slow = Callable[[Codes, Codes, Codes | None, Codes], None]

DEEPEST = 4096  # the k for which sums are known not to overflow
ARRANGED = 1 << 17  # bytes of arranged operands at a time, which stay in the cache
AT_ONCE = 1 << 26  # products of elements between looks at who else wants the CPU
UNITS = {1: 32, 2: 16, 4: 8}  # by a code's bytes: the k that are decoded together


def _coding(element: Element, multiplied: Element, excess: int) -> Coding:
    # the exponent byte 255 stands for all that are too large
    limit = max(255 - excess + element.bias, 0) << element.mantissa_bits
    return Coding(element, element.bias < multiplied.bias, min(first_bad(element, excess, DEEPEST), limit), excess - element.bias)


def _steps(p: Fused, coded: Coded, depth: int) -> tuple[tuple[int, ...], ...] | None:
    """The k of a unit, step by step."""
    period = p.terms * max(p.restart, 1)
    least = UNITS[max(_coding(element, element, 0).itemsize for element in (coded.a, coded.b))]
    unit = period if p.restart else max(period, min(least, -(-depth // 8) * 8))
    if unit not in (8, 16, 32) or unit % period:
        return None
    order = coded.order or tuple(range(unit))
    return tuple(order[start : start + p.terms] for start in range(0, unit, p.terms))


@cache
def _block_kernel(p: Fused, coded: Coded, depth: int, single_block: bool, tiles: Tiles | None) -> BlockKernel | None:
    """The kernel for these parameters, if there is one; `single_block` where products are of a single block and unit."""
    if tiles is None or not exact_in_lanes(p) or depth > DEEPEST:
        return None
    steps = _steps(p, coded, depth)
    if steps is None:
        return None
    single, wide = single_lanes(p), tiles.vector_bytes == 64
    excess = byte_excess(excess_of(p))
    bias = 127 if single else 1023
    largest = 16 if p.half else SINGLE_LARGEST_C if single else 126
    last_bits = p.a.mantissa_bits + p.b.mantissa_bits + 256  # of exponent bytes that add up to a product whose last bit is 2**-149
    smallest = 2 - p.a.bias - p.b.bias + sum(excess)
    return BlockKernel(
        a=_coding(coded.a, p.a, excess[0]),
        b=_coding(coded.b, p.b, excess[1]),
        steps=steps,
        align_bits=p.align_bits,
        keep_bits=p.keep_bits,
        half=bool(p.half),
        floor=floor_byte(p),
        single=single,
        vector_bytes=64 if wide and not single else 32,
        byte_vector=64 if wide else 32,
        tiles=wide and single_block and depth == sum(map(len, steps)),
        strip=8 if wide or single else 4,
        smallest_c=bias + SINGLE_SMALLEST_C if single and not p.half else 0,
        largest_c=bias + largest,
        mask_c=-1 if p.half else -(1 << (23 - p.keep_bits)),
        lowest_byte=excess_of(p) - 149 + p.align_bits,
        lowest_sum=0 if p.half or single or smallest >= last_bits else last_bits,
    )


def _matrices(array: Codes) -> Matrices:
    return Matrices(array.__array_interface__["data"][0], *array.strides)


class _Buffers:
    """A worker's memory."""

    def __init__(self, size: Sizes, batch: Batch, count: int) -> None:
        arranged = (batch.arrange_a * size.a, batch.arrange_b * size.b, batch.arrange_c * size.out, batch.arrange_out * size.out)
        at_once = max(min(count, ARRANGED // max(sum(arranged), 1)), 1)
        self.memory = AlignedMemory(*(at_once * each for each in arranged), size.memory)
        a, b, c, out, memory = self.memory.addresses
        self.work = Work(a, b, c, out, memory, at_once)


def supported(p: Fused, coded: Coded | None, depth: int) -> bool:
    """Whether `multiply` takes these parameters on this CPU."""
    return _block_kernel(p, coded or Coded(p.a, p.b, ()), depth, False, available_tiles()) is not None


def multiply(p: Fused, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int, slow: Slow, coded: Coded | None = None) -> None:
    """Write the fused products of `a` (T, M, K) and `b` (T, K, N) plus `c` (T, M, N) to `out`, for `supported` parameters.

    `c` and `out` are f32 bits (f16 bits for half results), all of any strides; no `c` is +0. Products with an operand out of reach
    (infinities, NaNs, sums that overflow) are done by ``slow(a, b, c, out)`` on copies.
    """
    count, rows, columns = out.shape
    depth = a.shape[2]
    if depth == 0:
        out[...] = 0 if c is None else c
    if out.size == 0 or depth == 0:
        return
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()
    coded = coded or Coded(p.a, p.b, ())
    kernel = _block_kernel(p, coded, depth, rows == ROWS and columns == COLUMNS, available_tiles())
    assert kernel is not None
    start = None if p.restart else c
    places = [_matrices(array) for array in (a, b, out)]
    line = columns * kernel.sum_bytes
    arrange_a = depth != kernel.unit or rows % ROWS or places[0][2:] != (depth * kernel.a_itemsize, kernel.a_itemsize)
    arrange_b = columns != COLUMNS or depth % kernel.unit or places[1][2:] != (columns * kernel.b_itemsize, kernel.b_itemsize)
    ragged = rows % ROWS or columns % COLUMNS
    arrange_out = ragged or places[2].column_stride != kernel.sum_bytes or (kernel.tiles and places[2].row_stride != line)
    if start is None:
        zeros = np.zeros(ROWS * COLUMNS + columns, np.uint32)
        place_c, arrange_c = Matrices(zeros.ctypes.data, 0, 0, 0), False
    else:
        place_c = _matrices(start)
        arrange_c = ragged or place_c.column_stride != kernel.sum_bytes or (kernel.tiles and place_c.row_stride != line)
    bad = np.empty(count, np.uint8)
    arrange = (int(bool(each)) for each in (arrange_a, arrange_b, arrange_c, arrange_out))
    batch = Batch(places[0], places[1], place_c, places[2], bad.ctypes.data, rows, columns, depth, *arrange)
    size = sizes(kernel, rows, columns, depth)
    grain = max(AT_ONCE // (rows * columns * depth), 1)
    if threads > 1:
        grain = min(grain, -(-count // (4 * threads)))
    buffers: dict[int, _Buffers] = {}
    sums = None if c is None or start is not None else _matrices(c)

    def compute(first: int, last: int, worker: int) -> None:
        if worker not in buffers:
            buffers[worker] = _Buffers(size, batch, grain)
        run_batch(kernel, batch, size, buffers[worker].work, first, last)
        if sums is not None:
            add_sums(p, sums, batch.out, kernel.sum_bytes, rows, columns, first, last)

    parallel_for(compute, count, threads, grain)
    redo = np.flatnonzero(bad)
    if redo.size:
        again = np.empty((redo.size, rows, columns), out.dtype)
        slow(a[redo], b[redo], None if c is None else c[redo], again)
        out[redo] = again
