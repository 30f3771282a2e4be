"""The micro-kernel of truncated sums whose A is sparse: an element of A names the row of B that it multiplies.

No two rows of A share a line of B, so that every product loads its own. A step of B for a panel stays in the first cache while all rows
of a piece pass, their sums between memory and registers; a row starts and another ends while the products of a third are added.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from fastmma.kernels.fused.lanes import PanelConfig
from fastmma.kernels.fused.micro_kernel import INTEGERS, POINTERS, EmissionSteps, PanelArguments, Sums, TileEmitter, Values, finish
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import F32, I16, I32, I64, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel


class _Rows(TileEmitter):
    """Emits the loop over rows, for one step of a panel; `values_a` of the operands are the rows' records (`sparse_rows.py`)."""

    def __init__(self, config: PanelConfig, builder: ir.IRBuilder, arguments: PanelArguments) -> None:
        super().__init__(config, builder, arguments)
        self.stored = self.slots = config.terms // 2
        self.words = self.stored * config.value_bytes
        self.offsets = self.words + 4 * self.stored
        self.chosen = self.offsets + 2 * self.stored
        self.record = self.chosen + 2 * 4 * config.sign_bytes

    def record_of(self, row: ir.Value) -> ir.Value:
        """A row's record."""
        return self.emit.opaque(self.emit.at(self.arguments.values_a, self.emit.scaled(row, self.record)))

    def lines(self, base: ir.Value, record: ir.Value, factor: int) -> Iterator[ir.Value]:
        """The lines of B that a row's elements choose, `factor` times as long as those of its exponents."""
        for element in range(self.stored):
            offset = self.builder.zext(self.emit.load(I16, record, self.offsets + 2 * element, 2), I64)
            yield self.emit.at(base, self.emit.scaled(offset, factor))

    def splats(self, kind: ir.VectorType, record: ir.Value, first: int, count: int) -> Iterator[ir.Value]:
        """Elements of a record from byte `first` on, each in every lane; four are read at once, as loads are what there are most of."""
        size = kind.element.width // 8 if isinstance(kind.element, ir.IntType) else self.config.value_bytes
        for element in range(count):
            if element % 4 == 0:
                fours = self.fours(kind, record, first + element * size, size)
            yield self.one_of_four(fours, element % 4)

    def slot(self, row: ir.Value) -> ir.Value:
        """Return where emax and counts of a row lie until it starts, and those of the next row but one after that."""
        return self.emit.at(self.arguments.scratch, self.emit.scaled(self.builder.and_(row, self.emit.index(1)), 2 * self.config.panel))

    def place(self, row: ir.Value, group: int) -> ir.Value:
        """Return where sums of a row lie."""
        return self.sum(self.emit.scaled(row, 4 * self.config.panel), 4 * group * self.config.lanes)

    def exponents(self, row: ir.Value) -> EmissionSteps:
        """The emax bytes of a row, and the counts of its negative products, to memory; pauses after each element and each byte of signs."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        four = vector(I32, config.panel // 4)
        record = self.record_of(row)
        emax = self.lowest_emax(1)
        words = self.splats(four, record, self.words, self.stored)
        for line, word in zip(self.lines(arguments.exponents_b, record, 1), words, strict=True):
            column = emit.load(self.bytes, line, 0, config.panel)
            if config.added:
                found = emit.cast(builder.add(word, emit.cast(column, four)), self.bytes)
            else:
                found = emit.call("usub.sat", emit.cast(word, self.bytes), column)
            emax = yield [emit.call("umax", emax[0], found)]
        count = emit.constant(self.bytes, 0)
        signs = list(self.splats(four, record, self.chosen, 2 * config.sign_bytes))
        for part, (chosen, minus) in enumerate(zip(signs[: config.sign_bytes], signs[config.sign_bytes :], strict=True)):
            column = emit.cast(emit.load(self.bytes, arguments.signs_b, part * config.panel, config.panel), four)
            negative = builder.xor(builder.and_(column, chosen), minus)
            (count,) = yield [builder.add(count, emit.call("ctpop", emit.cast(negative, self.bytes)))]
        (found,) = self.of_chain(emax)
        slot = self.slot(row)
        emit.store(found, slot, 0, config.panel)
        emit.store(count, slot, config.panel, config.panel)
        if not config.single:
            place = emit.scaled(row, config.panel)
            seen = emit.load(self.bytes, arguments.min_emax, place, config.panel)
            emit.store(emit.call("umin", seen, found), arguments.min_emax, place, config.panel)
        yield [found]

    def loaded(self, row: ir.Value, group: int) -> Values:
        """The sums of a group of a row, in memory vector after vector: those of f64 hold columns in an order of their own."""
        emit, config = self.emit, self.config
        if config.single:
            return self.lanes.load(self.arguments.state, self.place(row, group))
        half = vector(F32, config.lanes // 2)
        place = emit.at(self.arguments.state, self.place(row, group))
        return [self.builder.fpext(emit.load(half, place, part, 2 * config.lanes), self.lanes.kind) for part in (0, 2 * config.lanes)]

    def start_of(self, row: ir.Value, group: int, lines: Values) -> Values:
        """The accumulators of a group of a row, from the `lines` of its emax bytes and counts."""
        config, emit = self.config, self.emit
        columns = range(group * config.lanes, (group + 1) * config.lanes)
        emax, negatives = (emit.widened(emit.shuffle(line, line, columns)) for line in lines)
        return self.lanes.start(self.lanes.with_sticky_bit(self.loaded(row, group)), emax, negatives, self.max_sum_exponent)

    def found(self, row: ir.Value) -> Values:
        """The lines of emax bytes and counts of a row."""
        slot = self.slot(row)
        return self.emit.pinned([self.emit.load(self.bytes, slot, part, self.config.panel) for part in (0, self.config.panel)])

    def end_of(self, sums: Values, row: ir.Value, group: int) -> None:
        """Results of a group of a row to memory."""
        emit, config, place = self.emit, self.config, self.place(row, group)
        if config.single:
            self.lanes.store(self.lanes.end(sums), self.arguments.state, place)
            return
        # what is stored as f32 is rounded then, toward zero as well
        for part, total in enumerate(self.lanes.end(sums, whole=config.keep_bits == 23)):
            half = self.builder.fptrunc(total, vector(F32, config.lanes // 2))
            emit.store(half, self.arguments.state, self.sum(place, 2 * config.lanes * part), 2 * config.lanes)

    def turned(self, sums: Sums, ended: ir.Value, started: ir.Value) -> EmissionSteps:
        """Put the start of a row in the place of another's sums, which are `ended`; pauses after each group."""
        lines = self.found(started)
        for group in range(self.config.groups):
            self.end_of(sums[group], ended, group)
            sums[group] = yield self.start_of(started, group, lines)

    def products(self, sums: Sums, row: ir.Value) -> EmissionSteps:
        """The FMA chains of a row, in place; pauses after each element."""
        config, emit, kind = self.config, self.emit, self.lanes.kind
        record = self.record_of(row)
        for line, factor in zip(
            self.lines(self.arguments.values_b, record, config.value_bytes), self.splats(kind, record, 0, self.stored), strict=True
        ):
            for group, vectors in enumerate(sums):
                for number, total in enumerate(vectors):
                    place = (group * self.lanes.vectors + number) * config.vector_bytes
                    vectors[number] = emit.call("fma", factor, emit.load(kind, line, place, config.vector_bytes), total)
            flat = iter((yield [value for vectors in sums for value in vectors]))
            sums[:] = [[next(flat) for _ in vectors] for vectors in sums]

    def run(self) -> None:
        """All rows, two in a pass."""
        emit, builder = self.emit, self.builder
        groups = range(self.config.groups)
        first = emit.index(0)
        finish(self.exponents(first))
        lines = self.found(first)
        kept_early = self.kept([self.start_of(first, group, lines) for group in groups])
        kept_late = self.kept([[emit.constant(self.lanes.kind, 0.0)] * self.lanes.vectors for _ in groups])
        for row in (1, 2):
            finish(self.exponents(emit.index(row)))
        with for_range(builder, self.arguments.blocks) as loop:
            early, late = kept_early.get(), kept_late.get()
            row = emit.scaled(loop.index, 2)
            self.phase(early, late, row)
            self.phase(late, early, self.sum(row, 1))
            kept_early.put(early)
            kept_late.put(late)
        last = self.sum(emit.scaled(self.arguments.blocks, 2), -1)
        for group, sums in enumerate(kept_late.get()):
            self.end_of(sums, last, group)

    def phase(self, sums: Sums, others: Sums, row: ir.Value) -> None:
        """Products of a row, while the one before it ends, the next one starts, and exponents of a later one are added."""
        record = self.record_of(self.sum(row, _PREFETCHED))
        for line in range(0, self.record, 64):
            self.emit.prefetch(record, line)
        self.interleaved(
            (self.products(sums, row), self.stored),
            (self.turned(others, self.sum(row, -1), self.sum(row, 1)), len(others)),
            (self.exponents(self.sum(row, 3)), self.stored + self.config.sign_bytes + 1),
        )


def _emit(config: PanelConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    for argument in arguments[:POINTERS]:
        argument.add_attribute("noalias")
    _Rows(config, builder, PanelArguments(*arguments)).run()


SPARSE = MicroKernel(_emit, POINTERS, INTEGERS)
_PREFETCHED = 16  # rows ahead of the one whose products are added, whose records come from a far cache
ROWS_AHEAD = 3  # rows after the last one whose records are read, and whose sums and emax bytes have a place in memory
