"""The micro-kernel for terms that are exact sums of groups: integer dot products, then the fused sum in float64.

An element of A is an unsigned byte, twice its value plus 12, one of B a signed byte, twice its value; a dot product starts at what the
12 adds too much, plus 2**31. Such a word below the word of 2**52 is a float64; a difference takes the offset off, a product multiplies by
B's scale, and an fma multiplies by A's scale and adds. (An fma with offset times scale would do the first two, but on the busiest pipes.)

*Exact* kernels leave alignment out: where nothing can be truncated they add in float64 without rounding, then clear the bits that
float32 has not; there, adjacent groups of one scale make one term. They hold sums times so large a power of two that those which would
be truncated overflow to infinity, and stay there.
*Aligned* kernels truncate by flooring under round toward zero, as `fastmma.kernels.fused.micro_kernel` does: an accumulator starts at
1.5 * 2**(52 + emax - align_bits) plus the number of negative terms, and A's scales are packed times 1 + 2**-48.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from llvmlite import ir

from fastmma.kernels.fused.lanes import ColumnLanes
from fastmma.kernels.llvm.architecture import NEAREST, TOWARD_ZERO
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import F64, I8, I16, I32, Emitter, Variables, vector
from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.llvm.micro_kernel import MicroKernel

TERMS = 4  # of a step, at most
MARKED = 16  # elements of a group whose bits fit below the exponents in their words
GROWTH = 48  # A's scales are packed times 1 + 2**-GROWTH for aligned kernels
EXCESS = 150  # what the exponent field of an aligned kernel's sums exceeds the exponent by
HIGH_WORD = 0x43300000  # of 2**52
OFFSET = float((1 << 52) + (1 << 31))


@constant
@dataclass(frozen=True)
class GroupConfig:
    """The configuration of a micro-kernel."""

    aligned: bool
    group: int  # elements a term
    align_bits: int
    dot: str  # the instruction that multiplies bytes, as in `fastmma.kernels.tiles.GroupsTile`
    lanes: int  # 32-bit lanes of a vector
    rows: int
    vectors: int  # of columns
    terms: int = TERMS  # of a step

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.lanes * self.vectors

    @property
    def step(self) -> int:
        """Elements of k in a step."""
        return self.terms * self.group

    @property
    def whole_dots(self) -> bool:
        """True if the products of words are added to sums at once, and not first in int16 pairs."""
        return self.dot != "pmaddubsw"

    @property
    def reads_anew(self) -> bool:
        """True if every row reads B, as operands of its instructions: x86 has 16 registers of 32 bytes, which sums and constants fill."""
        return self.lanes == 8 and self.dot in ("pmaddubsw", "vpdpbusd")

    @property
    def marked(self) -> bool:
        """True if the words of exponents have room for a bit of each element: the sums of two of them stay below the exponents."""
        return self.group <= MARKED


class _Sums(NamedTuple):
    """The facts that `fastmma.kernels.fused.lanes` needs of the sums; only aligned kernels hold them times 2**scale."""

    align_bits: int
    lanes: int
    keep_bits: int = 23
    half: bool = False
    single: bool = False
    excess: int = EXCESS
    lift: int = 0
    scale: int = EXCESS - 1023
    watched: bool = False
    growth: float = 0.0


@dataclass(frozen=True)
class _GroupArguments:
    """Byte pointers, then integers (strides are bytes from row to row of A), then what sums are multiplied by, in two factors.

    Where there are several products, their operands follow one another.
    """

    a: ir.Value
    scales_a: ir.Value
    exponents_a: ir.Value  # (exponent + EXCESS / 2) << 20, plus the bits of nonzero_a if `marked`; used by aligned kernels, like B's
    b: ir.Value  # [step][word of k][column]
    starts: ir.Value  # [step][term][column]
    scales_b: ir.Value  # the same, in `order`
    exponents_b: ir.Value
    nonzero_a: ir.Value  # a bit for each element of a group that is not zero; used by aligned kernels that are not `marked`, like B's
    nonzero_b: ir.Value
    state: ir.Value  # float32 [row][column]
    a_stride: ir.Value
    scales_stride: ir.Value
    exponents_stride: ir.Value
    nonzero_stride: ir.Value
    blocks: ir.Value  # of rows
    steps: ir.Value
    products: ir.Value
    factor0: ir.Value
    factor1: ir.Value


_POINTERS, _INTEGERS, _FLOATS = 10, 7, 2


class _Kernel:
    """Emits the loops over blocks of rows and steps."""

    def __init__(self, tile: GroupConfig, builder: ir.IRBuilder, arguments: _GroupArguments) -> None:
        self.tile, self.builder, self.arguments = tile, builder, arguments
        self.emit = Emitter(builder)
        self.sum = self.emit.sum
        self.lanes = ColumnLanes(_Sums(tile.align_bits, tile.lanes), self.emit)
        self.words = vector(I32, tile.lanes)
        self.bytes = vector(I8, 4 * tile.lanes)
        self.doubles = self.lanes.kind

    def dot(self, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """Sums plus the products of a word of unsigned and a word of signed bytes (int16 pairs of sums by pmaddubsw)."""
        if self.tile.whole_dots:
            return self.emit.dot_bytes(self.tile.dot, total, a, b)
        name = "avx512.pmaddubs.w.512" if self.tile.lanes == 16 else "avx2.pmadd.ub.sw"
        a, b = self.emit.cast(a, self.bytes), self.emit.cast(b, self.bytes)
        pairs = self.emit.intrinsic(f"x86.{name}", vector(I16, 2 * self.tile.lanes), a, b)
        return pairs if total is None else self.builder.add(total, pairs)

    def dots(self, rows: list[ir.Value], step: ir.Value, term: int) -> list[list[ir.Value]]:
        """The words of the dot products of a term, of rows by vectors; `rows` are the places of A's bytes."""
        tile, emit, arguments = self.tile, self.emit, self.arguments
        place = emit.scaled(self.sum(emit.scaled(step, tile.terms), term), 4 * tile.columns)
        starts = [emit.load(self.words, arguments.starts, self.sum(place, 4 * tile.lanes * v), 4 * tile.lanes) for v in range(tile.vectors)]
        totals: list[list[Any]] = [list(starts) if tile.whole_dots else [None] * tile.vectors for _ in rows]
        for word in range(tile.group // 4):
            place = emit.scaled(self.sum(emit.scaled(step, tile.step // 4), term * tile.group // 4 + word), 4 * tile.columns)
            columns = [emit.load(self.words, arguments.b, self.sum(place, 4 * tile.lanes * v), 4 * tile.lanes) for v in range(tile.vectors)]
            for row, line in zip(rows, totals, strict=True):
                element = emit.broadcast(self.words, row, self.sum(emit.scaled(step, tile.step), term * tile.group + 4 * word))
                line[:] = [self.dot(total, element, column) for total, column in zip(line, columns, strict=True)]
        if tile.whole_dots:
            return totals
        ones = emit.constant(vector(I16, 2 * tile.lanes), 1)
        name = "avx512.pmaddw.d.512" if tile.lanes == 16 else "avx2.pmadd.wd"
        return [
            [
                self.builder.add(emit.intrinsic(f"x86.{name}", self.words, total, ones), start)
                for total, start in zip(line, starts, strict=True)
            ]
            for line in totals
        ]

    def scales_of(self, step: ir.Value, term: int) -> list[list[ir.Value]]:
        """B's scales of a term, two float64 vectors for each vector of columns."""
        tile, emit = self.tile, self.emit
        place = emit.scaled(self.sum(emit.scaled(step, tile.terms), term), 8 * tile.columns)
        size = 4 * tile.lanes
        return [
            [emit.load(self.doubles, self.arguments.scales_b, self.sum(place, size * (2 * v + part)), size) for part in (0, 1)]
            for v in range(tile.vectors)
        ]

    def add_term(
        self, sums: list[list[list[ir.Value]]], dots: list[list[ir.Value]], scales: list[ir.Value], step: ir.Value, term: int
    ) -> list[list[list[ir.Value]]]:
        """Sums of rows by vectors by parts, plus a term; `scales` are the places of A's."""
        emit, builder = self.emit, self.builder
        high = emit.constant(self.words, HIGH_WORD)
        offset = emit.constant(self.doubles, OFFSET)
        columns = self.scales_of(step, term)
        result = []
        for line, row_dots, place in zip(sums, dots, scales, strict=True):
            scale = emit.broadcast(self.doubles, place, emit.scaled(self.sum(emit.scaled(step, self.tile.terms), term), 8))
            new = []
            for v, total in enumerate(line):
                raw = self.lanes.doubles(row_dots[v], high)
                products = [builder.fmul(builder.fsub(whole, offset), columns[v][part]) for part, whole in enumerate(raw)]
                new.append([emit.call("fma", product, scale, old) for product, old in zip(products, total, strict=True)])
            result.append(new)
        return result

    def start(self, values: list[ir.Value], words: list[ir.Value], exponents: list[ir.Value], common: list[ir.Value]) -> list[ir.Value]:
        """Accumulators that hold a vector's `values`; `words` are its dot products, `exponents` those of their terms.

        `common` are the places where neither element is zero: a term that has any counts in emax, even if its products cancel.
        """
        emit, builder = self.emit, self.builder
        top = self.lanes.top_words(values)
        emax = emit.masked(top, 0x7FF00000)
        positives = None
        for word, exponent, places in zip(words, exponents, common, strict=True):
            nonzero = builder.icmp_unsigned("!=", places, emit.constant(self.words, 0))
            emax = emit.call("umax", emax, builder.select(nonzero, exponent, emit.constant(self.words, 0)))
            bit = emit.shifted_right(word, 31)
            positives = bit if positives is None else builder.add(positives, bit)
        if self.tile.marked:
            emax = emit.masked(emax, -(1 << 20))
        negatives = builder.sub(emit.plus(emit.shifted_right(top, 31), TERMS), positives)
        return self.lanes.started(values, emax, negatives)

    def aligned_step(
        self,
        sums: list[list[list[ir.Value]]],
        rows: list[ir.Value],
        scales: list[ir.Value],
        exponents: list[ir.Value],
        nonzero: list[ir.Value],
        step: ir.Value,
    ) -> list[list[list[ir.Value]]]:
        """One step with alignment."""
        tile, emit, builder = self.tile, self.emit, self.builder
        dots = [self.dots(rows, step, term) for term in range(TERMS)]
        started = []
        for row, line in enumerate(sums):
            new = []
            for v, values in enumerate(line):
                of_terms, common = [], []
                for term in range(TERMS):
                    place = self.sum(emit.scaled(step, TERMS), term)
                    offset = self.sum(emit.scaled(place, 4 * tile.columns), 4 * tile.lanes * v)
                    column = emit.load(self.words, self.arguments.exponents_b, offset, 4 * tile.lanes)
                    line_word = emit.broadcast(self.words, exponents[row], emit.scaled(place, 4))
                    of_terms.append(builder.add(column, line_word))
                    if tile.marked:
                        common.append(emit.masked(builder.and_(column, line_word), (1 << tile.group) - 1))
                        continue
                    bits = emit.load(self.words, self.arguments.nonzero_b, offset, 4 * tile.lanes)
                    common.append(builder.and_(bits, emit.broadcast(self.words, nonzero[row], emit.scaled(place, 4))))
                new.append(self.start(values, [dots[term][row][v] for term in range(TERMS)], of_terms, common))
            started.append(new)
        for term in range(TERMS):
            started = self.add_term(started, dots[term], scales, step, term)
        return [[self.lanes.end(parts) for parts in line] for line in started]

    def exact_step(
        self, sums: list[list[list[ir.Value]]], rows: list[ir.Value], scales: list[ir.Value], step: ir.Value
    ) -> list[list[list[ir.Value]]]:
        """One step without."""
        for term in range(self.tile.terms):
            if self.tile.reads_anew:
                sums = [self.row_term(*line, step, term) for line in zip(sums, rows, scales, strict=True)]
            else:
                sums = self.add_term(sums, self.dots(rows, step, term), scales, step, term)
        return [[[self.lanes.kept(total) for total in parts] for parts in line] for line in sums]

    def row_term(self, sums: list[list[ir.Value]], row: ir.Value, scales: ir.Value, step: ir.Value, term: int) -> list[list[ir.Value]]:
        """The sums of one row plus a term, with what is B's read for this row alone."""
        emit, shared = self.emit, self.arguments
        self.arguments = replace(shared, b=emit.opaque(shared.b), starts=emit.opaque(shared.starts), scales_b=emit.opaque(shared.scales_b))
        result = self.add_term([sums], self.dots([row], step, term), [scales], step, term)[0]
        self.arguments = shared
        return result

    def factors(self) -> tuple[list[ir.Value], list[ir.Value]]:
        """Return what sums are multiplied by, and what takes them back."""
        both = self.arguments.factor0, self.arguments.factor1
        inverses = [self.builder.fdiv(ir.Constant(F64, 1.0), factor) for factor in reversed(both)]
        there, back = ([self.emit.splat(self.doubles, factor) for factor in each] for each in (both, inverses))
        return there, back

    def load(self, place: ir.Value, factors: list[ir.Value]) -> list[ir.Value]:
        """A vector of sums."""
        values = self.lanes.load(self.arguments.state, place, factors)
        return self.lanes.with_sticky_bit(values) if self.tile.aligned else values

    def run(self) -> None:
        """All products."""
        first, there_and_back = self.arguments, self.factors()
        with for_range(self.builder, first.products) as products:
            self.arguments = self.product(first, products.index)
            self.product_blocks(*there_and_back)

    def product(self, first: _GroupArguments, number: ir.Value) -> _GroupArguments:
        """The operands of a product."""
        tile, emit, builder = self.tile, self.emit, self.builder
        rows = builder.mul(number, emit.scaled(first.blocks, tile.rows))
        columns = builder.mul(number, emit.scaled(first.steps, tile.columns))
        terms = emit.scaled(columns, tile.terms)
        return replace(
            first,
            a=emit.at(first.a, builder.mul(rows, first.a_stride)),
            scales_a=emit.at(first.scales_a, builder.mul(rows, first.scales_stride)),
            exponents_a=emit.at(first.exponents_a, builder.mul(rows, first.exponents_stride)),
            b=emit.at(first.b, emit.scaled(columns, tile.step)),
            starts=emit.at(first.starts, emit.scaled(terms, 4)),
            scales_b=emit.at(first.scales_b, emit.scaled(terms, 8)),
            exponents_b=emit.at(first.exponents_b, emit.scaled(terms, 4)),
            nonzero_a=emit.at(first.nonzero_a, builder.mul(rows, first.nonzero_stride)),
            nonzero_b=emit.at(first.nonzero_b, emit.scaled(terms, 4)),
            state=emit.at(first.state, emit.scaled(rows, 4 * tile.columns)),
        )

    def product_blocks(self, there: list[ir.Value], back: list[ir.Value]) -> None:
        """All blocks of rows of a product."""
        tile, emit, builder, arguments = self.tile, self.emit, self.builder, self.arguments
        with for_range(builder, arguments.blocks) as blocks:
            numbers = [self.sum(emit.scaled(blocks.index, tile.rows), row) for row in range(tile.rows)]
            rows = [emit.at(arguments.a, builder.mul(number, arguments.a_stride)) for number in numbers]
            scales = [emit.at(arguments.scales_a, builder.mul(number, arguments.scales_stride)) for number in numbers]
            exponents = [emit.at(arguments.exponents_a, builder.mul(number, arguments.exponents_stride)) for number in numbers]
            nonzero = [emit.at(arguments.nonzero_a, builder.mul(number, arguments.nonzero_stride)) for number in numbers]
            places = [
                [self.sum(emit.scaled(number, 4 * tile.columns), 4 * tile.lanes * v) for v in range(tile.vectors)] for number in numbers
            ]
            kept = [Variables(builder, [[self.doubles] * 2] * tile.vectors) for _ in places]
            for variables, line in zip(kept, places, strict=True):
                variables.put([self.load(place, there) for place in line])
            with for_range(builder, arguments.steps) as loop:
                sums = [variables.get() for variables in kept]
                if tile.aligned:
                    sums = self.aligned_step(sums, rows, scales, exponents, nonzero, loop.index)
                else:
                    sums = self.exact_step(sums, rows, scales, loop.index)
                for variables, line in zip(kept, sums, strict=True):
                    variables.put(line)
            for variables, line in zip(kept, places, strict=True):
                for values, place in zip(variables.get(), line, strict=True):
                    self.lanes.store(values, arguments.state, place, back)


def _emit(tile: GroupConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    for argument in arguments[:_POINTERS]:
        argument.add_attribute("noalias")
    _Kernel(tile, builder, _GroupArguments(*arguments)).run()


SLAB = MicroKernel(_emit, _POINTERS, _INTEGERS, _FLOATS, lambda tile: TOWARD_ZERO if tile.aligned else NEAREST)
