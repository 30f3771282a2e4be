"""The micro-kernel of the fused dot-product-add: truncated sums as plain FMA chains under round toward zero.

B is packed as b (1 + 2**-t). An accumulator starts at 1.5 * 2**(p + emax - align_bits), p being the lane's fraction bits, plus the number of
negative terms in its last place. It stays positive, so each FMA floors its product, and floor(p') = trunc(p) - [p < 0] for every product,
exact or not. emax comes from unsigned bytes: a saturating difference and a maximum per product, a whole panel of columns in one vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir
from numba.core import cgutils

from fastmma.kernels.chain_lanes import Chain, Lanes
from fastmma.kernels.emit import I8, I32, I64, POINTER, Emitter, vector


@dataclass(frozen=True)
class Operands:
    """The micro-kernel's arguments: byte pointers, then 64-bit integers; strides are bytes from row to row of A."""

    values_a: ir.Value
    exponents_a: ir.Value
    signs_a: ir.Value
    values_b: ir.Value
    exponents_b: ir.Value
    signs_b: ir.Value
    state: ir.Value  # float32 [row][panel]
    scratch: ir.Value  # emax and counts of two blocks of rows, [2][steps + 1][row][2][panel] bytes
    lowest: ir.Value  # smallest emax byte so far, [row][panel]
    worst: ir.Value  # largest exponent field of a result so far, [block of rows][lane] words
    values_stride: ir.Value
    exponents_stride: ir.Value
    signs_stride: ir.Value
    blocks: ir.Value  # of rows
    steps: ir.Value


POINTERS, INTEGERS = 10, 5


class _Tile:
    """Emits the loops over blocks of rows, tiles of columns and steps."""

    def __init__(self, chain: Chain, builder: ir.IRBuilder, operands: Operands) -> None:
        self.chain, self.builder, self.operands = chain, builder, operands
        self.emit = Emitter(builder)
        self.lanes = Lanes(chain, self.emit)
        self.bytes = vector(I8, chain.panel)
        self.tiles = chain.panel // chain.tile
        self.worst = cgutils.alloca_once(builder, self.lanes.words)

    def sum(self, *terms: ir.Value | int) -> ir.Value:
        """The sum of 64-bit integers."""
        total = self.emit.index(0)
        for term in terms:
            total = self.builder.add(total, self.emit.index(term) if isinstance(term, int) else term)
        return total

    def scratch_of(self, block: ir.Value) -> ir.Value:
        """The half of the scratch that a block of rows uses."""
        size = self.emit.scaled(self.sum(self.operands.steps, 1), 2 * self.chain.rows * self.chain.panel)
        return self.emit.at(self.operands.scratch, self.builder.mul(self.builder.and_(block, self.emit.index(1)), size))

    def emax_and_counts(self, scratch: ir.Value, first_row: ir.Value, rows: int, step: ir.Value, row_in_block: ir.Value) -> None:
        """emax bytes (of the products) and counts of negative products, for `rows` rows in one step."""
        chain, emit, builder, operands = self.chain, self.emit, self.builder, self.operands
        four = vector(I32, chain.panel // 4)
        numbers = [self.sum(first_row, row) for row in range(rows)]
        elements = [
            emit.at(operands.exponents_a, self.sum(builder.mul(number, operands.exponents_stride), emit.scaled(step, 4 * chain.terms)))
            for number in numbers
        ]
        columns = emit.opaque(emit.at(operands.exponents_b, emit.scaled(step, chain.terms * chain.panel)))
        emax = [emit.constant(self.bytes, chain.floor)] * rows
        for k in range(chain.terms):
            column = emit.load(self.bytes, columns, k * chain.panel, chain.panel)
            for row in range(rows):
                element = emit.cast(emit.broadcast(four, elements[row], 4 * k), self.bytes)
                emax[row] = emit.call("umax", emax[row], emit.call("usub.sat", element, column))
        signs = emit.scaled(step, chain.sign_bytes)
        for row in range(rows):
            count = None
            for part in range(chain.sign_bytes):
                column = emit.load(self.bytes, operands.signs_b, emit.scaled(self.sum(signs, part), chain.panel), chain.panel)
                place = self.sum(builder.mul(numbers[row], operands.signs_stride), emit.scaled(self.sum(signs, part), 4))
                element = emit.cast(emit.broadcast(four, operands.signs_a, place), self.bytes)
                ones = emit.call("ctpop", builder.xor(element, column))
                count = ones if count is None else builder.add(count, ones)
            target = emit.scaled(self.sum(emit.scaled(step, chain.rows), row_in_block, row), 2 * chain.panel)
            emit.store(emax[row], scratch, target, chain.panel)
            emit.store(count, scratch, self.sum(target, chain.panel), chain.panel)
            if not chain.single and not chain.half:
                place = emit.scaled(numbers[row], chain.panel)
                seen = emit.load(self.bytes, operands.lowest, place, chain.panel)
                emit.store(emit.call("umin", seen, emax[row]), operands.lowest, place, chain.panel)

    def start(self, subtile: list[list[list[ir.Value]]], scratch: ir.Value, step: ir.Value, column: ir.Value) -> list[list[list[ir.Value]]]:
        """Accumulators of one subtile at the start of a step."""
        chain, emit = self.chain, self.emit
        quarter = vector(I8, chain.lanes)
        started = []
        for row in range(chain.rows):
            place = self.sum(emit.scaled(self.sum(emit.scaled(step, chain.rows), row), 2 * chain.panel), column)
            groups = []
            for group in range(chain.groups):
                offset = self.sum(place, chain.lanes * group)
                emax = emit.load(quarter, scratch, offset, chain.lanes)
                negatives = emit.load(quarter, scratch, self.sum(offset, chain.panel), chain.lanes)
                groups.append(self.lanes.start(subtile[row][group], emax, negatives, self.worst))
            started.append(groups)
        return started

    def chain_products(
        self, sums: list[list[list[ir.Value]]], rows: list[ir.Value], columns: ir.Value, step: ir.Value, part: int
    ) -> list[list[list[ir.Value]]]:
        """One subtile's FMA chains of one step."""
        chain, emit, operands = self.chain, self.emit, self.operands
        subtile = chain.tile // 2 * chain.value_bytes
        kind = self.lanes.kind
        place = emit.at(operands.values_b, self.sum(columns, emit.scaled(step, chain.terms * 2 * subtile), part * subtile))
        offset = emit.scaled(step, chain.terms * chain.value_bytes)
        elements = [emit.opaque(emit.at(operands.values_a, self.sum(row, offset))) for row in rows]
        for k in range(chain.terms):
            loaded = [
                [
                    emit.load(kind, place, 2 * subtile * k + (group * self.lanes.vectors + v) * chain.vector_bytes, chain.vector_bytes)
                    for v in range(self.lanes.vectors)
                ]
                for group in range(chain.groups)
            ]
            for row in range(chain.rows):
                element = emit.broadcast(kind, elements[row], k * chain.value_bytes)
                sums[row] = [
                    [emit.call("fma", element, b, total) for b, total in zip(b_group, group, strict=True)]
                    for b_group, group in zip(loaded, sums[row], strict=True)
                ]
        return sums

    def run(self) -> None:
        """All blocks of rows of a slab."""
        chain, emit, builder, operands = self.chain, self.emit, self.builder, self.operands
        with cgutils.for_range(builder, operands.steps) as steps:
            self.emax_and_counts(self.scratch_of(emit.index(0)), emit.index(0), chain.rows, steps.index, emit.index(0))
        with cgutils.for_range(builder, operands.blocks) as blocks:
            place = emit.scaled(blocks.index, 4 * chain.lanes)
            if chain.half:
                builder.store(emit.load(self.lanes.words, operands.worst, place, chain.vector_bytes), self.worst)
            with cgutils.for_range(builder, emit.index(self.tiles)) as tiles:
                self.tile(blocks.index, tiles.index)
            if chain.half:
                emit.store(builder.load(self.worst), operands.worst, place, chain.vector_bytes)

    def tile(self, block: ir.Value, tile: ir.Value) -> None:
        """All steps of one tile, and meanwhile the exponents of its share of rows of the next block."""
        chain, emit, builder, operands = self.chain, self.emit, self.builder, self.operands
        scratch, next_scratch = self.scratch_of(block), self.scratch_of(self.sum(block, 1))
        first_row = emit.scaled(block, chain.rows)
        rows = [builder.mul(self.sum(first_row, row), operands.values_stride) for row in range(chain.rows)]
        column = emit.scaled(tile, chain.tile)
        columns = emit.scaled(tile, chain.tile * chain.depth * chain.value_bytes)
        state = [
            [
                [
                    self.sum(
                        emit.scaled(self.sum(first_row, row), 4 * chain.panel),
                        emit.scaled(self.sum(column, (part * chain.groups + group) * chain.lanes), 4),
                    )
                    for group in range(chain.groups)
                ]
                for row in range(chain.rows)
            ]
            for part in (0, 1)
        ]
        early, late = ([[self.variables(self.lanes.load(operands.state, place)) for place in groups] for groups in part] for part in state)
        running = [[self.variables(sums) for sums in groups] for groups in self.start(self.values(early), scratch, emit.index(0), column)]
        share = -(-chain.rows // (2 * self.tiles))
        with cgutils.for_range(builder, operands.steps) as loop:
            step = loop.index
            sums = self.chain_products(self.values(running), rows, columns, step, 0)
            self.share_of_exponents(next_scratch, block, tile, step, 0, share)
            late_sums = self.start(self.values(late), scratch, step, self.sum(column, chain.tile // 2))
            late_sums = self.chain_products(late_sums, rows, columns, step, 1)
            # independent of the chains just issued, so the CPU overlaps it with them
            ended = [[self.lanes.end(group) for group in groups] for groups in sums]
            self.assign(early, ended)
            self.assign(running, self.start(ended, scratch, self.sum(step, 1), column))
            self.share_of_exponents(next_scratch, block, tile, step, 1, share)
            self.assign(late, [[self.lanes.end(group) for group in groups] for groups in late_sums])
        for subtile, places in ((early, state[0]), (late, state[1])):
            for row, groups in enumerate(self.values(subtile)):
                for group, sums in enumerate(groups):
                    self.lanes.store(sums, operands.state, places[row][group])

    def share_of_exponents(self, scratch: ir.Value, block: ir.Value, tile: ir.Value, step: ir.Value, part: int, share: int) -> None:
        """One of the equal shares, by tile and subtile, of the next block's exponents; the last ones overlap when rows do not divide."""
        chain, builder = self.chain, self.builder
        shares = 2 * self.tiles
        number = self.sum(self.emit.scaled(tile, 2), part)
        last = self.emit.index(chain.rows - share)
        first = (
            self.emit.scaled(number, share)
            if share * shares == chain.rows
            else builder.select(builder.icmp_signed("<", self.emit.scaled(number, share), last), self.emit.scaled(number, share), last)
        )
        next_row = self.sum(self.emit.scaled(self.sum(block, 1), chain.rows), first)
        self.emax_and_counts(scratch, next_row, share, step, first)

    def variables(self, values: list[ir.Value]) -> list[ir.Value]:
        """Stack variables that LLVM keeps in registers."""
        places = [cgutils.alloca_once(self.builder, value.type) for value in values]
        for place, value in zip(places, values, strict=True):
            self.builder.store(value, place)
        return places

    def values(self, subtile: list[list[list[ir.Value]]]) -> list[list[list[ir.Value]]]:
        """What a subtile's variables hold."""
        return [[[self.builder.load(place) for place in group] for group in groups] for groups in subtile]

    def assign(self, subtile: list[list[list[ir.Value]]], values: list[list[list[ir.Value]]]) -> None:
        """Set a subtile's variables."""
        for groups, new_groups in zip(subtile, values, strict=True):
            for places, new in zip(groups, new_groups, strict=True):
                for place, value in zip(places, new, strict=True):
                    self.builder.store(value, place)


def emit_slab(chain: Chain, module: ir.Module) -> ir.Function:
    """The function that runs a slab of k for all rows, to be called under round toward zero."""
    name = "fastmma_chain_" + "_".join(str(int(value)) for value in chain.__dict__.values())
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * POINTERS + [I64] * INTEGERS), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    for argument in function.args[:POINTERS]:
        argument.add_attribute("noalias")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _Tile(chain, builder, Operands(*function.args)).run()
    builder.ret_void()
    return function
