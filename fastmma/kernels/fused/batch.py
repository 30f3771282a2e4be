"""The fast x86 path of the fused dot-product-add for batches of tiles and small products: what it covers, cut into pieces for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.block_batch import Batch, Matrices, Work, add_sums, numbers_of, run_batch, sizes
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, Arrangement, BlockKernel, Coding
from fastmma.kernels.fused.reach import (
    SINGLE_LARGEST_C,
    SINGLE_SMALLEST_C,
    byte_excess,
    exact_in_lanes,
    excess_of,
    first_bad,
    floor_byte,
    single_lanes,
)
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.matrices.permutation import Permutation, permutation
from fastmma.kernels.params import Coded, Element, Fused
from fastmma.kernels.tiles import FUSED, FusedTile, first_fit

Codes = NDArray[Any]
Slow = Callable[[Codes, Codes, Codes | None, Codes], None]

DEEPEST = 4096  # the k for which sums are known not to overflow
ARRANGED = 1 << 17  # bytes of arranged operands at a time, which stay in the cache
AT_ONCE = 1 << 26  # products of elements between looks at who else wants the CPU
PLACES = 17  # of the numbers: where matrices are
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
    if unit not in (8, 16, 32, 64) or unit % period or (p.restart and depth > unit):
        return None
    order = coded.order or tuple(range(unit))
    return tuple(order[start : start + p.terms] for start in range(0, unit, p.terms))


@cache
def _block_kernel(p: Fused, coded: Coded, depth: int, single_block: bool, tiles: FusedTile | None) -> BlockKernel | None:
    """The kernel for these parameters, if there is one; `single_block` where products are of a single block and unit."""
    if tiles is None or not exact_in_lanes(p) or not 0 < depth <= DEEPEST:
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


class _Worker(threading.local):
    """A thread's memory and the numbers that its kernel reads, kept for the next batch of the same kind."""

    kind: tuple[Any, ...] = ()

    def prepare(self, kernel: BlockKernel, batch: Batch, count: int) -> int:
        """The address of the numbers for a batch."""
        kind = (kernel, count, *batch[5:])
        if kind != self.kind:
            size = sizes(kernel, batch.rows, batch.columns, batch.depth)
            arranged = batch.arrange_a * size.a, batch.arrange_b * size.b, batch.arrange_c * size.out, batch.arrange_out * size.out
            at_once = max(min(count, ARRANGED // max(sum(arranged), 1)), 1)
            self.memory = AlignedMemory(*(at_once * each for each in arranged), size.memory)
            a, b, c, out, own = self.memory.addresses
            self.numbers = numbers_of(batch, size, Work(a, b, c, out, own, at_once), kernel)
            self.address: int = self.numbers.__array_interface__["data"][0]
            self.kind = kind
        else:
            self.numbers[:PLACES] = (*batch.a, *batch.b, *batch.c, *batch.out, batch.bad)
        return self.address


_worker = _Worker()


@cache
def _zeros(count: int) -> Codes:
    """Sums to start from where there is no c."""
    zeros = np.zeros(count, np.uint32)
    zeros.flags.writeable = False
    return zeros


class Blocks(NamedTuple):
    """A `multiply` that this CPU has a kernel for."""

    p: Fused
    kernel: BlockKernel
    how: Arrangement

    def multiply(self, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int, slow: Slow) -> None:
        """Write the fused products of `a` (T, M, K) and `b` (T, K, N) plus `c` (T, M, N) to `out`.

        `c` and `out` are f32 bits (f16 bits for half results), all of any strides; no `c` is +0. Products with an operand out of reach
        (infinities, NaNs, sums that overflow) are done by ``slow(a, b, c, out)`` on copies.
        """
        if out.size == 0:
            return
        if c is not None and np.may_share_memory(c, out):
            c = c.copy()
        bad = self.run(a, b, c, out, threads)
        if bad[0] if len(bad) == 1 else bad.any():
            redo = np.flatnonzero(bad)
            again = np.empty((redo.size, *out.shape[1:]), out.dtype)
            slow(a[redo], b[redo], None if c is None else c[redo], again)
            out[redo] = again

    def run(self, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int) -> NDArray[np.uint8]:
        """What `multiply` does, without what is out of reach: a byte a product says which ones are wrong. `c` overlaps nothing."""
        p, kernel, how = self
        count, rows, columns = out.shape
        depth = a.shape[2]
        place_a, place_b, place_out = _matrices(a), _matrices(b), _matrices(out)
        width, line = kernel.sum_bytes, columns * kernel.sum_bytes
        arrange_a = depth != kernel.unit or rows % ROWS != 0 or place_a[2:] != (depth * kernel.a.itemsize, kernel.a.itemsize)
        arrange_b = columns != COLUMNS or depth % kernel.unit != 0 or place_b[2:] != (columns * kernel.b.itemsize, kernel.b.itemsize)
        ragged = rows % ROWS != 0 or columns % COLUMNS != 0
        arrange_out = ragged or place_out.column_stride != width or (kernel.tiles and place_out.row_stride != line)
        place_added = None
        arrange_c = False
        if c is None or p.restart:
            place_c = Matrices(_zeros(ROWS * COLUMNS + columns).__array_interface__["data"][0], 0, 0, 0)
            place_added = None if c is None else _matrices(c)
        else:
            place_c = _matrices(c)
            arrange_c = ragged or place_c.column_stride != width or (kernel.tiles and place_c.row_stride != line)
        bad = np.empty(count, np.uint8)
        address = bad.__array_interface__["data"][0]
        batch = Batch(
            place_a, place_b, place_c, place_out, address, rows, columns, depth, arrange_a, arrange_b, arrange_c, arrange_out
        )  # fmt: skip
        added = None if place_added is None else (p, place_added, place_out, width, rows, columns)
        _run(kernel, how, batch, count, threads, added)
        return bad


def _arrangement(kernel: BlockKernel, *granules: int) -> Arrangement:
    return Arrangement(kernel.a.itemsize, kernel.b.itemsize, kernel.sum_bytes, kernel.unit, *granules)


def _run(kernel: BlockKernel, how: Arrangement, batch: Batch, count: int, threads: int, added: tuple[Any, ...] | None = None) -> None:
    """Compute a batch in pieces."""
    grain = max(AT_ONCE // (batch.rows * batch.columns * batch.depth), 1)
    if threads > 1:
        grain = min(grain, -(-count // (4 * threads)))

    def compute(first: int, last: int, _worker_number: int) -> None:
        run_batch(how, _worker.prepare(kernel, batch, min(grain, count)), first, last)
        if added is not None:
            add_sums(*added, first, last)

    parallel_for(compute, count, threads, grain)


def blocks(p: Fused, coded: Coded, rows: int, columns: int, depth: int) -> Blocks | None:
    """What multiplies batches of matrices of this shape, if this CPU has a kernel for it."""
    kernel = _block_kernel(p, coded, depth, rows == ROWS and columns == COLUMNS, first_fit(FUSED))
    return None if kernel is None else Blocks(p, kernel, _arrangement(kernel))


class Orders(NamedTuple):
    """Where the elements of matrices are in registers: their element numbers, (rows, columns); of the results the other way round."""

    a: Codes
    b: Codes
    c: Codes
    out: Codes


class RegisterBlocks(NamedTuple):
    """A `multiply` of matrices in registers that this CPU has a kernel for."""

    kernel: BlockKernel
    how: Arrangement
    shape: tuple[int, int, int]  # rows, columns and k
    permutations: tuple[Permutation, ...]  # of a, b, c and out

    def multiply(self, a: Codes, b: Codes, c: Codes, out: Codes, threads: int, slow: Slow) -> None:
        """As `Blocks.multiply`, on the registers (T, words) of T warps; the rows of `out` are contiguous."""
        a, b, c = (array if array.strides[1] == array.itemsize else np.ascontiguousarray(array) for array in (a, b, c))
        places = [
            Matrices(array.__array_interface__["data"][0], array.strides[0], how.address, how.vectors)
            for array, how in zip((a, b, c, out), self.permutations, strict=True)
        ]
        bad = np.empty(len(out), np.uint8)
        rows, columns, depth = self.shape
        address = bad.__array_interface__["data"][0]
        batch = Batch(places[0], places[1], places[2], places[3], address, rows, columns, depth, 1, 1, 1, 1)
        _run(self.kernel, self.how, batch, len(out), threads)
        if bad.any():
            redo = np.flatnonzero(bad)
            again = np.empty((redo.size, *out.shape[1:]), out.dtype)
            slow(a[redo], b[redo], c[redo], again)
            out[redo] = again


def register_blocks(p: Fused, coded: Coded, orders: Orders) -> RegisterBlocks | None:
    """What multiplies the registers of warps, if this CPU has a kernel for it."""
    (rows, depth), columns = orders.a.shape, orders.b.shape[1]
    single_block, tiles = rows == ROWS and columns == COLUMNS, first_fit(FUSED)
    kernel = _block_kernel(p, coded, depth, single_block, tiles)
    if kernel is None or p.restart or rows % ROWS or columns % COLUMNS or depth % kernel.unit:
        return None
    # as the kernel reads them: blocks of rows, then units of k; panels of columns
    a = orders.a.reshape(rows // ROWS, ROWS, depth // kernel.unit, kernel.unit).swapaxes(1, 2)
    b = orders.b.reshape(depth, columns // COLUMNS, COLUMNS).swapaxes(0, 1)
    sizes = kernel.a.itemsize, kernel.b.itemsize, kernel.sum_bytes, kernel.sum_bytes
    each = [permutation(order, size) for order, size in zip((a, b, orders.c, orders.out), sizes, strict=True)]
    if not all(how.vectors for how in each):
        return None
    return RegisterBlocks(kernel, _arrangement(kernel, *(permuted.granule for permuted in each)), (rows, columns, depth), tuple(each))
