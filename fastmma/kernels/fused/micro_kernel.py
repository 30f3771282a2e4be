"""The micro-kernel of the fused dot-product-add: truncated sums as plain FMA chains under round toward zero.

B is packed as b (1 + 2**-t). An accumulator starts at 1.5 * 2**(p + emax - align_bits), p being the lane's fraction bits, plus the
number of negative terms in its last place. It stays positive, so each FMA floors its product, and floor(p') = trunc(p) - [p < 0] for
every product, exact or not. emax comes from unsigned bytes: a sum and a maximum per product, a whole panel of columns in one vector;
a saturating difference, which takes the place of an FMA, where exponents spread too far for sums of bytes.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from fastmma.kernels.fused.lanes import ColumnLanes, PanelConfig
from fastmma.kernels.llvm.building import alloca_once, for_range
from fastmma.kernels.llvm.emit import I8, I32, Emitter, Variables, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel


@dataclass(frozen=True)
class PanelArguments:
    """The micro-kernel's arguments: byte pointers, then 64-bit integers; strides are bytes from block to block of A's rows."""

    values_a: ir.Value
    exponents_a: ir.Value
    signs_a: ir.Value
    values_b: ir.Value
    exponents_b: ir.Value
    signs_b: ir.Value
    state: ir.Value  # float32 [row][panel]
    scratch: ir.Value  # emax and counts of two blocks of rows, [2][steps + 1][row][2][panel] bytes
    min_emax: ir.Value  # smallest emax byte so far, [row][panel]
    max_sum_exponent: ir.Value  # largest exponent field of a result so far, [block of rows][lane] words
    values_stride: ir.Value
    exponents_stride: ir.Value
    signs_stride: ir.Value
    blocks: ir.Value  # of rows
    steps: ir.Value
    surplus: ir.Value  # what sums of exponent bytes hold above emax bytes ...
    deficit: ir.Value  # ... or below them


POINTERS, INTEGERS = 10, 7
UNIT = 8  # adjacent k of a packed row of A; then come those of the next row of the block

Values = list[ir.Value]
Sums = list[Values]  # accumulators of a subtile: cell, vector
EmissionSteps = Generator[Values, Values, None]  # emits a piece, yields what it made, takes back the same values


class Cell(NamedTuple):
    """A row of a group of columns."""

    row: int
    group: int


Cells = list[Cell]


def subtiles(config: PanelConfig) -> tuple[Cells, Cells]:
    """The halves of a tile that are half a step apart: of rows, so that an element of A is read for all columns, if they are even."""
    cells = [Cell(row, group) for row in range(config.rows) for group in range(config.groups)]
    if config.rows % 2:
        return [cell for cell in cells if 2 * cell.group < config.groups], [cell for cell in cells if 2 * cell.group >= config.groups]
    return cells[: len(cells) // 2], cells[len(cells) // 2 :]


def advanced(work: EmissionSteps, values: Values | None) -> Values:
    """Emit the next piece."""
    return next(work) if values is None else work.send(values)


def finish(work: EmissionSteps, values: Values | None = None) -> None:
    """Emit all that is left."""
    with suppress(StopIteration):
        while True:
            values = advanced(work, values)


class TileEmitter:
    """Emits the loops over blocks of rows, tiles of columns and steps."""

    def __init__(self, config: PanelConfig, builder: ir.IRBuilder, arguments: PanelArguments) -> None:
        self.config, self.builder, self.arguments = config, builder, arguments
        self.emit = Emitter(builder)
        self.sum = self.emit.sum
        self.lanes = ColumnLanes(config, self.emit)
        self.bytes = vector(I8, config.panel)
        self.tiles = config.panel // config.tile
        self.slots = config.terms
        self.in_fours = config.single and config.vector_bytes == 64  # where pipes and registers are free for it
        self.max_sum_exponent = alloca_once(builder, self.lanes.words)

    def scratch_of(self, block: ir.Value) -> ir.Value:
        """The half of the scratch that a block of rows uses."""
        size = self.emit.scaled(self.sum(self.arguments.steps, 1), 2 * self.config.rows * self.config.panel)
        return self.emit.at(self.arguments.scratch, self.builder.mul(self.builder.and_(block, self.emit.index(1)), size))

    def step_of_block(self, step: ir.Value) -> ir.Value:
        """Return where in a block of A a step begins."""
        terms, rows = self.config.terms, self.config.rows
        if terms >= UNIT:
            return self.emit.scaled(step, terms * rows)
        parts = self.emit.index(UNIT // terms)
        unit, part = self.builder.udiv(step, parts), self.builder.urem(step, parts)
        return self.sum(self.emit.scaled(unit, UNIT * rows), self.emit.scaled(part, terms))

    def element(self, k: int, row: int) -> int:
        """Return where in a step of a block of A an element lies."""
        return (k // UNIT * self.config.rows + row) * UNIT + k % UNIT

    def emax_of(self, emax: Values, block: ir.Value, first_row: ir.Value, step: ir.Value, part: range) -> EmissionSteps:
        """emax bytes (of the products) of some rows of a block in a `part` of a step's k, in place; pauses after each k."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        four = vector(I32, config.panel // 4)
        place = self.sum(
            builder.mul(block, arguments.exponents_stride),
            emit.scaled(self.step_of_block(step), 4),
            emit.scaled(first_row, 4 * UNIT),
        )
        elements = emit.opaque(emit.at(arguments.exponents_a, place))
        columns = emit.opaque(emit.at(arguments.exponents_b, emit.scaled(step, config.terms * config.panel)))
        for k in part:
            column = emit.load(self.bytes, columns, k * config.panel, config.panel)
            for row in range(len(emax)):
                element = emit.broadcast(four, elements, 4 * self.element(k, row))
                if config.added:  # four sums in a word, none of which carries
                    found = emit.cast(builder.add(element, emit.cast(column, four)), self.bytes)
                else:
                    found = emit.call("usub.sat", emit.cast(element, self.bytes), column)
                emax[row] = emit.call("umax", emax[row], found)
            emax[:] = yield list(emax)

    def keep_emax_and_counts(self, emax: Values, scratch: ir.Value, block: ir.Value, first_row: ir.Value, step: ir.Value) -> None:
        """Write emax bytes of some rows of a block in a step, and the counts of their negative products."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        four = vector(I32, config.panel // 4)
        signs = emit.scaled(step, config.sign_bytes)
        place = self.sum(builder.mul(block, arguments.signs_stride), emit.scaled(self.sum(emit.scaled(signs, config.rows), first_row), 4))
        negatives = emit.at(arguments.signs_a, place)
        targets = emit.at(scratch, emit.scaled(self.sum(emit.scaled(step, config.rows), first_row), 2 * config.panel))
        min_emax = emit.at(arguments.min_emax, emit.scaled(self.sum(emit.scaled(block, config.rows), first_row), config.panel))
        for row, found in enumerate(self.of_chain(emax)):
            count = None
            for part in range(config.sign_bytes):
                column = emit.load(self.bytes, arguments.signs_b, emit.scaled(self.sum(signs, part), config.panel), config.panel)
                element = emit.cast(emit.broadcast(four, negatives, 4 * (part * config.rows + row)), self.bytes)
                ones = emit.call("ctpop", builder.xor(element, column))
                count = ones if count is None else builder.add(count, ones)
            emit.store(found, targets, 2 * row * config.panel, config.panel)
            emit.store(count, targets, (2 * row + 1) * config.panel, config.panel)
            if not config.single and not config.half:
                seen = emit.load(self.bytes, min_emax, row * config.panel, config.panel)
                emit.store(emit.call("umin", seen, found), min_emax, row * config.panel, config.panel)

    def lowest_emax(self, rows: int) -> Values:
        """Return what emax bytes of so many rows start from."""
        return [self.emit.constant(self.bytes, 0 if self.config.added else self.config.floor)] * rows

    def of_chain(self, emax: Values) -> Values:
        """Sums of exponent bytes as emax bytes."""
        config, emit = self.config, self.emit
        if not config.added:
            return emax
        surplus, deficit = (
            emit.splat(self.bytes, self.builder.trunc(each, I8)) for each in (self.arguments.surplus, self.arguments.deficit)
        )
        bytes_ = [emit.call("uadd.sat", emit.call("usub.sat", each, surplus), deficit) for each in emax]
        return [emit.call("umax", each, emit.constant(self.bytes, config.floor)) for each in bytes_] if config.floor else bytes_

    def restart(self, sums: Sums, cells: Cells, scratch: ir.Value, step: ir.Value, column: ir.Value, ended: bool) -> EmissionSteps:
        """End one subtile's step, unless it has `ended`, and start the next one, in place; pauses after each cell."""
        config, emit = self.config, self.emit
        group = vector(I8, config.lanes)
        base = emit.opaque(emit.at(scratch, self.sum(emit.scaled(step, 2 * config.rows * config.panel), column)))
        for number, cell in enumerate(cells):
            place = 2 * cell.row * config.panel + cell.group * config.lanes
            emax = emit.widened(emit.load(group, base, place, config.lanes))
            negatives = emit.widened(emit.load(group, base, place + config.panel, config.lanes))
            values = sums[number] if ended else self.lanes.end(sums[number])
            sums[number] = yield self.lanes.start(values, emax, negatives, self.max_sum_exponent)

    def ended(self, sums: Sums) -> EmissionSteps:
        """End one subtile's last step, in place; pauses after each cell."""
        for number in range(len(sums)):
            sums[number] = yield self.lanes.end(sums[number])

    def fours(self, kind: ir.VectorType, base: ir.Value, place: int, size: int) -> ir.Value:
        """Four adjacent elements of a size in memory, again and again: one load for four broadcasts."""
        four = self.emit.load(vector(kind.element, 4), base, place, size)
        (repeated,) = self.emit.pinned([self.emit.shuffle(four, four, [*range(4)] * (kind.count // 4))])
        return repeated

    def one_of_four(self, fours: ir.Value, number: int) -> ir.Value:
        """One of them in every lane."""
        return self.emit.shuffle(fours, fours, [lane // 4 * 4 + number for lane in range(fours.type.count)])

    def chain_products(self, sums: Sums, cells: Cells, elements: ir.Value, columns: ir.Value, step: ir.Value) -> EmissionSteps:
        """One subtile's FMA chains of one step, in place; pauses after each k."""
        config, emit, arguments = self.config, self.emit, self.arguments
        group, line = config.lanes * config.value_bytes, config.tile * config.value_bytes
        kind = self.lanes.kind
        lines = emit.opaque(emit.at(arguments.values_b, self.sum(columns, emit.scaled(step, config.terms * line))))
        elements = emit.opaque(emit.at(elements, emit.scaled(self.step_of_block(step), config.value_bytes)))
        rows, groups = (sorted(set(each)) for each in zip(*cells, strict=True))
        numbers = {cell: number for number, cell in enumerate(cells)}
        fours: dict[int, ir.Value] = {}  # by rows
        for k in range(config.terms):
            loaded = {
                each: [
                    emit.load(kind, lines, line * k + each * group + number * config.vector_bytes, config.vector_bytes)
                    for number in range(self.lanes.vectors)
                ]
                for each in groups
            }
            for row in rows:
                place = self.element(k, row) * config.value_bytes
                if not self.in_fours:
                    element = emit.broadcast(kind, elements, place)
                else:
                    if k % 4 == 0:
                        fours[row] = self.fours(kind, elements, place, config.value_bytes)
                    element = self.one_of_four(fours[row], k % 4)
                for each in groups:
                    number = numbers[Cell(row, each)]
                    sums[number] = [emit.call("fma", element, b, total) for b, total in zip(loaded[each], sums[number], strict=True)]
            flat = iter((yield [value for vectors in sums for value in vectors]))
            sums[:] = [[next(flat) for _ in vectors] for vectors in sums]

    def interleaved(self, *works: tuple[EmissionSteps, int]) -> None:
        """Run several works of so many pieces side by side, evenly mixed: the CPU overlaps only what is near in the program."""
        slots = self.slots
        held: list[Values | None] = [None] * len(works)
        done = [0] * len(works)
        for slot in range(1, slots + 1):
            produced: dict[int, Values] = {}
            for number, (work, pieces) in enumerate(works):
                while done[number] * slots < pieces * slot:
                    held[number] = produced[number] = advanced(work, held[number])
                    done[number] += 1
            pinned = iter(self.emit.pinned([value for values in produced.values() for value in values]))
            for number, values in produced.items():
                held[number] = [next(pinned) for _ in values]
        for (work, _), last in zip(works, held, strict=True):
            finish(work, last)

    def run(self) -> None:
        """All blocks of rows of a slab."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        with for_range(builder, arguments.steps) as steps, for_range(builder, emit.index(config.rows)) as rows:
            first, emax = emit.index(0), self.lowest_emax(1)
            finish(self.emax_of(emax, first, rows.index, steps.index, range(config.terms)))
            self.keep_emax_and_counts(emax, self.scratch_of(first), first, rows.index, steps.index)
        for block in (0, 1):
            # a step without terms, from whose start the results are read back
            for place in range(0, 2 * config.rows * config.panel, config.panel):
                last = emit.scaled(arguments.steps, 2 * config.rows * config.panel)
                emit.store(emit.constant(self.bytes, 0), self.scratch_of(emit.index(block)), self.sum(last, place), config.panel)
        with for_range(builder, arguments.blocks) as blocks:
            place = emit.scaled(blocks.index, 4 * config.lanes)
            if config.half:
                builder.store(emit.load(self.lanes.words, arguments.max_sum_exponent, place, config.vector_bytes), self.max_sum_exponent)
            with for_range(builder, emit.index(self.tiles)) as tiles:
                self.tile(blocks.index, tiles.index)
            if config.half:
                emit.store(builder.load(self.max_sum_exponent), arguments.max_sum_exponent, place, config.vector_bytes)

    def tile(self, block: ir.Value, tile: ir.Value) -> None:
        """All steps of one tile, and meanwhile the exponents of its share of rows of the next block."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        scratch = self.scratch_of(block)
        column = emit.scaled(tile, config.tile)
        state = emit.at(arguments.state, emit.scaled(self.sum(emit.scaled(block, config.rows * config.panel), column), 4))
        halves = subtiles(config)
        places = [[emit.index(4 * (cell.row * config.panel + cell.group * config.lanes)) for cell in cells] for cells in halves]
        early, late = ([self.lanes.with_sticky_bit(self.lanes.load(state, place)) for place in part] for part in places)
        finish(self.restart(early, halves[0], scratch, emit.index(0), column, True))
        finish(self.restart(late, halves[1], scratch, arguments.steps, column, True))
        kept_early, kept_late = self.kept(early), self.kept(late)
        peeled = int(config.align_bits < config.keep_bits)  # the start of a step may take bits off a result
        with for_range(builder, self.sum(arguments.steps, -peeled)) as loop:
            self.step(block, tile, loop.index, kept_early, kept_late, last=False)
        if peeled:
            self.step(block, tile, self.sum(arguments.steps, -1), kept_early, kept_late, last=True)
        for kept, part, ended in zip((kept_early, kept_late), places, (bool(peeled), False), strict=True):
            for sums, place in zip(kept.get(), part, strict=True):
                self.lanes.store(sums if ended else self.lanes.end(sums), state, place)

    def step(self, block: ir.Value, tile: ir.Value, step: ir.Value, kept_early: Variables, kept_late: Variables, *, last: bool) -> None:
        """A step of one tile, and the start of the next one for its early half, unless this is the `last` one."""
        config, emit, arguments = self.config, self.emit, self.arguments
        scratch, next_scratch = self.scratch_of(block), self.scratch_of(self.sum(block, 1))
        elements = emit.at(arguments.values_a, self.builder.mul(block, arguments.values_stride))
        column = emit.scaled(tile, config.tile)
        columns = emit.scaled(tile, config.tile * config.depth * config.value_bytes)
        early_cells, late_cells = subtiles(config)
        early, late = kept_early.get(), kept_late.get()
        self.prefetch_next(block, self.sum(self.builder.mul(tile, arguments.steps), step))
        rows, first_row = self.share_of_rows(tile)
        emax, next_block, half = self.lowest_emax(rows), self.sum(block, 1), config.terms // 2
        self.interleaved(
            (self.chain_products(early, early_cells, elements, columns, step), config.terms),
            (self.restart(late, late_cells, scratch, step, column, False), len(late)),
            (self.emax_of(emax, next_block, first_row, step, range(half)), half),
        )
        self.interleaved(
            (self.chain_products(late, late_cells, elements, columns, step), config.terms),
            (self.ended(early) if last else self.restart(early, early_cells, scratch, self.sum(step, 1), column, False), len(early)),
            (self.emax_of(emax, next_block, first_row, step, range(half, config.terms)), half),
        )
        self.keep_emax_and_counts(emax, next_scratch, next_block, first_row, step)
        kept_early.put(early)
        kept_late.put(late)

    def kept(self, subtile: Sums) -> Variables:
        """Variables that hold a subtile."""
        variables = Variables(self.builder, [[value.type for value in vectors] for vectors in subtile])
        variables.put(subtile)
        return variables

    def prefetch_next(self, block: ir.Value, iteration: ir.Value) -> None:
        """Ask for this iteration's share of the lines that the next block of rows reads; they come from a far cache."""
        config, emit, arguments = self.config, self.emit, self.arguments
        for base, stride, size, ahead in (
            (arguments.values_a, arguments.values_stride, config.rows * config.value_bytes * config.terms, 1),
            (arguments.exponents_a, arguments.exponents_stride, 4 * config.rows * config.terms, 2),
            (arguments.state, emit.index(4 * config.rows * config.panel), 64 * self.tiles, 1),
        ):
            share = size // self.tiles
            first = emit.at(base, self.sum(self.builder.mul(self.sum(block, ahead), stride), emit.scaled(iteration, share)))
            for line in range(0, share, 64):
                emit.prefetch(first, line)

    def share_of_rows(self, tile: ir.Value) -> tuple[int, ir.Value]:
        """Return how many rows' exponents a tile computes for the next block, and the first; shares overlap when rows do not divide."""
        config, builder = self.config, self.builder
        share = -(-config.rows // self.tiles)
        first = self.emit.scaled(tile, share)
        if share * self.tiles != config.rows:
            last = self.emit.index(config.rows - share)
            first = builder.select(builder.icmp_signed("<", first, last), first, last)
        return share, first


def _emit(config: PanelConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    for argument in arguments[:POINTERS]:
        argument.add_attribute("noalias")
    TileEmitter(config, builder, PanelArguments(*arguments)).run()


SLAB = MicroKernel(_emit, POINTERS, INTEGERS)
