"""The kernel for products of a single block and unit: while one is multiplied, the next one is decoded."""

from __future__ import annotations

from functools import partial
from itertools import chain

from llvmlite import ir

from fastmma.kernels.fused.block_kernel import Blocks, emit_all
from fastmma.kernels.fused.block_operands import Emission
from fastmma.kernels.fused.blocks import COLUMNS, ROWS
from fastmma.kernels.fused.strip import Strip, Unit
from fastmma.kernels.llvm.building import alloca_once_value, for_range_slice
from fastmma.kernels.llvm.emit import I8, I64, vector

WRITTEN_AHEAD = 4  # products: the memory of results is asked for, which a store would wait for


class Tiles(Blocks):
    """Emits the loop over products, each of one block and one unit."""

    def run(self) -> None:
        """All products, each of one block and one unit: while one is multiplied, the next one is decoded."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        size = config.block_size + config.left_size + config.right_size
        zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
        early, late = (Strip(config, self.lanes, ir.Constant(I64, first), self.max_sum_exponent) for first in (0, config.strip))
        kept_early, kept_late = early.variables(), late.variables()
        c_row, out_row = ir.Constant(I64, COLUMNS * config.sum_bytes), ir.Constant(I64, COLUMNS * config.sum_bytes)

        def decoded(product: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
            memory = emit.at(arguments.memory, emit.scaled(builder.and_(product, one), size))
            left = emit.at(memory, config.block_size)
            return memory, left, emit.at(left, config.left_size)

        def decode(product: ir.Value, place: ir.Value) -> list[Emission]:
            a, b, _, _ = self.matrices(product)
            emax, left, right = decoded(place)
            emax_emissions = self.emax_emissions(left, right, emax)
            half = len(emax_emissions) // 2
            (row_words,), (*column_bits, column_words) = self.left.words(left), self.right.words(right)
            return [
                self.forget,
                *self.left.emissions(a, left),
                *self.right.emissions(b, right),
                *chain(*column_bits[:-1]),
                *row_words,
                *emax_emissions[:half],
                *column_bits[-1],
                *emax_emissions[half:],
                *column_words,
                lambda: emit.store(builder.zext(self.operands_bad(), I8), emit.at(arguments.bad, product)),
            ]

        def unit_of(strip: Strip, place: ir.Value) -> Unit:
            emax, left, right = (emit.opaque(part) for part in decoded(place))
            return strip.unit(left, right, emax)

        def begin(strip: Strip, product: ir.Value, place: ir.Value) -> list[Emission]:
            """Load and start a strip."""
            c = self.matrices(product)[2]
            unit = unit_of(strip, place)

            def emission(index: int) -> None:
                strip.load(index, c, c_row)
                strip.start(index, unit, 0)

            return [partial(emission, index) for index in range(len(strip.groups))]

        def conclude(strip: Strip, out: ir.Value) -> list[Emission]:
            def emission(index: int) -> None:
                strip.end(index, stored=True)
                strip.store(index, out, out_row)

            return [partial(emission, index) for index in range(len(strip.groups))]

        def again(strip: Strip, place: ir.Value, number: int) -> list[Emission]:
            unit = unit_of(strip, place)

            def emission(index: int) -> None:
                strip.end(index)
                strip.start(index, unit, number)

            return [partial(emission, index) for index in range(len(strip.groups))]

        def multiply(strip: Strip, place: ir.Value, number: int) -> list[Emission]:
            unit = unit_of(strip, place)
            return [partial(strip.multiply, unit, k) for k in config.steps[number]]

        # the loop begins one product early, with zeros in place of a decoded one, whose results nobody reads
        self.clear(emit.at(arguments.memory, size), size)
        builder.store(ir.Constant(self.lanes.words, None), self.max_sum_exponent)
        zeros = ir.Constant(self.lanes.kind, None)
        for kept, strip in ((kept_early, early), (kept_late, late)):
            kept.put([[zeros] * self.lanes.vectors for _ in strip.groups])
        spare = emit.at(arguments.memory, 2 * size)
        previous = alloca_once_value(builder, spare)
        last = builder.sub(arguments.products, one)
        with for_range_slice(builder, ir.Constant(I64, -1), arguments.products, one) as product:
            following = builder.add(product, one)
            following = builder.select(builder.icmp_signed("<", following, last), following, last)
            is_real = builder.icmp_signed(">=", product, zero)
            current = builder.select(is_real, product, zero)
            early.groups = kept_early.get()
            late.groups = kept_late.get()
            out = builder.select(is_real, self.matrices(current)[3], spare)
            next_place = builder.add(product, one)
            decoding = self.prefetches(current) + decode(following, next_place) + begin(early, following, next_place)
            slots = 2 * sum(map(len, config.steps))
            done = slot = 0
            for number, step in enumerate(config.steps):
                first, final = number == 0, number == len(config.steps) - 1
                restarts = conclude(late, builder.load(previous)) + begin(late, current, product) if first else again(late, product, number)
                endings = conclude(early, out) if final else again(early, product, number + 1)
                for strip, work in ((early, restarts), (late, endings)):
                    worked = 0
                    for position, emission in enumerate(multiply(strip, product, number), 1):
                        emission()
                        slot += 1
                        while worked < len(work) and worked * len(step) < len(work) * position * 1.5:
                            work[worked]()
                            worked += 1
                        while done * slots < len(decoding) * slot:
                            decoding[done]()
                            done += 1
                        self.pin(strip)
            builder.store(out, previous)
            kept_early.put(early.groups)
            kept_late.put(late.groups)
            # sums were noted for three products together: it is seldom that any is out of reach
            with builder.if_then(self.sums_bad(builder.load(self.max_sum_exponent)), likely=False):
                before = builder.select(builder.icmp_signed(">", product, zero), builder.sub(product, one), zero)
                for number in (before, current, following):
                    emit.store(ir.Constant(I8, 1), emit.at(arguments.bad, number))
            builder.store(ir.Constant(self.lanes.words, None), self.max_sum_exponent)
        late.groups = kept_late.get()
        emit_all(conclude(late, builder.load(previous)))
        with builder.if_then(self.sums_bad(builder.load(self.max_sum_exponent)), likely=False):
            emit.store(ir.Constant(I8, 1), emit.at(arguments.bad, last))

    def prefetches(self, product: ir.Value) -> list[Emission]:
        """Ask for what will be read after these products, and for the memory of results soon to come."""
        config, arguments, builder = self.config, self.arguments, self.builder
        soon = builder.mul(builder.add(product, ir.Constant(I64, WRITTEN_AHEAD)), arguments.out_stride)
        sizes = (
            (arguments.next_a, arguments.a_stride, ROWS * config.unit * config.a.itemsize),
            (arguments.next_b, arguments.b_stride, COLUMNS * config.unit * config.b.itemsize),
            (arguments.next_c, arguments.c_stride, ROWS * COLUMNS * config.sum_bytes),
        )
        emissions: list[Emission] = []
        for base, stride, size in sizes:
            place = self.emit.at(base, builder.mul(product, stride))
            emissions += [partial(self.emit.prefetch, place, line) for line in range(0, size, 64)]
        place = self.emit.at(arguments.out, soon)
        emissions += [partial(self.emit.prefetch, place, line, written=True) for line in range(0, ROWS * COLUMNS * config.sum_bytes, 64)]
        return emissions

    def clear(self, place: ir.Value, size: int) -> None:
        """Zeros."""
        for offset in range(0, size, 64):
            self.emit.store(ir.Constant(vector(I64, 8), None), place, offset)

    def pin(self, strip: Strip) -> None:
        """Keep what was emitted so far before what is emitted next."""
        pinned = iter(self.emit.pinned([value for group in strip.groups for value in group]))
        strip.groups = [[next(pinned) for _ in group] for group in strip.groups]
