"""Some rows of a block of 16 rows by 8 columns: their sums between memory, the starts of steps, products and ends."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fastmma.kernels.fused.block_operands import LINE
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockKernel
from fastmma.kernels.fused.lanes import Lanes
from fastmma.kernels.llvm.emit import F32, F64, HALF, I8, I32, Variables, vector

Group = list[ir.Value]  # the sums of a group: vector by vector


class Unit(NamedTuple):
    """The addresses of a decoded unit; of A's values, of its words of signs and of emax those of the first row."""

    values: ir.Value
    words: ir.Value
    right: ir.Value
    emax: ir.Value


class Strip:
    """The sums of some rows, between memory, starts, products and ends; `first` is the first one's number in the block."""

    def __init__(self, kernel: BlockKernel, lanes: Lanes, first: ir.Value, worst: ir.Value) -> None:
        self.kernel, self.lanes, self.emit, self.builder = kernel, lanes, lanes.emit, lanes.emit.builder
        self.first, self.worst = first, worst
        self.rows_of_group = kernel.lanes // COLUMNS
        self.rows = range(0, kernel.strip, self.rows_of_group)
        self.groups: list[Group] = [[] for _ in self.rows]

    def unit(self, left: ir.Value, right: ir.Value, emax: ir.Value) -> Unit:
        """The unit whose A, B and emax begin here."""
        kernel = self.kernel
        values = self._row(left, kernel.unit * kernel.value_bytes)
        return Unit(values, self._row(left, 8 if kernel.lanes == LINE else 4), right, self._row(emax, COLUMNS))

    def _row(self, base: ir.Value, size: int) -> ir.Value:
        """The place of the first row, if rows are `size` bytes apart."""
        return self.emit.at(base, self.emit.scaled(self.first, size))

    def load(self, index: int, c: ir.Value, stride: ir.Value) -> None:
        """The sums of a group from c."""
        kernel, emit, builder = self.kernel, self.emit, self.builder
        rows = []
        for row in range(self.rows[index], self.rows[index] + self.rows_of_group):
            place = self._line(c, stride, row)
            if kernel.half:
                value = builder.fpext(emit.load(vector(HALF, COLUMNS), place), vector(F32, COLUMNS))
            else:
                bits = emit.load(vector(I32, COLUMNS), place)
                value = emit.cast(bits if kernel.mask_c == -1 else emit.masked(bits, kernel.mask_c), vector(F32, COLUMNS))
            rows.append(value if kernel.single else builder.fpext(value, vector(F64, COLUMNS)))
        if not kernel.single and kernel.lanes == COLUMNS:
            rows = [emit.shuffle(rows[0], rows[0], range(part, part + 4)) for part in (0, 4)]
        grown = self.groups[index] = self.lanes.with_sticky_bit(rows)
        if not kernel.watched:
            self._note(rows if kernel.single else grown)  # in f32 lanes a subnormal c has to be told from zero

    def _line(self, base: ir.Value, stride: ir.Value, row: int) -> ir.Value:
        """A row of c or of the results."""
        return self.emit.at(base, self.builder.mul(self.emit.sum(self.first, row), stride))

    def _note(self, values: Group) -> None:
        """Track the largest exponent of c. The difference of one that is too small wraps to a large number; that of zero does not count."""
        emit, builder, lanes = self.emit, self.builder, self.lanes
        magnitude = (1 << 31) - 1
        exponent = emit.masked(lanes.top_words(values), magnitude if self.kernel.single else magnitude >> lanes.field << lanes.field)
        if self.kernel.smallest_c:
            zero = ir.Constant(lanes.words, None)
            above = emit.plus(exponent, -(self.kernel.smallest_c << lanes.field))
            exponent = builder.select(builder.icmp_unsigned("!=", exponent, zero), above, zero)
        builder.store(emit.call("umax", builder.load(self.worst), exponent), self.worst)

    def start(self, index: int, unit: Unit, number: int) -> None:
        """Start a group's step of a unit."""
        kernel, emit = self.kernel, self.emit
        row = self.rows[index]
        exponents = emit.widened(emit.load(vector(I8, kernel.lanes), unit.emax, (number * ROWS + row) * COLUMNS))
        negatives = self._negatives(unit, index, number)
        self.groups[index] = self.lanes.start(self.groups[index], exponents, negatives, self.worst)

    def _negatives(self, unit: Unit, index: int, number: int) -> ir.Value:
        """Return how many products of a step are negative, for a group."""
        kernel, emit, builder = self.kernel, self.emit, self.builder
        row = self.rows[index]
        words = vector(I32, kernel.lanes)
        found: dict[int, ir.Value] = {}  # words of negative ones of A and of B share no k, so that they can be counted together
        for part, wanted, place in self._parts(number):
            if kernel.lanes == LINE:
                four = emit.load(vector(I32, 4), unit.words, kernel.left_words + 128 * part + 8 * row)
                spread = emit.shuffle(four, four, list(range(4)) * 4)
            else:
                spread = emit.broadcast(words, unit.words, kernel.left_words + 64 * part + 4 * row)
            chosen = emit.load(words, unit.right, kernel.right_words + 64 * part)
            if wanted is not None:
                chosen = emit.masked(chosen, wanted)
            both = builder.and_(spread, chosen)
            found[place] = builder.or_(found[place], both) if place in found else both
        counts = [emit.call("ctpop", both) for both in found.values()]
        return counts[0] if len(counts) == 1 else builder.add(*counts)

    def _parts(self, number: int) -> list[tuple[int, int | None, int]]:
        """The words with the signs of a step: which ones, their bits (None: all), and the 32 k that they are of."""
        kernel = self.kernel
        if kernel.word_of_step:
            return [(number, None, 0)]
        bits, whole = sum(1 << k for k in kernel.steps[number]), (1 << 32) - 1
        if kernel.words == 1:
            bits, whole = bits | bits << kernel.unit, (1 << 2 * kernel.unit) - 1
        halves = max(kernel.words // 2, 1)
        chosen = [(part, bits >> 32 * (part % halves) & whole, part % halves) for part in range(kernel.words)]
        return [(part, None if wanted == whole else wanted, place) for part, wanted, place in chosen if wanted]

    def multiply(self, unit: Unit, k: int) -> None:
        """Add the products of one k."""
        kernel, emit, kind = self.kernel, self.emit, self.lanes.kind
        vectors = COLUMNS // kind.count
        size = kind.count * kernel.value_bytes
        columns = [emit.load(kind, unit.right, (k * vectors + part) * size) for part in range(vectors)]
        for row in range(kernel.strip):
            element = emit.broadcast(kind, unit.values, kernel.place(row * kernel.unit + k) * kernel.value_bytes)
            group, part = self.groups[row // self.rows_of_group], row % self.rows_of_group
            for number, column in enumerate(columns, part * vectors):
                group[number] = emit.call("fma", element, column, group[number])

    def end(self, index: int, *, stored: bool = False) -> None:
        """Round a group at the end of a step; what is `stored` as f32 next is rounded then, toward zero as well."""
        whole = stored and not self.kernel.single and not self.kernel.half and self.kernel.keep_bits == 23
        self.groups[index] = self.lanes.end(self.groups[index], whole=whole)

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
            place = self._line(out, stride, row)
            emit.store(lanes.half_codes(value) if kernel.half else value, place)

    def variables(self) -> Variables:
        """Variables for the sums."""
        return Variables(self.builder, [[self.lanes.kind] * self.lanes.vectors for _ in self.groups])
