"""Some rows of a block of 16 rows by 8 columns: their sums between memory, the starts of steps, products and ends."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fastmma.kernels.fused.block_operands import LINE
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockConfig
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

    def __init__(self, config: BlockConfig, lanes: Lanes, first: ir.Value, max_sum_exponent: ir.Value) -> None:
        self.config, self.lanes, self.emit, self.builder = config, lanes, lanes.emit, lanes.emit.builder
        self.first, self.max_sum_exponent = first, max_sum_exponent
        self.lines = [config.line(number) for number in range(config.strip * COLUMNS // config.lanes)]  # the rows of each group
        self.groups: list[Group] = [[] for _ in self.lines]

    def unit(self, left: ir.Value, right: ir.Value, emax: ir.Value) -> Unit:
        """The unit whose A, B and emax begin here."""
        config = self.config
        values = self._row(left, config.unit * config.value_bytes)
        return Unit(values, self._row(left, 8 if config.lanes == LINE else 4), right, self._row(emax, COLUMNS))

    def _row(self, base: ir.Value, size: int) -> ir.Value:
        """The place of the first row, if rows are `size` bytes apart."""
        return self.emit.at(base, self.emit.scaled(self.first, size))

    def load(self, index: int, c: ir.Value, stride: ir.Value) -> None:
        """The sums of a group from c."""
        config, emit, builder = self.config, self.emit, self.builder
        rows, codes = [], []
        for row in self.lines[index]:
            place = self._line(c, stride, row)
            if config.half:
                value = builder.fpext(emit.load(vector(HALF, COLUMNS), place), vector(F32, COLUMNS))
            else:
                bits = emit.load(vector(I32, COLUMNS), place)
                codes.append(bits if config.mask_c == -1 else emit.masked(bits, config.mask_c))
                value = emit.cast(codes[-1], vector(F32, COLUMNS))
            rows.append(value if config.single else builder.fpext(value, vector(F64, COLUMNS)))
        if config.paired:
            rows = [emit.shuffle(rows[0], rows[1], [lane + part for lane in range(COLUMNS) for part in (0, COLUMNS)])]
        if not config.single and config.lanes == COLUMNS:
            rows = [emit.shuffle(rows[0], rows[0], range(part, part + 4)) for part in (0, 4)]
        self.groups[index] = rows if config.growth else self.lanes.with_sticky_bit(rows)
        if config.single and not config.watched:
            self._note(emit.cast(rows[0], self.lanes.words), 31)  # a subnormal c has to be told from zero
        elif config.notes_singles:
            adjacent = isinstance(stride, ir.Constant)  # rows may be read as one, whichever ones they are
            row = index * len(codes)
            self._note(emit.load(self.lanes.words, self._line(c, stride, row)) if adjacent else emit.joined(codes), 31)
        elif not config.watched:
            self._note(self.lanes.top_words(rows), 11)

    def _line(self, base: ir.Value, stride: ir.Value, row: int) -> ir.Value:
        """A row of c or of the results."""
        return self.emit.at(base, self.builder.mul(self.emit.sum(self.first, row), stride))

    def _note(self, words: ir.Value, bits: int) -> None:
        """Track the largest exponent of c, by so many bits after the sign.

        The difference of one that is too small wraps to a large number; that of zero does not count.
        """
        emit, builder, lanes = self.emit, self.builder, self.lanes
        exponent = emit.masked(words, (1 << 31) - (1 << 31 - bits))
        if self.config.smallest_c:
            zero = ir.Constant(lanes.words, None)
            above = emit.plus(exponent, -(self.config.smallest_c << lanes.field))
            exponent = builder.select(builder.icmp_unsigned("!=", exponent, zero), above, zero)
        builder.store(emit.call("umax", builder.load(self.max_sum_exponent), exponent), self.max_sum_exponent)

    def start(self, index: int, unit: Unit, number: int) -> None:
        """Start a group's step of a unit."""
        config, emit = self.config, self.emit
        exponents = emit.widened(emit.load(vector(I8, config.lanes), unit.emax, number * ROWS * COLUMNS + index * config.lanes))
        negatives = self._negatives(unit, index, number)
        self.groups[index] = self.lanes.start(self.groups[index], exponents, negatives, self.max_sum_exponent)

    def _negatives(self, unit: Unit, index: int, number: int) -> ir.Value:
        """Return how many products of a step are negative, for a group."""
        config, emit, builder = self.config, self.emit, self.builder
        words = vector(I32, config.lanes)
        found: dict[int, ir.Value] = {}  # words of negative ones of A and of B share no k, so that they can be counted together
        for part, wanted, place in self._parts(number):
            if config.lanes == LINE:
                four = emit.load(vector(I32, 4), unit.words, config.left_words + 128 * part + 16 * index)
                spread = emit.shuffle(four, four, list(range(4)) * 4)
            else:
                spread = emit.broadcast(words, unit.words, config.left_words + 64 * part + 4 * index)
            if config.in_bytes:  # words of columns are there for each step
                chosen = emit.load(words, unit.right, config.right_words + 64 * number)
                return emit.call("ctpop", builder.and_(spread, chosen))
            chosen = emit.load(words, unit.right, config.right_words + 64 * part)
            if wanted is not None:
                chosen = emit.masked(chosen, wanted)
            both = builder.and_(spread, chosen)
            found[place] = builder.or_(found[place], both) if place in found else both
        counts = [emit.call("ctpop", both) for both in found.values()]
        return counts[0] if len(counts) == 1 else builder.add(*counts)

    def _parts(self, number: int) -> list[tuple[int, int | None, int]]:
        """The words with the signs of a step: which ones, their bits (None: all), and the 32 k that they are of."""
        config = self.config
        if config.word_of_step:
            return [(number, None, 0)]
        bits, whole = sum(1 << k for k in config.steps[number]), (1 << 32) - 1
        if config.words == 1:
            bits, whole = bits | bits << config.unit, (1 << 2 * config.unit) - 1
        halves = max(config.words // 2, 1)
        chosen = [(part, bits >> 32 * (part % halves) & whole, part % halves) for part in range(config.words)]
        return [(part, None if wanted == whole else wanted, place) for part, wanted, place in chosen if wanted]

    def multiply(self, unit: Unit, k: int) -> None:
        """Add the products of one k."""
        config, emit, kind = self.config, self.emit, self.lanes.kind
        if config.paired:
            self._multiply_pairs(unit, k)
            return
        vectors = COLUMNS // kind.count
        size = kind.count * config.value_bytes
        columns = [emit.load(kind, unit.right, (k * vectors + part) * size) for part in range(vectors)]
        for group, rows in zip(self.groups, self.lines, strict=True):
            for part, row in enumerate(rows):
                element = emit.broadcast(kind, unit.values, config.place(row * config.unit + k) * config.value_bytes)
                for number, column in enumerate(columns, part * vectors):
                    group[number] = emit.call("fma", element, column, group[number])

    def _multiply_pairs(self, unit: Unit, k: int) -> None:
        """Add the products of one k, those of two rows at once."""
        config, emit, kind = self.config, self.emit, self.lanes.kind
        columns = emit.load(kind, unit.right, k * kind.count * config.value_bytes)
        for group, rows in zip(self.groups, self.lines, strict=True):
            pair = emit.broadcast(vector(F64, kind.count // 2), unit.values, config.place(rows[0] * config.unit + k) * config.value_bytes)
            group[0] = emit.call("fma", emit.cast(pair, kind), columns, group[0])

    def end(self, index: int, *, stored: bool = False) -> None:
        """Round a group at the end of a step; what is `stored` as f32 next is rounded then, toward zero as well."""
        whole = stored and not self.config.single and not self.config.half and self.config.keep_bits == 23
        self.groups[index] = self.lanes.end(self.groups[index], whole=whole)

    def store(self, index: int, out: ir.Value, stride: ir.Value) -> None:
        """A group's results to out."""
        config, emit, builder, lanes = self.config, self.emit, self.builder, self.lanes
        values = self.groups[index]
        if config.half:
            exponent = emit.masked(lanes.top_words(values), ((1 << 31) - 1) >> lanes.field << lanes.field)
            builder.store(emit.call("umax", builder.load(self.max_sum_exponent), exponent), self.max_sum_exponent)
        if config.single:
            singles = [emit.cast(emit.masked(emit.cast(values[0], lanes.words), -2), lanes.kind)]
        else:
            singles = [builder.fptrunc(value, vector(F32, value.type.count)) for value in values]
            if config.lanes == COLUMNS:
                singles = [emit.shuffle(singles[0], singles[1], range(COLUMNS))]
        if config.paired:
            rows = emit.shuffle(singles[0], singles[0], [lane for row in (0, 1) for lane in range(row, 2 * COLUMNS, 2)])
            (rows,) = emit.pinned([rows])  # one permutation, of which LLVM would make two
            singles = [emit.shuffle(rows, rows, range(first, first + COLUMNS)) for first in (0, COLUMNS)]
        for row, value in zip(self.lines[index], singles, strict=True):
            place = self._line(out, stride, row)
            emit.store(lanes.half_codes(value) if config.half else value, place)

    def variables(self) -> Variables:
        """Variables for the sums."""
        return Variables(self.builder, [[self.lanes.kind] * self.lanes.vectors for _ in self.groups])
