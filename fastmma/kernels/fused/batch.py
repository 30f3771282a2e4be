"""The fast path of the fused dot-product-add for batches of tiles and small products: what it covers, cut into pieces for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.batch_numbers import BlockMemory, Form, Matrices, Strides, numbers_of, sizes
from fastmma.kernels.fused.block_batch import BLOCKS, batch_runner, registers_runner, sums_adder
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, Arrangement, BlockConfig, BlockElementSpec
from fastmma.kernels.fused.reach import (
    F32_LOWEST,
    SINGLE_LARGEST_C,
    Spread,
    byte_excess,
    exact_in_lanes,
    excess_of,
    first_bad,
    floor_byte,
    lowest_emax,
    lowest_product,
    mask_c,
    single_lanes,
    smallest_c,
    sum_excess,
)
from fastmma.kernels.llvm.kinds import kind_of
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.matrices.permutation import Permutation, permutation
from fastmma.kernels.params import Element, ElementSpecs, Fused
from fastmma.kernels.tiles import FUSED, FusedTile, first_fit

Codes = NDArray[Any]
Then = Callable[[int, int], None]
ByteStrides = tuple[int, ...]  # strides of a batch, in bytes

DEEPEST = 4096  # the k for which sums are known not to overflow
ARRANGED = 1 << 17  # bytes of arranged operands at a time, which stay in the cache
AT_ONCE = 1 << 26  # products of elements between looks at who else wants the CPU
UNITS = {1: 32, 2: 16, 4: 8}  # by a code's bytes: the k that are decoded together


def _spec_of(element: Element, multiplied: Element, excess: int) -> BlockElementSpec:
    # the exponent byte 255 stands for all that are too large
    limit = max(255 - excess + element.bias, 0) << element.mantissa_bits
    return BlockElementSpec(element, element.bias < multiplied.bias, min(first_bad(element, excess, DEEPEST), limit), excess - element.bias)


def _spread(element: Element, multiplied: Element) -> Spread:
    """The exponents of an element's codes, those of its specials included."""
    normal = element.mantissa_bits if element.bias < multiplied.bias else 0
    return Spread(1 - element.bias - normal, (1 << element.exponent_bits) - 1 - element.bias)


def _steps(p: Fused, specs: ElementSpecs, depth: int) -> tuple[tuple[int, ...], ...] | None:
    """The k of a unit, step by step."""
    period = p.terms * max(p.split, 1)
    least = UNITS[max(_spec_of(element, element, 0).itemsize for element in (specs.a, specs.b))]
    unit = period if p.split else max(period, min(least, -(-depth // 8) * 8))
    if unit not in (8, 16, 32, 64) or unit % period or (p.split and depth > unit):
        return None
    order = specs.order or tuple(range(unit))
    return tuple(order[start : start + p.terms] for start in range(0, unit, p.terms))


@lru_cache(1024)
def block_config(p: Fused, specs: ElementSpecs, depth: int, single_block: bool, tiles: FusedTile | None) -> BlockConfig | None:
    """The kernel for these parameters, if there is one; `single_block` where products are of a single block and unit."""
    if tiles is None or not exact_in_lanes(p) or not 0 < depth <= DEEPEST:
        return None
    steps = _steps(p, specs, depth)
    if steps is None:
        return None
    single, wide = single_lanes(p), tiles.vector_bytes == 64
    excess = byte_excess(excess_of(p))
    smallest, lowest_bytes = 2 - p.a.bias - p.b.bias, lowest_product(p)
    lowest_sum = 0 if p.half or single or smallest >= lowest_bytes else sum(excess) + lowest_bytes
    spreads = _spread(specs.a, p.a), _spread(specs.b, p.b)
    added = None if lowest_sum else sum_excess(excess_of(p), *spreads)
    excess = added or excess
    smallest_c_of_sums = 0 if p.half or smallest_c(p) < F32_LOWEST else smallest_c(p)
    bias = 127 if single or not (p.half or smallest_c_of_sums) else 1023  # of c as it is noted
    largest = 16 if p.half else SINGLE_LARGEST_C if single else 126
    return BlockConfig(
        a=_spec_of(specs.a, p.a, excess[0]),
        b=_spec_of(specs.b, p.b, excess[1]),
        steps=steps,
        align_bits=p.align_bits,
        keep_bits=p.keep_bits,
        half=bool(p.half),
        floor=floor_byte(p),
        single=single,
        vector_bytes=64 if wide and (not single or sum(map(len, steps)) % 16 == 0) else 32,
        byte_vector=64 if wide else 32,
        tiles=wide and single_block and depth == sum(map(len, steps)),
        strip=8 if wide or single else 4,
        smallest_c=smallest_c_of_sums and bias + smallest_c_of_sums,
        largest_c=bias + largest,
        mask_c=-1 if p.half else mask_c(p),
        lowest_byte=excess_of(p) + lowest_emax(p),
        lowest_sum=lowest_sum,
        least_sum=sum(spread.lowest for spread in spreads) + sum(added) if added else 0,
    )


@lru_cache(64)
def _zeros(bits: int) -> Codes:
    """Zeros, as many as there are numbers of so many bits. All loops share them: many are kept, and each may have many columns."""
    zeros = np.zeros(1 << bits, np.uint32)
    zeros.flags.writeable = False
    return zeros


class Loop:
    """The loop over products of a form, compiled, with what it needs in every batch."""

    def __init__(self, config: BlockConfig, form: Form) -> None:
        size = sizes(config, form.rows, form.columns, form.depth)
        self.arranged = form.arrange_a * size.a, form.arrange_b * size.b, form.arrange_c * size.out, form.arrange_out * size.out
        self.at_once = max(ARRANGED // max(sum(self.arranged), 1), 1)
        self.grain = max(AT_ONCE // (form.rows * form.columns * form.depth), 1)
        self.form, self.size = form, size
        how = Arrangement(config.a.itemsize, config.b.itemsize, config.sum_bytes)
        self.kernel, self.batch = BLOCKS.address(config), registers_runner() if form.granule_a else batch_runner(how)
        self.zeros = _zeros((ROWS * COLUMNS + form.columns - 1).bit_length())  # to start from where there is no c

    def run(self, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int, then: Then | None = None) -> NDArray[np.uint8]:
        """Compute a batch in pieces, each followed by what comes `then`; a byte a product says which ones are wrong."""
        count, grain = len(out), self.grain
        if threads > 1:
            grain = min(grain, -(-count // (4 * threads)))
        bad = np.empty(count, np.uint8)
        start = self.zeros if c is None else c

        def compute(first: int, last: int, _worker_number: int) -> None:
            scratch = _worker.scratch_of(self, last - first)
            self.batch(scratch.numbers, a, b, start, out, bad, first, last)
            if then is not None:
                then(first, last)

        parallel_for(compute, count, threads, grain)
        return bad


class Scratch:
    """Memory of a thread for a loop, and the address of the numbers that the loop reads."""

    def __init__(self, loop: Loop, at_once: int) -> None:
        self.loop, self.at_once = loop, at_once
        self._memory = AlignedMemory(*(at_once * each for each in loop.arranged), loop.size.memory)
        a, b, c, out, own = self._memory.addresses
        self._numbers = numbers_of(loop.form, loop.size, BlockMemory(a, b, c, out, own, at_once), loop.kernel)
        self.numbers = address_of(self._numbers)


class _Worker(threading.local):
    """A thread's scratch, kept for the next batch of the same form."""

    scratch: Scratch | None = None

    def scratch_of(self, loop: Loop, count: int) -> Scratch:
        """Return what the thread needs to compute so many products; a signal handler may need another one meanwhile."""
        scratch, at_once = self.scratch, min(count, loop.at_once)
        if scratch is None or scratch.loop is not loop or scratch.at_once < at_once:
            self.scratch = scratch = Scratch(loop, at_once)
        return scratch


_worker = _Worker()


@lru_cache(1024)
def loop_of(
    config: BlockConfig, rows: int, columns: int, depth: int, a: ByteStrides, b: ByteStrides, c: ByteStrides | None, out: ByteStrides
) -> Loop:
    """The loop over products whose matrices have these strides."""
    width = config.sum_bytes
    ragged = rows % ROWS != 0 or columns % COLUMNS != 0

    def sums_arranged(row: int, column: int) -> bool:
        return ragged or column != width or (config.tiles and row != columns * width)

    form = Form(
        Strides(*a),
        Strides(*b),
        Strides(*(c or (0, 0, 0))),
        Strides(*out),
        rows,
        columns,
        depth,
        config.unit,
        depth != config.unit or rows % ROWS != 0 or a[1:] != (depth * config.a.itemsize, config.a.itemsize),
        columns != COLUMNS or depth % config.unit != 0 or b[1:] != (columns * config.b.itemsize, config.b.itemsize),
        c is not None and sums_arranged(*c[1:]),
        sums_arranged(*out[1:]),
    )
    return Loop(config, form)


class Blocks(NamedTuple):
    """Products that this CPU has a kernel for."""

    p: Fused
    config: BlockConfig

    def run(self, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int) -> NDArray[np.uint8]:
        """Write the fused products of `a` (T, M, K) and `b` (T, K, N) plus `c` (T, M, N) to `out`.

        `c` and `out` are f32 bits (f16 bits for half results), all of any strides; `c` overlaps nothing, and none is +0. Products with an
        operand out of reach (infinities, NaNs, sums that overflow) are wrong, which a byte a product says.
        """
        _, rows, columns = out.shape
        then = None
        if c is not None and self.p.split:
            sums = Matrices(address_of(c), *c.strides), Matrices(address_of(out), *out.strides)
            then, c = partial(sums_adder(kind_of(self.p)), self.p, *sums, self.config.sum_bytes, rows, columns), None
        loop = loop_of(self.config, rows, columns, a.shape[2], a.strides, b.strides, None if c is None else c.strides, out.strides)
        return loop.run(a, b, c, out, threads, then)


def blocks(p: Fused, specs: ElementSpecs, rows: int, columns: int, depth: int) -> Blocks | None:
    """Return what multiplies batches of matrices of this shape, if this CPU has a kernel for it."""
    config = block_config(p, specs, depth, rows == ROWS and columns == COLUMNS, first_fit(FUSED))
    return None if config is None else Blocks(p, config)


class Orders(NamedTuple):
    """For a, b and c: the register index of each element, (rows, columns). For out: the element of each register."""

    a: Codes
    b: Codes
    c: Codes
    out: Codes


@dataclass(frozen=True, eq=False)
class RegisterBlocks:
    """Products of matrices in registers that this CPU has a kernel for."""

    config: BlockConfig
    shape: tuple[int, int, int]  # rows, columns and k
    permutations: tuple[Permutation, ...]  # of a, b, c and out

    def run(self, a: Codes, b: Codes, c: Codes, out: Codes, threads: int) -> NDArray[np.uint8]:
        """Write the registers (T, words) of T warps as `Blocks.run` does; the rows of `out` are contiguous."""
        a, b, c = (array if array.strides[1] == array.itemsize else np.ascontiguousarray(array) for array in (a, b, c))
        return _register_loop(self, a.strides[0], b.strides[0], c.strides[0], out.strides[0]).run(a, b, c, out, threads)


@lru_cache(256)
def _register_loop(blocks: RegisterBlocks, *strides: int) -> Loop:
    """The loop over warps whose registers have these strides from warp to warp: of a, b, c and out."""
    each = [Strides(stride, how.address, how.vectors) for stride, how in zip(strides, blocks.permutations, strict=True)]
    granules = (how.granule for how in blocks.permutations)
    return Loop(blocks.config, Form(each[0], each[1], each[2], each[3], *blocks.shape, blocks.config.unit, 1, 1, 1, 1, *granules))


def register_blocks(p: Fused, specs: ElementSpecs, orders: Orders) -> RegisterBlocks | None:
    """Return what multiplies the registers of warps, if this CPU has a kernel for it."""
    (rows, depth), columns = orders.a.shape, orders.b.shape[1]
    single_block, tiles = rows == ROWS and columns == COLUMNS, first_fit(FUSED)
    config = block_config(p, specs, depth, single_block, tiles)
    if config is None or p.split or rows % ROWS or columns % COLUMNS or depth % config.unit:
        return None
    # as the kernel reads them: blocks of rows, then units of k; panels of columns
    a = orders.a.reshape(rows // ROWS, ROWS, depth // config.unit, config.unit).swapaxes(1, 2)
    b = orders.b.reshape(depth, columns // COLUMNS, COLUMNS).swapaxes(0, 1)
    sizes = config.a.itemsize, config.b.itemsize, config.sum_bytes, config.sum_bytes
    each = [permutation(order, size) for order, size in zip((a, b, orders.c, orders.out), sizes, strict=True)]
    if not all(how.vectors for how in each):
        return None
    return RegisterBlocks(config, (rows, columns, depth), tuple(each))
