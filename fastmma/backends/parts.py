"""Large products in parts that are soon done, so that Ctrl-C is answered between two of them and no step needs much memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastmma.backends.call import Codes, Operands, cut
from fastmma.isa.instruction import Instruction

DEPTH = 1 << 13  # k of a part of many rows; a multiple of every instruction's
_DEEPEST = 1 << 15  # k of a part of few rows
_ELEMENTS = 1 << 23  # of A in a part of more k than `DEPTH`
_CODES = 1 << 24  # the most codes of A or of the results
_TIMES_OF_B = 4  # as many of B, of which kernels hold a panel, or bytes


class Part(NamedTuple):
    """Some rows and columns of the results of some products, and the k that are added to them."""

    products: slice
    rows: slice
    columns: slice
    start: int
    stop: int

    @property
    def results(self) -> tuple[slice, slice, slice]:
        """Where they lie in D."""
        return self.products, self.rows, self.columns

    def of(self, ins: Instruction, operands: Operands, d: Codes) -> Operands:
        """The operands; D is fed back as C, as where the instruction is looped over k."""
        k, c = cut(ins, operands, self.start, self.stop), d if self.start else operands.c
        return Operands(
            k.a[self.products, self.rows],
            k.b[self.products, :, self.columns],
            None if c is None else c[self.results],
            None if k.metadata is None else k.metadata[self.products, self.rows],
            None if k.scale_a is None else k.scale_a[self.products, self.rows],
            None if k.scale_b is None else k.scale_b[self.products, :, self.columns],
        )


def _deepest(rows: int) -> int:
    """The most k of a part."""
    return max(DEPTH, min(_DEEPEST, _ELEMENTS // max(rows, 1)))


def is_small(operands: Operands, d: Codes) -> bool:
    """Tell whether everything is one part."""
    (products, rows, columns), depth = d.shape, operands.depth
    most = max(rows * depth, -(-depth * columns // _TIMES_OF_B), rows * columns)
    return products * most <= _CODES and (depth <= DEPTH or depth <= _deepest(rows))


def parts(operands: Operands, d: Codes, unit: int) -> Iterator[Part]:
    """Cut products into parts of ascending k, at multiples of `unit`."""
    products, rows, columns = d.shape
    return cuts(products, rows, columns, operands.depth, unit)


def cuts(products: int, rows: int, columns: int, depth: int, unit: int) -> Iterator[Part]:
    """Cut products of these sizes."""
    deep = max(_deepest(rows) // unit, 1) * unit
    longest = max(1, min(depth, deep))
    wide = max(1, min(columns, _CODES, _TIMES_OF_B * _CODES // longest))
    high = max(1, min(rows, _CODES // max(longest, wide)))
    whole = depth <= deep and wide >= columns and high >= rows
    many = max(1, _CODES // max(1, high * longest, -(-longest * wide // _TIMES_OF_B), high * wide)) if whole else 1
    for product in range(0, products, many):
        for column in range(0, columns, wide):
            for row in range(0, rows, high):
                for start in range(0, max(depth, 1), deep):
                    lines = slice(row, row + high), slice(column, column + wide)
                    yield Part(slice(product, product + many), *lines, start, min(start + deep, depth))
