"""The kernel for few rows of A: B is read where the caller has it, and decoded in registers for all rows of a block.

The sums are those of `fastmma.kernels.fused.micro_kernel`: FMA chains under round toward zero from starts that count the negative
products. A, not B, is packed times 1 + 2**-t, with tiny values for its zeros. Zeros of B stay zeros, and are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from fastmma.kernels.fused.lanes import ColumnLanes
from fastmma.kernels.fused.thin_config import WORD, ThinConfig
from fastmma.kernels.fused.thin_operands import ZERO, Reader
from fastmma.kernels.llvm.building import alloca_once, for_range, for_range_slice
from fastmma.kernels.llvm.emit import I16, I32, Emitter, Variables, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel


@dataclass(frozen=True)
class ThinArguments:
    """The kernel's arguments: byte pointers, then 64-bit integers; strides in bytes."""

    b: ir.Value
    tail: ir.Value  # the last step of B where there are not enough k for one, filled up with zeros, laid out alike
    values: ir.Value  # of A: float64 [step][block][k][row]
    exponents: ir.Value  # words, each twice
    signs: ir.Value  # words, each twice: [step][block][word][row]
    state: ir.Value  # float32 [row][column]
    min_emax: ir.Value  # words [row][column]
    largest: ir.Value  # words [column]
    max_sum_exponent: ir.Value  # largest exponent fields of sums, a vector
    scratch: ir.Value  # codes of a step of a tile, [k][column]
    stride: ir.Value  # from k to k of B, or from column to column if it lies along k
    tail_stride: ir.Value
    state_stride: ir.Value  # from row to row of the state
    tiles: ir.Value
    blocks: ir.Value  # of rows
    whole: ir.Value  # steps that are all in B
    steps: ir.Value
    chunk: ir.Value  # steps between two tiles


_POINTERS, _INTEGERS = 10, 8

Grid = list[list[ir.Value]]  # by group, then by row or vector


class _Lanes(ColumnLanes):
    """Columns in ascending order; words of a step are put where the lanes of sums find them."""

    def __init__(self, config: ThinConfig, emit: Emitter) -> None:
        super().__init__(config, emit)
        self._places = [self.order.index(lane) for lane in range(config.lanes)]
        self.order = tuple(range(config.lanes))

    def ordered(self, words: ir.Value) -> ir.Value:
        """Words of 16 bits as those of 32 bits that `start` takes."""
        return self.emit.widened(self.emit.shuffle(words, words, self._places))


class _Thin:
    """Emits the loops over chunks of steps, tiles of columns, blocks of rows and steps."""

    def __init__(self, config: ThinConfig, builder: ir.IRBuilder, arguments: ThinArguments) -> None:
        self.config, self.builder, self.arguments = config, builder, arguments
        self.emit = Emitter(builder)
        self.lanes = _Lanes(config, self.emit)
        self.words = vector(I16, config.lanes)
        self.reader = Reader(config, self.emit, arguments.scratch)
        self.max_sum_exponent = alloca_once(builder, self.lanes.words)

    def run(self) -> None:
        """All of the product."""
        emit, builder, arguments = self.emit, self.builder, self.arguments
        builder.store(emit.load(self.lanes.words, arguments.max_sum_exponent), self.max_sum_exponent)
        with for_range_slice(builder, emit.index(0), arguments.steps, arguments.chunk) as first:
            last = emit.sum(first, arguments.chunk)
            last = builder.select(builder.icmp_signed("<", last, arguments.steps), last, arguments.steps)
            with for_range(builder, arguments.tiles) as tiles, for_range(builder, arguments.blocks) as blocks:
                self.tile(tiles.index, blocks.index, first, last)
        emit.store(builder.load(self.max_sum_exponent), arguments.max_sum_exponent)

    def tile(self, tile: ir.Value, block: ir.Value, first: ir.Value, last: ir.Value) -> None:
        """Steps first to last of a tile and a block of rows."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        column = emit.scaled(tile, config.tile)
        row = builder.mul(emit.scaled(block, config.rows), arguments.state_stride)
        places = [
            [
                emit.sum(
                    row, builder.mul(emit.index(number), arguments.state_stride), emit.scaled(emit.sum(column, group * config.lanes), 4)
                )
                for number in range(config.rows)
            ]
            for group in range(config.groups)
        ]
        flat = [place for each in places for place in each]
        sums = Variables(builder, [[self.lanes.kind] * 2] * len(flat))
        sums.put([self.lanes.with_sticky_bit(self.lanes.load(arguments.state, place)) for place in flat])
        noted = self._noted(column, flat)
        notes = Variables(builder, [[self.words] * len(noted)])
        notes.put([[emit.load(self.words, base, place) for base, place in noted]])
        with for_range_slice(builder, first, last, emit.index(1)) as step:
            sums.put(self.step(tile, block, step, sums.get(), notes))
        for values, place in zip(sums.get(), flat, strict=True):
            self.lanes.store(values, arguments.state, place)
        for value, (base, place) in zip(notes.get()[0], noted, strict=True):
            emit.store(value, base, place)

    def _noted(self, column: ir.Value, places: Sequence[ir.Value]) -> list[tuple[ir.Value, ir.Value]]:
        """Return where the largest magnitudes of columns are kept, and the lowest emax of sums, at half of a sum's offset."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        size = 2 * config.lanes
        found = [(arguments.largest, emit.sum(emit.scaled(column, 2), group * size)) for group in range(config.groups)]
        if config.bounded:
            found += [(arguments.min_emax, builder.lshr(place, emit.index(1))) for place in places]
        return found

    def step(self, tile: ir.Value, block: ir.Value, step: ir.Value, before: Grid, notes: Variables) -> Grid:
        """One step from the sums `before`, one after the other by group, then by row."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        inside = builder.icmp_signed("<", step, arguments.whole)
        stride = builder.select(inside, arguments.stride, arguments.tail_stride)
        line = emit.scaled(tile, config.tile * config.element.itemsize)  # along a row of B
        if config.along:
            line = builder.mul(emit.scaled(tile, config.tile), stride)
            first = emit.scaled(step, config.terms * config.element.itemsize)
        else:
            first = builder.mul(emit.scaled(step, config.terms), stride)
        source = builder.select(inside, emit.at(arguments.b, first), arguments.tail)
        source, stride = self.reader.asked(emit.at(source, line), stride)
        number = emit.sum(builder.mul(step, arguments.blocks), block)
        exponents = emit.opaque(emit.at(arguments.exponents, emit.scaled(number, config.terms * config.rows * 4)))
        signs = emit.opaque(emit.at(arguments.signs, emit.scaled(number, config.words * config.rows * 4)))
        values = emit.opaque(emit.at(arguments.values, emit.scaled(number, config.terms * config.rows * 8)))
        starts = self.starts(self.reader.lines(source, stride, config.terms), exponents, signs, notes)
        sums = [self.lanes.start(held, *start, self.max_sum_exponent) for held, start in zip(before, starts, strict=True)]
        kept = emit.opaque(arguments.scratch)
        for k, place in enumerate(self.reader.lines(kept, emit.index(config.tile * config.element.itemsize), config.terms)):
            columns = [self.reader.values(place, group) for group in range(config.groups)]
            for row in range(config.rows):
                element = emit.broadcast(self.lanes.kind, values, (k * config.rows + row) * 8)
                for group, parts in enumerate(columns):
                    held = sums[group * config.rows + row]
                    held[:] = [emit.call("fma", element, part, total) for part, total in zip(parts, held, strict=True)]
        return [self.lanes.end(held) for held in sums]

    def starts(self, rows: Sequence[ir.Value], exponents: ir.Value, signs: ir.Value, notes: Variables) -> list[tuple[ir.Value, ir.Value]]:
        """emax and the number of negative products of every sum, by group, then by row, as words that `Lanes.start` takes."""
        config, emit, builder = self.config, self.emit, self.builder
        (noted,) = notes.get()
        zero = ir.Constant(self.words, None)
        emax = [[emit.constant(self.words, 2 * ZERO)] * config.rows for _ in range(config.groups)]
        negative, nonzero = ([[zero] * config.words for _ in range(config.groups)] for _ in range(2))
        for k in range(config.terms):
            fields = []
            word, bit = k // WORD, 1 << k % WORD
            for group in range(config.groups):
                field, largest, sign, real = self.reader.parts(self.reader.codes(rows[k], group, k), k % WORD)
                noted[group] = emit.call("umax", noted[group], largest)
                negative[group][word] = builder.or_(negative[group][word], sign)
                there = builder.select(real, emit.constant(self.words, bit), zero)
                nonzero[group][word] = builder.or_(nonzero[group][word], there)
                fields.append(field)
            for row in range(config.rows):
                place = 4 * (k * config.rows + row)
                twice = emit.broadcast(vector(I32, config.lanes // 2), exponents, place)
                left = emit.cast(twice, self.words)
                for group, field in enumerate(fields):
                    emax[group][row] = emit.call("smax", emax[group][row], builder.add(left, field))
        starts = []
        for group in range(config.groups):
            for row in range(config.rows):
                count = None
                for word in range(config.words):
                    twice = emit.broadcast(vector(I32, config.lanes // 2), signs, 4 * (word * config.rows + row))
                    differ = builder.xor(emit.cast(twice, self.words), negative[group][word])
                    ones = emit.call("ctpop", builder.and_(differ, nonzero[group][word]))
                    count = ones if count is None else builder.add(count, ones)
                highest = emax[group][row]
                if config.bounded:
                    place = config.groups + group * config.rows + row
                    noted[place] = emit.call("umin", noted[place], highest)  # where all products are zeros, it is negative
                highest = emit.call("smax", highest, emit.constant(self.words, config.floor))
                starts.append((self.lanes.ordered(highest), self.lanes.ordered(count)))
        notes.put([noted])
        return starts


def _emit(config: ThinConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    for argument in arguments[:_POINTERS]:
        argument.add_attribute("noalias")
    _Thin(config, builder, ThinArguments(*arguments)).run()


KERNEL = MicroKernel(_emit, _POINTERS, _INTEGERS)
