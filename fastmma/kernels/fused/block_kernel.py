"""The kernel of the fused dot-product-add for blocks of 16 rows by 8 columns: whole tiles, decoded, multiplied and written in one pass.

The sums are those of `fastmma.kernels.fused.micro_kernel`: FMA chains under round toward zero from starts that count the negative
products. Here zeros stay zeros, and products of zeros are not counted: the words of signs tell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from llvmlite import ir

from fastmma.kernels.fused.block_operands import LINE, Emission, LeftDecoder, RightDecoder
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockConfig
from fastmma.kernels.fused.byte_operands import LeftBytes, RightBytes
from fastmma.kernels.fused.lanes import Lanes
from fastmma.kernels.fused.strip import Strip
from fastmma.kernels.llvm.building import alloca_once, for_range
from fastmma.kernels.llvm.emit import I8, I32, I64, Emitter, vector


@dataclass(frozen=True)
class BlockArguments:
    """The kernel's arguments: byte pointers, then 64-bit integers; strides in bytes, of c and out also from row to row.

    A's codes are [product][block of rows][unit][row][k], those of B [product][panel of columns][unit][k][column].
    """

    a: ir.Value
    b: ir.Value
    c: ir.Value
    out: ir.Value
    bad: ir.Value  # a byte a product: 1 where the result is wrong
    memory: ir.Value
    next_a: ir.Value  # what will be read after these products, at the same strides: to be asked for while they are computed
    next_b: ir.Value
    next_c: ir.Value
    products: ir.Value
    blocks: ir.Value
    panels: ir.Value
    units: ir.Value
    a_stride: ir.Value
    b_stride: ir.Value
    c_stride: ir.Value
    out_stride: ir.Value
    c_row: ir.Value
    out_row: ir.Value


POINTERS, INTEGERS = 9, 10


class Blocks:
    """Emits the loops over products, blocks of rows, panels of columns and units of k."""

    def __init__(self, config: BlockConfig, builder: ir.IRBuilder, arguments: BlockArguments) -> None:
        self.config, self.builder, self.arguments = config, builder, arguments
        self.emit = Emitter(builder)
        self.lanes = Lanes(config, self.emit)
        self.bytes = vector(I8, config.byte_vector)
        left, right = (LeftBytes, RightBytes) if config.in_bytes else (LeftDecoder, RightDecoder)
        self.left, self.right = left(config, config.a, self.emit), right(config, config.b, self.emit)
        self.max_sum_exponent = alloca_once(builder, self.lanes.words)
        self.min_emax = alloca_once(builder, self.bytes)

    def forget(self) -> None:
        """Forget what was noted of a product."""
        self.left.forget()
        self.right.forget()
        self.builder.store(self.emit.constant(self.bytes, 255), self.min_emax)

    def emax_emissions(self, left: ir.Value, right: ir.Value, target: ir.Value) -> list[Emission]:
        """The emax bytes of a unit: step, row, and two rows' columns in the order of lanes."""
        config, emit = self.config, self.emit
        vectors = ROWS * 8 // config.byte_vector
        emax: list[list[ir.Value]] = [[emit.constant(self.bytes, config.floor)] * vectors for _ in config.steps]
        emissions: list[Emission] = []
        held: dict[int, ir.Value] = {}  # exponents of A's rows: a load of 64 bytes takes the time of an fma that broadcasts
        for number, step in enumerate(config.steps):
            emissions += [partial(self._emax_of, emax[number], left, right, k, held) for k in step]
            emissions.append(partial(self._store_emax, emax[number], target, number))
        return emissions

    def _emax_of(self, emax: list[ir.Value], left: ir.Value, right: ir.Value, k: int, held: dict[int, ir.Value]) -> None:
        config, emit, size = self.config, self.emit, self.config.byte_vector
        once = emit.load(vector(I8, LINE), right, config.right_exponents + LINE * k)
        column = emit.shuffle(once, once, list(range(LINE)) * (size // LINE))
        steps = (1, 2) if config.in_bytes else (8, 1)  # from row to row of a line, and from k to k
        spread = [base + steps[0] * row + steps[1] * (k % 8) for base in range(0, size, LINE) for row, _ in config.places]
        for part in range(len(emax)):
            place = k // 8 * len(emax) + part
            if place not in held:
                held[place] = emit.load(self.bytes, left, config.values_size + place * size)
            row = emit.shuffle(held[place], held[place], spread)
            both = self.builder.add(row, column) if config.least_sum else emit.call("usub.sat", row, column)
            emax[part] = emit.call("umax", emax[part], both)

    def _store_emax(self, emax: list[ir.Value], target: ir.Value, number: int) -> None:
        config, emit = self.config, self.emit
        for part, found in enumerate(emax):
            if config.least_sum:
                least, floor = (emit.constant(self.bytes, limit) for limit in (config.least_sum, config.floor))
                found = self.builder.select(self.builder.icmp_unsigned(">=", found, least), found, floor)
            emit.store(found, target, number * ROWS * COLUMNS + part * config.byte_vector)
            if config.lowest_sum:
                self.builder.store(emit.call("umin", self.builder.load(self.min_emax), found), self.min_emax)

    def operands_bad(self) -> ir.Value:
        """Tell whether a product's operands are out of reach."""
        config, emit, builder = self.config, self.emit, self.builder
        bad = builder.or_(self.left.bad(), self.right.bad())
        if config.lowest_sum:
            low = emit.any_lane(builder.icmp_unsigned("<", builder.load(self.min_emax), emit.constant(self.bytes, config.lowest_byte)))
            least = builder.add(self.left.least(), self.right.least())
            small = builder.icmp_unsigned("<", least, ir.Constant(I32, config.lowest_sum - 2))
            bad = builder.or_(bad, builder.and_(low, small))
        return bad

    def sums_bad(self, max_sum_exponent: ir.Value) -> ir.Value:
        """Tell whether sums are."""
        field = 23 if self.config.notes_singles else self.lanes.field
        limit = self.emit.constant(self.lanes.words, self.config.largest_c - self.config.smallest_c << field)
        return self.emit.any_lane(self.builder.icmp_unsigned(">=", max_sum_exponent, limit))

    def run(self) -> None:
        """All products, of any number of blocks, panels and units."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        left_memory = emit.at(arguments.memory, emit.scaled(arguments.units, config.block_size))
        left_size = builder.mul(emit.scaled(arguments.units, config.left_size), arguments.blocks)
        right_memory = emit.at(left_memory, left_size)
        unit_a = ROWS * config.unit * config.a.itemsize
        unit_b = COLUMNS * config.unit * config.b.itemsize
        with for_range(builder, arguments.products) as products:
            a, b, c, out = self.matrices(products.index)
            self.forget()
            builder.store(ir.Constant(self.lanes.words, None), self.max_sum_exponent)
            with for_range(builder, builder.mul(arguments.blocks, arguments.units)) as lefts:
                place = emit.at(a, emit.scaled(lefts.index, unit_a))
                target = emit.at(left_memory, emit.scaled(lefts.index, config.left_size))
                emit_all([*self.left.emissions(place, target), *chain(*self.left.words(target))])
            with for_range(builder, arguments.panels) as panels:
                column = emit.scaled(panels.index, COLUMNS * config.sum_bytes)
                with for_range(builder, arguments.units) as units:
                    number = builder.add(builder.mul(panels.index, arguments.units), units.index)
                    place = emit.at(b, emit.scaled(number, unit_b))
                    target = emit.at(right_memory, emit.scaled(units.index, config.right_size))
                    emit_all([*self.right.emissions(place, target), *chain(*self.right.words(target))])
                with for_range(builder, arguments.blocks) as blocks:
                    row = emit.scaled(blocks.index, ROWS)
                    left = emit.at(left_memory, builder.mul(emit.scaled(blocks.index, config.left_size), arguments.units))
                    places = [
                        emit.at(emit.at(base, builder.mul(row, stride)), column)
                        for base, stride in ((c, arguments.c_row), (out, arguments.out_row))
                    ]
                    self.block(left, right_memory, *places)
            bad = builder.or_(self.operands_bad(), self.sums_bad(builder.load(self.max_sum_exponent)))
            emit.store(builder.zext(bad, I8), emit.at(arguments.bad, products.index))

    def matrices(self, product: ir.Value) -> list[ir.Value]:
        """Return where a product's a, b, c and out lie."""
        arguments = self.arguments
        places = (
            (arguments.a, arguments.a_stride),
            (arguments.b, arguments.b_stride),
            (arguments.c, arguments.c_stride),
            (arguments.out, arguments.out_stride),
        )
        return [self.emit.at(base, self.builder.mul(product, stride)) for base, stride in places]

    def block(self, left: ir.Value, right: ir.Value, c: ir.Value, out: ir.Value) -> None:
        """All units of a block."""
        config, emit, builder, arguments = self.config, self.emit, self.builder, self.arguments
        with for_range(builder, arguments.units) as units:
            target = emit.at(arguments.memory, emit.scaled(units.index, config.block_size))
            emit_all(self.emax_emissions(*self.units_of(left, right, units.index), target))
        with for_range(builder, ir.Constant(I64, ROWS // config.strip)) as strips:
            strip = Strip(config, self.lanes, emit.scaled(strips.index, config.strip), self.max_sum_exponent)
            groups = range(len(strip.groups))
            for index in groups:
                strip.load(index, c, arguments.c_row)
            kept = strip.variables()
            kept.put(strip.groups)
            with for_range(builder, arguments.units) as units:
                unit_left, unit_right = (emit.opaque(unit) for unit in self.units_of(left, right, units.index))
                emax = emit.opaque(emit.at(arguments.memory, emit.scaled(units.index, config.block_size)))
                unit = strip.unit(unit_left, unit_right, emax)
                strip.groups = kept.get()
                for number, step in enumerate(config.steps):
                    for index in groups:
                        strip.start(index, unit, number)
                    for k in step:
                        strip.multiply(unit, k)
                    for index in groups:
                        strip.end(index)
                kept.put(strip.groups)
            strip.groups = kept.get()
            for index in groups:
                strip.store(index, out, arguments.out_row)

    def units_of(self, left: ir.Value, right: ir.Value, unit: ir.Value) -> tuple[ir.Value, ir.Value]:
        """A unit of both operands."""
        emit = self.emit
        return emit.at(left, emit.scaled(unit, self.config.left_size)), emit.at(right, emit.scaled(unit, self.config.right_size))


def emit_all(emissions: Sequence[Emission]) -> None:
    """Emit pieces one after the other."""
    for emission in emissions:
        emission()
