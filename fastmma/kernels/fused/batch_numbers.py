"""The numbers that loops over batches read: where matrices lie, how large they are, where a worker's buffers are."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockConfig
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import load_scalar


class Strides(NamedTuple):
    """The strides of the matrices of a batch in bytes; from matrix to matrix possibly 0.

    For matrices in registers, `row` is the address of a `Permutation`'s table and `column` is its number of vectors.
    """

    matrix: int
    row: int
    column: int


class Matrices(NamedTuple):
    """The addresses of the matrices of a batch, with their `Strides`."""

    address: int
    stride: int
    row_stride: int
    column_stride: int


class Form(NamedTuple):
    """The common part of batches at other addresses: strides, sizes, and the way in which codes come as the kernel reads them.

    Those of matrices may have to be arranged, those of registers move in granules of so many bytes.
    """

    a: Strides
    b: Strides
    c: Strides
    out: Strides
    rows: int
    columns: int
    depth: int
    unit: int  # the k of the kernel's units
    arrange_a: int
    arrange_b: int
    arrange_c: int
    arrange_out: int
    granule_a: int = 0
    granule_b: int = 0
    granule_c: int = 0
    granule_out: int = 0


class Batch(NamedTuple):
    """Products, with what a `Form` has; `bad` is the address of a byte a product."""

    a: Matrices
    b: Matrices
    c: Matrices
    out: Matrices
    bad: int
    rows: int
    columns: int
    depth: int
    unit: int
    arrange_a: int
    arrange_b: int
    arrange_c: int
    arrange_out: int
    granule_a: int
    granule_b: int
    granule_c: int
    granule_out: int


class BlockMemory(NamedTuple):
    """Addresses of a worker's buffers: arranged operands and results of `at_once` products, and the kernel's memory."""

    a: int
    b: int
    c: int
    out: int
    memory: int
    at_once: int


class Sizes(NamedTuple):
    """Bytes of a product's arranged operands and results, and of the kernel's memory."""

    a: int
    b: int
    out: int
    memory: int


_MATRIX = 8 * len(Strides._fields)  # bytes of a matrix's numbers
_REST = 4 * _MATRIX  # where the other numbers of a `Form` begin
_SIZE = _REST + 8 * (len(Form._fields) - 4)
_WORK = _SIZE + 8 * len(Sizes._fields)
KERNEL = _WORK + 8 * len(BlockMemory._fields)  # where its address is


@lru_cache(1024)
def sizes(config: BlockConfig, rows: int, columns: int, depth: int) -> Sizes:
    """Return how large a product's buffers are."""
    blocks, panels, units = -(-rows // ROWS), -(-columns // COLUMNS), -(-depth // config.unit)
    block = config.block_size + config.left_size + config.right_size
    memory = 2 * block + ROWS * COLUMNS * 4 if config.tiles else units * (block + (blocks - 1) * config.left_size)
    return Sizes(
        blocks * units * ROWS * config.unit * config.a.itemsize,
        panels * units * COLUMNS * config.unit * config.b.itemsize,
        blocks * panels * ROWS * COLUMNS * config.sum_bytes,
        memory,
    )


@inner
def _matrices_at(address: int, strides: int) -> Matrices:
    return Matrices(address, load_scalar(strides, np.int64), load_scalar(strides + 8, np.int64), load_scalar(strides + 16, np.int64))


@inner
def batch_at(numbers: int, a: int, b: int, c: int, out: int, bad: int) -> Batch:
    """The batch of matrices at these addresses."""
    rest = numbers + _REST
    return Batch(
        _matrices_at(a, numbers),
        _matrices_at(b, numbers + _MATRIX),
        _matrices_at(c, numbers + 2 * _MATRIX),
        _matrices_at(out, numbers + 3 * _MATRIX),
        bad,
        load_scalar(rest, np.int64),
        load_scalar(rest + 8, np.int64),
        load_scalar(rest + 16, np.int64),
        load_scalar(rest + 24, np.int64),
        load_scalar(rest + 32, np.int64),
        load_scalar(rest + 40, np.int64),
        load_scalar(rest + 48, np.int64),
        load_scalar(rest + 56, np.int64),
        load_scalar(rest + 64, np.int64),
        load_scalar(rest + 72, np.int64),
        load_scalar(rest + 80, np.int64),
        load_scalar(rest + 88, np.int64),
    )


@inner
def size_at(numbers: int) -> Sizes:
    """Return how large a product's buffers are."""
    place = numbers + _SIZE
    return Sizes(
        load_scalar(place, np.int64), load_scalar(place + 8, np.int64), load_scalar(place + 16, np.int64), load_scalar(place + 24, np.int64)
    )


@inner
def work_at(numbers: int) -> BlockMemory:
    """Return where a worker's buffers are."""
    place = numbers + _WORK
    return BlockMemory(
        load_scalar(place, np.int64),
        load_scalar(place + 8, np.int64),
        load_scalar(place + 16, np.int64),
        load_scalar(place + 24, np.int64),
        load_scalar(place + 32, np.int64),
        load_scalar(place + 40, np.int64),
    )


def numbers_of(form: Form, size: Sizes, work: BlockMemory, kernel: int) -> NDArray[np.int64]:
    """The numbers that the loops read: to look into tuples in tuples would take Numba longer than a small product."""
    return np.array((*form.a, *form.b, *form.c, *form.out, *form[4:], *size, *work, kernel), np.int64)
