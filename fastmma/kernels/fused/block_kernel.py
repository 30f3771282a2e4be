"""The kernel of the fused dot-product-add for blocks of 16 rows by 8 columns: whole tiles, decoded, multiplied and written in one pass.

The sums are those of `fastmma.kernels.fused.micro_kernel`: FMA chains under round toward zero from starts that count the negative
products. Here zeros stay zeros, and products of zeros are not counted: the words of signs tell them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from llvmlite import ir
from numba.core import cgutils

from fastmma.kernels.fused.block_operands import HALF, LINE, LeftDecoder, Piece, RightDecoder, any_lane
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockKernel
from fastmma.kernels.fused.lanes import Lanes
from fastmma.kernels.llvm.emit import F32, F64, I8, I32, I64, POINTER, Emitter, vector


@dataclass(frozen=True)
class Operands:
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

Group = list[ir.Value]  # the sums of a group: vector by vector


class _Strip:
    """The sums of some rows, between memory, starts, products and ends."""

    def __init__(self, kernel: BlockKernel, lanes: Lanes, first: int, worst: ir.Value) -> None:
        self.kernel, self.lanes, self.emit, self.builder = kernel, lanes, lanes.emit, lanes.emit.builder
        self.first, self.worst = first, worst
        self.rows_of_group = kernel.lanes // COLUMNS
        self.rows = range(first, first + kernel.strip, self.rows_of_group)
        self.groups: list[Group] = [[] for _ in self.rows]

    def load(self, index: int, c: ir.Value, stride: ir.Value) -> None:
        """The sums of a group from c."""
        kernel, emit, builder = self.kernel, self.emit, self.builder
        rows = []
        for row in range(self.rows[index], self.rows[index] + self.rows_of_group):
            place = emit.at(c, emit.scaled(stride, row))
            if kernel.half:
                value = builder.fpext(emit.load(vector(HALF, COLUMNS), place), vector(F32, COLUMNS))
            else:
                bits = emit.load(vector(I32, COLUMNS), place)
                value = emit.cast(bits if kernel.mask_c == -1 else emit.masked(bits, kernel.mask_c), vector(F32, COLUMNS))
            rows.append(value if kernel.single else builder.fpext(value, vector(F64, COLUMNS)))
        if not kernel.single and kernel.lanes == COLUMNS:
            rows = [emit.shuffle(rows[0], rows[0], range(part, part + 4)) for part in (0, 4)]
        if kernel.smallest_c:
            self._note_small(rows)
        self.groups[index] = self.lanes.grown(rows)

    def _note_small(self, values: Group) -> None:
        """Count sums that are not zero, but too small, as the largest of all."""
        emit, builder, lanes = self.emit, self.builder, self.lanes
        exponent = emit.masked(lanes.top_words(values), ((1 << 31) - 1) >> lanes.field << lanes.field)
        less = emit.plus(exponent, -1)  # a zero's is the largest of all
        small = builder.icmp_unsigned("<", less, emit.constant(lanes.words, (self.kernel.smallest_c << lanes.field) - 1))
        found = builder.select(small, emit.constant(lanes.words, 0x7FFFFFFF), ir.Constant(lanes.words, None))
        builder.store(emit.call("umax", builder.load(self.worst), found), self.worst)

    def start(self, index: int, left: ir.Value, right: ir.Value, emax: ir.Value, number: int) -> None:
        """Start a group's step of a unit."""
        kernel, emit = self.kernel, self.emit
        row = self.rows[index]
        exponents = emit.widened(emit.load(vector(I8, kernel.lanes), emax, (number * ROWS + row) * COLUMNS))
        negatives = self._negatives(left, right, index, kernel.steps[number])
        self.groups[index] = self.lanes.start(self.groups[index], exponents, negatives, self.worst)

    def _negatives(self, left: ir.Value, right: ir.Value, index: int, step: Sequence[int]) -> ir.Value:
        """How many products of a step are negative, for a group."""
        kernel, emit, builder = self.kernel, self.emit, self.builder
        row = self.rows[index]
        words = vector(I32, kernel.lanes)
        bits = sum(1 << k for k in step)
        whole = (1 << 32) - 1
        if kernel.words == 1:
            bits, whole = bits | bits << kernel.unit, (1 << 2 * kernel.unit) - 1
        found = None
        for part in range(kernel.words):
            if kernel.lanes == LINE:
                four = emit.load(vector(I32, 4), left, kernel.left_words + 128 * part + 8 * row)
                spread = emit.shuffle(four, four, list(range(4)) * 4)
            else:
                spread = emit.broadcast(words, left, kernel.left_words + 64 * part + 4 * row)
            chosen = emit.load(words, right, kernel.right_words + 64 * part)
            if bits != whole:
                chosen = emit.masked(chosen, bits)
            both = builder.and_(spread, chosen)
            found = both if found is None else builder.or_(found, both)
        assert found is not None
        return emit.call("ctpop", found)

    def multiply(self, left: ir.Value, right: ir.Value, k: int) -> None:
        """Add the products of one k."""
        kernel, emit, kind = self.kernel, self.emit, self.lanes.kind
        vectors = COLUMNS // kind.count
        size = kind.count * kernel.value_bytes
        columns = [emit.load(kind, right, (k * vectors + part) * size) for part in range(vectors)]
        for row in range(kernel.strip):
            element = emit.broadcast(kind, left, ((self.first + row) * kernel.unit + k) * kernel.value_bytes)
            group, part = self.groups[row // self.rows_of_group], row % self.rows_of_group
            for number, column in enumerate(columns, part * vectors):
                group[number] = emit.call("fma", element, column, group[number])

    def end(self, index: int) -> None:
        """Round a group at the end of a step."""
        self.groups[index] = self.lanes.end(self.groups[index])

    def store(self, index: int, out: ir.Value, stride: ir.Value) -> None:
        """A group's results to out."""
        kernel, emit, builder, lanes = self.kernel, self.emit, self.builder, self.lanes
        values = self.groups[index]
        if kernel.half:
            exponent = emit.masked(lanes.top_words(values), ((1 << 31) - 1) >> lanes.field << lanes.field)
            builder.store(emit.call("umax", builder.load(self.worst), exponent), self.worst)
        if kernel.single:
            singles = [emit.cast(emit.masked(emit.cast(values[0], lanes.words), -2), lanes.kind)]
        else:
            singles = [builder.fptrunc(value, vector(F32, value.type.count)) for value in values]
            if kernel.lanes == COLUMNS:
                singles = [emit.shuffle(singles[0], singles[1], range(COLUMNS))]
        for row, value in enumerate(singles, self.rows[index]):
            place = emit.at(out, emit.scaled(stride, row))
            emit.store(lanes.half_codes(value) if kernel.half else value, place)

    def variables(self) -> list[list[ir.Value]]:
        """Stack variables for the sums, which LLVM keeps in registers."""
        kinds = [self.lanes.kind] * self.lanes.vectors
        return [[cgutils.alloca_once(self.builder, kind) for kind in kinds] for _ in self.groups]

    def keep(self, variables: list[list[ir.Value]]) -> None:
        """Put the sums into variables."""
        for places, group in zip(variables, self.groups, strict=True):
            for place, value in zip(places, group, strict=True):
                self.builder.store(value, place)

    def take(self, variables: list[list[ir.Value]]) -> None:
        """Get the sums from variables."""
        self.groups = [[self.builder.load(place) for place in places] for places in variables]


class _Blocks:
    """Emits the loops over products, blocks of rows, panels of columns and units of k."""

    def __init__(self, kernel: BlockKernel, builder: ir.IRBuilder, operands: Operands) -> None:
        self.kernel, self.builder, self.operands = kernel, builder, operands
        self.emit = Emitter(builder)
        self.lanes = Lanes(kernel, self.emit)
        self.bytes = vector(I8, kernel.byte_vector)
        self.left, self.right = LeftDecoder(kernel, kernel.a, self.emit), RightDecoder(kernel, kernel.b, self.emit)
        self.worst = cgutils.alloca_once(builder, self.lanes.words)
        self.lowest = cgutils.alloca_once(builder, self.bytes)

    def forget(self) -> None:
        """Forget what was noted of a product."""
        self.left.forget()
        self.right.forget()
        self.builder.store(self.emit.constant(self.bytes, 255), self.lowest)

    def emax_pieces(self, left: ir.Value, right: ir.Value, target: ir.Value) -> list[Piece]:
        """The emax bytes of a unit: step, row, and two rows' columns in the order of lanes."""
        kernel, emit = self.kernel, self.emit
        vectors = ROWS * 8 // kernel.byte_vector
        emax: list[list[ir.Value]] = [[emit.constant(self.bytes, kernel.floor)] * vectors for _ in kernel.steps]
        pieces: list[Piece] = []
        for number, step in enumerate(kernel.steps):
            pieces += [partial(self._emax_of, emax[number], left, right, k) for k in step]
            pieces.append(partial(self._store_emax, emax[number], target, number))
        return pieces

    def _emax_of(self, emax: list[ir.Value], left: ir.Value, right: ir.Value, k: int) -> None:
        kernel, emit, size = self.kernel, self.emit, self.kernel.byte_vector
        once = emit.load(vector(I8, LINE), right, kernel.right_exponents + LINE * k)
        column = emit.shuffle(once, once, list(range(LINE)) * (size // LINE))
        spread = [base + 8 * row + k % 8 for base in range(0, size, LINE) for row, _ in kernel.places]
        for part in range(len(emax)):
            rows = emit.load(self.bytes, left, kernel.values_size + (k // 8 * len(emax) + part) * size)
            row = emit.shuffle(rows, rows, spread)
            emax[part] = emit.call("umax", emax[part], emit.call("usub.sat", row, column))

    def _store_emax(self, emax: list[ir.Value], target: ir.Value, number: int) -> None:
        kernel, emit = self.kernel, self.emit
        for part, found in enumerate(emax):
            emit.store(found, target, number * ROWS * COLUMNS + part * kernel.byte_vector)
            if kernel.lowest_sum:
                self.builder.store(emit.call("umin", self.builder.load(self.lowest), found), self.lowest)

    def operands_bad(self) -> ir.Value:
        """Whether a product's operands are out of reach."""
        kernel, emit, builder = self.kernel, self.emit, self.builder
        bad = builder.or_(self.left.bad(), self.right.bad())
        if kernel.lowest_sum:
            low = any_lane(emit, builder.icmp_unsigned("<", builder.load(self.lowest), emit.constant(self.bytes, kernel.lowest_byte)))
            least = builder.add(self.left.least(), self.right.least())
            small = builder.icmp_unsigned("<", least, ir.Constant(I32, kernel.lowest_sum - 2))
            bad = builder.or_(bad, builder.and_(low, small))
        return bad

    def sums_bad(self, worst: ir.Value) -> ir.Value:
        """Whether sums are."""
        limit = self.emit.constant(self.lanes.words, self.kernel.largest_c << self.lanes.field)
        return any_lane(self.emit, self.builder.icmp_unsigned(">=", worst, limit))

    # --- products of any size ---

    def run(self) -> None:
        """All products, of any number of blocks, panels and units."""
        kernel, emit, builder, operands = self.kernel, self.emit, self.builder, self.operands
        left_memory = emit.at(operands.memory, emit.scaled(operands.units, kernel.block_size))
        left_size = builder.mul(emit.scaled(operands.units, kernel.left_size), operands.blocks)
        right_memory = emit.at(left_memory, left_size)
        unit_a = ROWS * kernel.unit * kernel.a.itemsize
        unit_b = COLUMNS * kernel.unit * kernel.b.itemsize
        with cgutils.for_range(builder, operands.products) as products:
            a, b, c, out = self.matrices(products.index)
            self.forget()
            builder.store(ir.Constant(self.lanes.words, None), self.worst)
            with cgutils.for_range(builder, builder.mul(operands.blocks, operands.units)) as lefts:
                place = emit.at(a, emit.scaled(lefts.index, unit_a))
                target = emit.at(left_memory, emit.scaled(lefts.index, kernel.left_size))
                _do([*self.left.pieces(place, target), *chain(*self.left.words(target))])
            with cgutils.for_range(builder, operands.panels) as panels:
                column = emit.scaled(panels.index, COLUMNS * kernel.sum_bytes)
                with cgutils.for_range(builder, operands.units) as units:
                    number = builder.add(builder.mul(panels.index, operands.units), units.index)
                    place = emit.at(b, emit.scaled(number, unit_b))
                    target = emit.at(right_memory, emit.scaled(units.index, kernel.right_size))
                    _do([*self.right.pieces(place, target), *chain(*self.right.words(target))])
                with cgutils.for_range(builder, operands.blocks) as blocks:
                    row = emit.scaled(blocks.index, ROWS)
                    left = emit.at(left_memory, builder.mul(emit.scaled(blocks.index, kernel.left_size), operands.units))
                    places = [
                        emit.at(emit.at(base, builder.mul(row, stride)), column)
                        for base, stride in ((c, operands.c_row), (out, operands.out_row))
                    ]
                    self.block(left, right_memory, *places)
            bad = builder.or_(self.operands_bad(), self.sums_bad(builder.load(self.worst)))
            emit.store(builder.zext(bad, I8), emit.at(operands.bad, products.index))

    def matrices(self, product: ir.Value) -> list[ir.Value]:
        """Where a product's a, b, c and out lie."""
        operands = self.operands
        places = (
            (operands.a, operands.a_stride),
            (operands.b, operands.b_stride),
            (operands.c, operands.c_stride),
            (operands.out, operands.out_stride),
        )
        return [self.emit.at(base, self.builder.mul(product, stride)) for base, stride in places]

    def block(self, left: ir.Value, right: ir.Value, c: ir.Value, out: ir.Value) -> None:
        """All units of a block."""
        kernel, emit, builder, operands = self.kernel, self.emit, self.builder, self.operands
        with cgutils.for_range(builder, operands.units) as units:
            target = emit.at(operands.memory, emit.scaled(units.index, kernel.block_size))
            _do(self.emax_pieces(*self.units_of(left, right, units.index), target))
        for first in range(0, ROWS, kernel.strip):
            strip = _Strip(kernel, self.lanes, first, self.worst)
            groups = range(len(strip.groups))
            for index in groups:
                strip.load(index, c, operands.c_row)
            kept = strip.variables()
            strip.keep(kept)
            with cgutils.for_range(builder, operands.units) as units:
                unit_left, unit_right = (emit.opaque(unit) for unit in self.units_of(left, right, units.index))
                emax = emit.opaque(emit.at(operands.memory, emit.scaled(units.index, kernel.block_size)))
                strip.take(kept)
                for number, step in enumerate(kernel.steps):
                    for index in groups:
                        strip.start(index, unit_left, unit_right, emax, number)
                    for k in step:
                        strip.multiply(unit_left, unit_right, k)
                    for index in groups:
                        strip.end(index)
                strip.keep(kept)
            strip.take(kept)
            for index in groups:
                strip.store(index, out, operands.out_row)

    def units_of(self, left: ir.Value, right: ir.Value, unit: ir.Value) -> tuple[ir.Value, ir.Value]:
        """A unit of both operands."""
        emit = self.emit
        return emit.at(left, emit.scaled(unit, self.kernel.left_size)), emit.at(right, emit.scaled(unit, self.kernel.right_size))

    # --- products of a single block and unit ---

    def run_tiles(self) -> None:
        """All products, each of one block and one unit: while one is multiplied, the next one is decoded."""
        kernel, emit, builder, operands = self.kernel, self.emit, self.builder, self.operands
        size = kernel.block_size + kernel.left_size + kernel.right_size
        zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
        early, late = (_Strip(kernel, self.lanes, first, self.worst) for first in (0, kernel.strip))
        kept_early, kept_late = early.variables(), late.variables()
        c_row, out_row = ir.Constant(I64, COLUMNS * kernel.sum_bytes), ir.Constant(I64, COLUMNS * kernel.sum_bytes)

        def decoded(product: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
            memory = emit.at(operands.memory, emit.scaled(builder.and_(product, one), size))
            left = emit.at(memory, kernel.block_size)
            return memory, left, emit.at(left, kernel.left_size)

        def decode(product: ir.Value, place: ir.Value) -> list[Piece]:
            a, b, _, _ = self.matrices(product)
            emax, left, right = decoded(place)
            emax_pieces = self.emax_pieces(left, right, emax)
            half = len(emax_pieces) // 2
            (row_words,), (column_bits, column_words) = self.left.words(left), self.right.words(right)
            return [
                self.forget,
                *self.left.pieces(a, left),
                *self.right.pieces(b, right),
                *row_words,
                *emax_pieces[:half],
                *column_bits,
                *emax_pieces[half:],
                *column_words,
                lambda: emit.store(builder.zext(self.operands_bad(), I8), emit.at(operands.bad, product)),
            ]

        def begin(strip: _Strip, product: ir.Value, place: ir.Value) -> list[Piece]:
            """Load and start a strip."""
            c = self.matrices(product)[2]
            emax, left, right = (emit.opaque(part) for part in decoded(place))

            def piece(index: int) -> None:
                strip.load(index, c, c_row)
                strip.start(index, left, right, emax, 0)

            return [partial(piece, index) for index in range(len(strip.groups))]

        def conclude(strip: _Strip, out: ir.Value) -> list[Piece]:
            def piece(index: int) -> None:
                strip.end(index)
                strip.store(index, out, out_row)

            return [partial(piece, index) for index in range(len(strip.groups))]

        def again(strip: _Strip, place: ir.Value, number: int) -> list[Piece]:
            emax, left, right = (emit.opaque(part) for part in decoded(place))

            def piece(index: int) -> None:
                strip.end(index)
                strip.start(index, left, right, emax, number)

            return [partial(piece, index) for index in range(len(strip.groups))]

        def multiply(strip: _Strip, place: ir.Value, number: int) -> list[Piece]:
            _, left, right = (emit.opaque(part) for part in decoded(place))
            return [partial(strip.multiply, left, right, k) for k in kernel.steps[number]]

        # the loop begins one product early, with zeros in place of a decoded one, whose results nobody reads
        self.clear(emit.at(operands.memory, size), size)
        builder.store(ir.Constant(self.lanes.words, None), self.worst)
        for places in (*kept_early, *kept_late):
            for place in places:
                builder.store(ir.Constant(self.lanes.kind, None), place)
        spare = emit.at(operands.memory, 2 * size)
        previous = cgutils.alloca_once_value(builder, spare)
        last = builder.sub(operands.products, one)
        with cgutils.for_range_slice(builder, ir.Constant(I64, -1), operands.products, one) as (product, _):
            following = builder.add(product, one)
            following = builder.select(builder.icmp_signed("<", following, last), following, last)
            is_real = builder.icmp_signed(">=", product, zero)
            current = builder.select(is_real, product, zero)
            early.take(kept_early)
            late.take(kept_late)
            out = builder.select(is_real, self.matrices(current)[3], spare)
            next_place = builder.add(product, one)
            decoding = self.prefetches(current) + decode(following, next_place) + begin(early, following, next_place)
            slots = 2 * sum(map(len, kernel.steps))
            done = slot = 0
            for number, step in enumerate(kernel.steps):
                first, final = number == 0, number == len(kernel.steps) - 1
                restarts = conclude(late, builder.load(previous)) + begin(late, current, product) if first else again(late, product, number)
                endings = conclude(early, out) if final else again(early, product, number + 1)
                for strip, work in ((early, restarts), (late, endings)):
                    worked = 0
                    for position, piece in enumerate(multiply(strip, product, number), 1):
                        piece()
                        slot += 1
                        while worked < len(work) and worked * len(step) < len(work) * position * 1.5:
                            work[worked]()
                            worked += 1
                        while done * slots < len(decoding) * slot:
                            decoding[done]()
                            done += 1
                        self.pin(strip)
            builder.store(out, previous)
            early.keep(kept_early)
            late.keep(kept_late)
            # sums were noted for three products together: it is seldom that any is out of reach
            with builder.if_then(self.sums_bad(builder.load(self.worst)), likely=False):
                before = builder.select(builder.icmp_signed(">", product, zero), builder.sub(product, one), zero)
                for number in (before, current, following):
                    emit.store(ir.Constant(I8, 1), emit.at(operands.bad, number))
            builder.store(ir.Constant(self.lanes.words, None), self.worst)
        late.take(kept_late)
        _do(conclude(late, builder.load(previous)))
        with builder.if_then(self.sums_bad(builder.load(self.worst)), likely=False):
            emit.store(ir.Constant(I8, 1), emit.at(operands.bad, last))

    def prefetches(self, product: ir.Value) -> list[Piece]:
        """Ask for what will be read after these products."""
        kernel, operands = self.kernel, self.operands
        sizes = (
            (operands.next_a, operands.a_stride, ROWS * kernel.unit * kernel.a.itemsize),
            (operands.next_b, operands.b_stride, COLUMNS * kernel.unit * kernel.b.itemsize),
            (operands.next_c, operands.c_stride, ROWS * COLUMNS * kernel.sum_bytes),
        )
        pieces: list[Piece] = []
        for base, stride, size in sizes:
            place = self.emit.at(base, self.builder.mul(product, stride))
            pieces += [partial(self.emit.prefetch, place, line) for line in range(0, size, 64)]
        return pieces

    def clear(self, place: ir.Value, size: int) -> None:
        """Zeros."""
        for offset in range(0, size, 64):
            self.emit.store(ir.Constant(vector(I64, 8), None), place, offset)

    def pin(self, strip: _Strip) -> None:
        """Keep what was emitted so far before what is emitted next."""
        pinned = iter(self.emit.pinned([value for group in strip.groups for value in group]))
        strip.groups = [[next(pinned) for _ in group] for group in strip.groups]


def _do(pieces: Sequence[Piece]) -> None:
    """Emit pieces one after the other."""
    for piece in pieces:
        piece()


def emit_blocks(kernel: BlockKernel, module: ir.Module) -> ir.Function:
    """The function that multiplies blocks, to be called in any rounding mode."""
    name = "fastmma_blocks_" + hashlib.sha256(repr(kernel).encode()).hexdigest()[:16]
    if name in module.globals:
        return module.globals[name]
    function, chains = (_declared(module, declared) for declared in (name, f"{name}_toward_zero"))
    builder = ir.IRBuilder(chains.append_basic_block("entry"))
    blocks = _Blocks(kernel, builder, Operands(*chains.args))
    blocks.run_tiles() if kernel.tiles else blocks.run()
    builder.ret_void()
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    with Emitter(builder).round_toward_zero():
        builder.call(chains, function.args)
    builder.ret_void()
    return function


def _declared(module: ir.Module, name: str) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * POINTERS + [I64] * INTEGERS), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function
