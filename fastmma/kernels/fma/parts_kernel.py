"""The micro-kernel of small products whose k are cut into parts: a chain of fma from +0 for each part, and the joins of their sums.

Operands are packed, multiplied and joined in one call of machine code, which reads shapes, strides and the order of k from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from fastmma.kernels.fma.chain_kernel import FmaConfig, TileEmitter, Vectors
from fastmma.kernels.llvm.architecture import NEAREST
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import F32, I32, I64, Variables, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.accumulators import NAN

_SIZE = 4  # bytes of an element


class Places(NamedTuple):
    """Addresses: operands, sums to start from (0: none), results, and the memory of a call and of a product's form."""

    a: ir.Value
    b: ir.Value
    start: ir.Value
    out: ir.Value
    panels: ir.Value  # of A, [block][k][row]
    panel: ir.Value  # of B, [k][column]
    slots: ir.Value  # a tile for each part
    k: ir.Value  # the k of all parts, one after another
    stops: ir.Value  # of parts, where the first starts at 0
    joins: ir.Value  # pairs of parts: to the sum of the first that of the second is added


class Sizes(NamedTuple):
    """Shapes, and strides in bytes; `last` is the part whose sum is the result."""

    products: ir.Value
    rows: ir.Value
    columns: ir.Value
    depth: ir.Value
    parts: ir.Value
    joins: ir.Value
    last: ir.Value
    a_product: ir.Value
    a_line: ir.Value
    a_k: ir.Value
    b_product: ir.Value
    b_k: ir.Value
    b_line: ir.Value


class _Plane(NamedTuple):
    """Rows of adjacent elements: the address of the first, and the bytes from row to row."""

    address: ir.Value
    stride: ir.Value


class _PartsEmitter(TileEmitter):
    """Emission of products in parts."""

    def __init__(self, chain: FmaConfig, builder: ir.IRBuilder, places: Places, sizes: Sizes) -> None:
        super().__init__(chain, builder)
        self.places, self.sizes = places, sizes
        self.row_bytes = chain.columns * _SIZE
        self.tile_bytes = chain.rows * self.row_bytes
        self.totals = Variables(builder, [[self.kind] * chain.vectors] * chain.rows)

    def number(self, base: ir.Value, index: ir.Value, offset: int = 0) -> ir.Value:
        """An integer of a list in memory."""
        return self.load(I64, base, self.sum(self.scaled(index, 8), offset))

    def moved(self, base: ir.Value, index: ir.Value, stride: ir.Value) -> ir.Value:
        """An address `index` strides further."""
        return self.at(base, self.builder.mul(index, stride))

    def least(self, first: ir.Value, second: ir.Value) -> ir.Value:
        """The smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", first, second), first, second)

    @contextmanager
    def blocks(self, length: ir.Value, size: int) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Loop over blocks of at most `size` of a length: the number of each, its first place, and how many places it has."""
        count = self.builder.udiv(self.sum(length, size - 1), self.index(size))
        with for_range(self.builder, count) as block:
            first = self.scaled(block.index, size)
            yield block.index, first, self.least(self.builder.sub(length, first), self.index(size))

    def pack(self, source: ir.Value, line: ir.Value, k: ir.Value, lines: ir.Value, target: ir.Value, width: int) -> None:
        """Copy lines, at most `width`, at all k in their order to [k][line]; what lies past the last line is left as it is."""
        with for_range(self.builder, self.sizes.depth) as step:
            own = self.moved(source, self.number(self.places.k, step.index), k)
            to = self.at(target, self.scaled(step.index, width * _SIZE))
            with for_range(self.builder, lines) as each:
                self.store(self.load(F32, self.moved(own, each.index, line)), to, self.scaled(each.index, _SIZE))

    def multiply(self, a: ir.Value, part: ir.Value) -> None:
        """The chain of a part of a tile, from what the totals are, to the part's slot; the totals are zeros then."""
        chain = self.chain
        first, stop = (self.number(self.places.stops, part, offset) for offset in (0, 8))
        with for_range(self.builder, self.builder.sub(stop, first)) as step:
            k = self.sum(first, step.index)
            column = self.at(a, self.scaled(k, chain.rows * _SIZE))
            line = self.row_of(self.at(self.places.panel, self.scaled(k, self.row_bytes)))
            found = []
            for row, sums in enumerate(self.totals.get()):
                x = self.broadcast(self.kind, column, row * _SIZE)
                found.append([self.call("fma", x, y, total) for y, total in zip(line, sums, strict=True)])
            self.totals.put(found)
        self.put_tile(self.slot(part), self.totals.get())
        self.clear()

    def clear(self) -> None:
        """Set the totals to zeros."""
        zero = self.constant(self.kind, 0.0)
        self.totals.put([[zero] * self.chain.vectors] * self.chain.rows)

    def slot(self, part: ir.Value) -> ir.Value:
        """The address of the sums of a part."""
        return self.at(self.places.slots, self.scaled(part, self.tile_bytes))

    def tile(self, base: ir.Value) -> list[Vectors]:
        """A tile in memory."""
        return [self.row_of(self.at(base, row * self.row_bytes)) for row in range(self.chain.rows)]

    def put_tile(self, base: ir.Value, rows: list[Vectors]) -> None:
        """Write a tile."""
        for row, values in enumerate(rows):
            for v, value in enumerate(values):
                self.store(value, base, row * self.row_bytes + v * self.chain.vector_bytes, self.chain.vector_bytes)

    def copy(self, source: _Plane, target: _Plane, rows: ir.Value, columns: ir.Value) -> None:
        """Copy some rows and columns of at most a tile, by vectors where it is as wide as the tile."""
        whole = self.builder.icmp_signed("==", columns, self.index(self.chain.columns))
        with for_range(self.builder, rows) as row:
            own, to = (self.moved(each.address, row.index, each.stride) for each in (source, target))
            with self.builder.if_else(whole) as (then, otherwise):
                with then:
                    for place in range(0, self.row_bytes, self.chain.vector_bytes):
                        self.store(self.load(self.kind, own, place), to, place)
                with otherwise, for_range(self.builder, columns) as column:
                    place = self.scaled(column.index, _SIZE)
                    self.store(self.load(F32, own, place), to, place)

    def results(self, base: ir.Value) -> _Plane:
        """Rows of matrices that lie as results do."""
        return _Plane(base, self.scaled(self.sizes.columns, _SIZE))

    def sums(self, part: ir.Value) -> _Plane:
        """Rows of a part's tile."""
        return _Plane(self.slot(part), self.index(self.row_bytes))

    def begin(self, corner: ir.Value, rows: ir.Value, columns: ir.Value) -> None:
        """Set the totals to zeros, or to the sums to start from."""
        self.clear()
        starts = self.builder.icmp_unsigned("!=", self.builder.ptrtoint(self.places.start, I64), self.index(0))
        with self.builder.if_then(starts):
            first = self.sums(self.index(0))
            self.copy(self.results(self.at(self.places.start, corner)), first, rows, columns)
            self.totals.put(self.tile(first.address))

    def join(self) -> None:
        """Add up the sums of parts."""
        with for_range(self.builder, self.sizes.joins) as each:
            pair = self.scaled(each.index, 2)
            to, other = (self.slot(self.number(self.places.joins, pair, offset)) for offset in (0, 8))
            joined = zip(self.tile(to), self.tile(other), strict=True)
            self.put_tile(to, [[self.builder.fadd(x, y) for x, y in zip(*rows, strict=True)] for rows in joined])

    def end(self, corner: ir.Value, rows: ir.Value, columns: ir.Value) -> None:
        """Write the results of a tile, whose NaNs are made canonical."""
        found, integers = self.sums(self.sizes.last), vector(I32, self.chain.lanes)
        nan = self.constant(integers, NAN)

        def canonical(x: ir.Value) -> ir.Value:
            return self.builder.select(self.builder.fcmp_unordered("uno", x, x), nan, self.cast(x, integers))

        self.put_tile(found.address, [[canonical(x) for x in row] for row in self.tile(found.address)])
        self.copy(found, self.results(self.at(self.places.out, corner)), rows, columns)

    def product(self, a: ir.Value, b: ir.Value, results: ir.Value) -> None:
        """One product, whose results lie so many bytes after the first one's."""
        sizes, chain, places = self.sizes, self.chain, self.places
        block_bytes = self.scaled(sizes.depth, chain.rows * _SIZE)
        with self.blocks(sizes.rows, chain.rows) as (block, row, rows):
            panel = self.moved(places.panels, block, block_bytes)
            self.pack(self.moved(a, row, sizes.a_line), sizes.a_line, sizes.a_k, rows, panel, chain.rows)
        with self.blocks(sizes.columns, chain.columns) as (_, column, columns):
            self.pack(self.moved(b, column, sizes.b_line), sizes.b_line, sizes.b_k, columns, places.panel, chain.columns)
            with self.blocks(sizes.rows, chain.rows) as (block, row, rows):
                panel = self.moved(places.panels, block, block_bytes)
                corner = self.sum(results, self.scaled(self.sum(self.builder.mul(row, sizes.columns), column), _SIZE))
                self.begin(corner, rows, columns)
                with for_range(self.builder, sizes.parts) as part:
                    self.multiply(panel, part.index)
                self.join()
                self.end(corner, rows, columns)


def _emit(chain: FmaConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Products one after the other; see `Places` and `Sizes`."""
    count = len(Places._fields)
    emit = _PartsEmitter(chain, builder, Places(*arguments[:count]), Sizes(*arguments[count:]))
    sizes = emit.sizes
    results = emit.scaled(builder.mul(sizes.rows, sizes.columns), _SIZE)
    with for_range(builder, sizes.products) as product:
        a, b = emit.moved(emit.places.a, product.index, sizes.a_product), emit.moved(emit.places.b, product.index, sizes.b_product)
        emit.product(a, b, builder.mul(product.index, results))


PARTS = MicroKernel(_emit, len(Places._fields), len(Sizes._fields), mode=lambda _: NEAREST)
