"""A product without its numbers: what a choice of kernel depends on, and what a kernel says of the results that it has not computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Codes, Operands, Operation

Index = slice | NDArray[np.intp]


class Extents(NamedTuple):
    """The sizes of T products of (M, K) by (K, N)."""

    products: int
    rows: int
    columns: int
    depth: int

    @property
    def work(self) -> int:
        """Multiply-adds of one product."""
        return self.rows * self.columns * self.depth


class Strides(NamedTuple):
    """Bytes between products, rows and columns of a and b."""

    a: tuple[int, ...]
    b: tuple[int, ...]


class Problem(NamedTuple):
    """Products of matrices, of which everything is known but the numbers: the key of every cache of choices."""

    operation: Operation
    extents: Extents
    strides: Strides
    starts: bool  # whether there is a c
    scaled: bool  # whether there are scales
    stored: bool  # whether A is sparse, and stored without its zeros
    promoted: int = 0  # k of a sum from zero that joins a total; 0 where there is none
    finished: bool = False  # whether steps of an epilogue follow
    parts: int = 1  # of k, whose sums are joined


class Fallback(NamedTuple):
    """Results that a kernel has not computed: the rows and columns of some products. At most one of the three is an array."""

    products: Index
    rows: Index
    columns: Index


Fallbacks = Sequence[Fallback]
ALL: Fallbacks = ()  # what a kernel returns that has computed everything


def problem_of(operation: Operation, operands: Operands, out: Codes) -> Problem:
    """Describe the products of operands."""
    products, rows, columns = out.shape
    return Problem(
        operation,
        Extents(products, rows, columns, operands.b.shape[1]),
        Strides(operands.a.strides, operands.b.strides),
        operands.c is not None,
        operands.scale_a is not None,
        operands.metadata is not None,
    )


def part_of(operands: Operands, place: Fallback) -> Operands:
    """Take the operands of some results."""
    products, rows, columns = place
    a, b, c, metadata, scale_a, scale_b = operands
    return Operands(
        a[products, rows],
        b[products, :, columns],
        None if c is None else c[place],
        None if metadata is None else metadata[products, rows],
        None if scale_a is None else scale_a[products, rows],
        None if scale_b is None else scale_b[products, :, columns],
    )
