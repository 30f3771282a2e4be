"""A step of the fused dot-product-add in the lanes of vector registers: its start, its end, and its way to and from memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from llvmlite import ir

from fastmma.kernels.llvm.architecture import architecture_of
from fastmma.kernels.llvm.emit import F32, F64, HALF, I32, I64, Emitter, vector
from fastmma.kernels.llvm.kinds import constant

HALF_LOWEST = -14  # the exponent of f16's subnormals


class Sums(Protocol):
    """The facts that lanes need of the sums that they hold."""

    @property
    def align_bits(self) -> int: ...
    @property
    def keep_bits(self) -> int: ...
    @property
    def half(self) -> bool: ...  # round to f16 and keep f16 values between steps
    @property
    def single(self) -> bool: ...  # f32 lanes, else f64
    @property
    def lanes(self) -> int: ...  # columns in a group
    @property
    def excess(self) -> int: ...  # what an exponent byte holds above the exponent
    @property
    def lift(self) -> int: ...  # what an exponent field of a sum holds above the exponent byte
    @property
    def scale(self) -> int: ...  # sums are held times 2**scale
    @property
    def watched(self) -> bool: ...  # whether starts note the largest exponents of sums
    @property
    def growth(self) -> float: ...  # what steps multiply sums by, as B is multiplied; 0: the last bits of sums are set instead


@constant
@dataclass(frozen=True)
class PanelShape:
    """The packing of panels and the layout of their sums, for which the loops around a micro-kernel are compiled."""

    half: bool  # keep f16 values between steps
    single: bool  # f32 lanes, else f64
    vector_bytes: int
    rows: int
    groups: int  # of columns whose accumulators are in registers at a time
    depth: int  # of k in a slab
    sparse: bool  # whether A is, and has records of rows

    @property
    def lanes(self) -> int:
        """Columns in a group: the 32-bit lanes of a vector."""
        return self.vector_bytes // 4

    @property
    def panel(self) -> int:
        """Columns in a panel: the bytes of a vector."""
        return self.vector_bytes

    @property
    def tile(self) -> int:
        """Columns whose accumulators are in registers at a time."""
        return self.groups * self.lanes

    @property
    def value_bytes(self) -> int:
        """Size of a packed value."""
        return 4 if self.single else 8

    @property
    def left_bytes(self) -> int:
        """Bytes per k of a packed row of A: of its values, or of a record, which stores every other k."""
        return (self.value_bytes + 8) // 2 if self.sparse else self.value_bytes


@constant
@dataclass(frozen=True)
class PanelConfig(PanelShape):
    """The configuration of a micro-kernel."""

    terms: int  # of a step
    align_bits: int
    keep_bits: int
    floor: int  # exponent byte below which emax does not fall
    added: bool  # exponent bytes are added; else a saturating difference is taken

    @property
    def shape(self) -> PanelShape:
        """What the loops around it are compiled for."""
        return PanelShape(self.half, self.single, self.vector_bytes, self.rows, self.groups, self.depth, self.sparse)

    @property
    def sign_bytes(self) -> int:
        """Bytes of signs for one step."""
        return -(-self.terms // 8)

    @property
    def excess(self) -> int:
        """What an exponent byte holds above the exponent."""
        return 127 if self.single else 150

    @property
    def extra_bits(self) -> int:
        """B is packed times 1 + 2**-extra_bits."""
        return 16 if self.single else 30

    @property
    def scale(self) -> int:
        """Sums are held times 2**scale: in f64, so that their exponent fields are bytes of exponents; not where all go to memory as f32."""
        return 0 if self.single or self.sparse else self.excess - 1023

    @property
    def watched(self) -> bool:
        """True if starts note the largest exponents of sums."""
        return self.half

    @property
    def growth(self) -> float:
        """Zero: the last bits of sums are set."""
        return 0.0

    @property
    def lift(self) -> int:
        """What an exponent field of a sum holds above the exponent byte."""
        return 0 if self.single else 1023 - self.excess + self.scale


class Lanes:
    """A group of columns in registers: start of a step, and its end."""

    def __init__(self, config: Sums, emit: Emitter) -> None:
        self.config, self.emit, self.builder = config, emit, emit.builder
        self.vectors = 1 if config.single else 2
        self.words = vector(I32, config.lanes)
        self.whole = vector(I32, config.lanes) if config.single else vector(I64, config.lanes // 2)
        self.kind = vector(F32, config.lanes) if config.single else vector(F64, config.lanes // 2)
        self.fraction = 23 if config.single else 52
        self.field = 23 if config.single else 20  # where the exponent starts in the word that holds it

    def top_words(self, values: list[ir.Value]) -> ir.Value:
        """The words with sign and exponent, one a column."""
        words = [self.emit.cast(value, self.words) for value in values]
        if self.config.single:
            return words[0]
        lanes = self.config.lanes
        return self.emit.shuffle(
            words[0], words[1], [part + 4 * quad + odd for quad in range(lanes // 4) for part in (0, lanes) for odd in (1, 3)]
        )

    def doubles(self, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        """float64 lanes of columns from their low and high words, by the unpack instructions of 128-bit lanes."""
        lanes = range(self.config.lanes)
        picks = [[pick for lane in lanes if lane & 2 == part for pick in (lane, len(lanes) + lane)] for part in (0, 2)]
        return [self.emit.cast(self.emit.shuffle(low, high, pick), self.kind) for pick in picks]

    def start(self, values: list[ir.Value], emax: ir.Value, negatives: ir.Value, max_sum_exponent: ir.Value) -> list[ir.Value]:
        """Accumulators of a step that hold `values` already; emax and negatives are words."""
        emit, builder, field = self.emit, self.builder, self.field
        words = self.top_words(values)
        exponent = emit.masked(words, ((1 << 31) - 1) >> field << field)
        if self.config.watched:
            builder.store(emit.call("umax", builder.load(max_sum_exponent), exponent), max_sum_exponent)
        if self.config.half:
            lowest = emit.constant(self.words, (HALF_LOWEST + self.config.excess + self.config.lift) << field)
            zero = emit.constant(self.words, 0)
            nonzero = builder.icmp_unsigned(">", exponent, zero)  # whatever the sign: a zero may be negative here
            exponent = builder.select(nonzero, emit.call("umax", exponent, lowest), zero)
        emax = emit.shifted_left(emax, field)
        exponent = emit.call("umax", exponent, emit.plus(emax, self.config.lift << field) if self.config.lift else emax)
        return self.started(values, exponent, self._with_sums(negatives, words))

    def _with_sums(self, negatives: ir.Value, words: ir.Value) -> ir.Value:
        """The number of negative terms, sums included: a zero is none where sums are multiplied, as it stays zero."""
        emit, builder = self.emit, self.builder
        if not self.config.growth:
            return builder.add(negatives, emit.shifted_right(words, 31))
        kind = vector(F32, self.config.lanes)  # the upper word of a float64 is a float32 of the same sign, and zero if it is
        negative = builder.fcmp_ordered("<", emit.cast(words, kind), emit.constant(kind, 0.0))
        one = emit.constant(self.words, 1)
        if self.config.lanes == 16:
            (one,) = emit.pinned([one])  # a sum under a mask: of a constant LLVM would make the mask a vector
        return builder.add(negatives, builder.select(negative, one, ir.Constant(self.words, None)))

    def started(self, values: list[ir.Value], emax: ir.Value, negatives: ir.Value) -> list[ir.Value]:
        """The same from the exponent fields of emax, where sums have them, and the number of all terms that are negative."""
        emit, builder, field = self.emit, self.builder, self.field
        high = emit.plus(emax, ((self.fraction - self.config.align_bits) << field) + (1 << (field - 1)))
        starts = [emit.cast(builder.add(high, negatives), self.kind)] if self.config.single else self.doubles(negatives, high)
        if self.config.growth:
            growth = emit.constant(self.kind, self.config.growth)
            return [emit.call("fma", value, growth, begin) for value, begin in zip(values, starts, strict=True)]
        return [builder.fadd(value, begin) for value, begin in zip(values, starts, strict=True)]

    def end(self, sums: list[ir.Value], *, whole: bool = False) -> list[ir.Value]:
        """The rounded results of a step, or the `whole` ones that are not."""
        emit, builder = self.emit, self.builder
        kind = self.whole
        results = []
        for total in sums:
            # a sum never leaves the binade of its start, which is therefore its own exponent with half an ulp of that exponent
            bits = emit.cast(total, kind)
            origin = emit.masked(bits, -(1 << self.fraction))
            origin = builder.or_(origin, emit.constant(kind, 1 << (self.fraction - 1)))
            result = builder.fsub(total, emit.cast(origin, self.kind))
            results.append(result if self.config.half or whole else self.kept(result))
        if whole or self.config.growth:
            return results
        return self.with_sticky_bit(self._rounded_to_half(results) if self.config.half else results)

    def kept(self, value: ir.Value) -> ir.Value:
        """A value without the bits that a result has not."""
        bits = self.emit.masked(self.emit.cast(value, self.whole), -(1 << (self.fraction - self.config.keep_bits)))
        return self.emit.cast(bits, self.kind)

    def with_sticky_bit(self, values: list[ir.Value]) -> list[ir.Value]:
        """Values with their last bit, far below what they hold, set: floored sums count a negative one like a product of B's."""
        one = self.emit.constant(self.whole, 1)
        return [self.emit.cast(self.builder.or_(self.emit.cast(value, self.whole), one), self.kind) for value in values]

    def _rounded_to_half(self, values: list[ir.Value]) -> list[ir.Value]:
        """Rounded to nearest even, whatever the mode in force."""
        if self.config.single:
            return [self._through_half(values[0])]
        emit, builder = self.emit, self.builder
        whole = vector(I64, self.config.lanes // 2)
        low = (1 << 29) - 1
        parts = []
        for value in values:
            # to f32 with the last bit set when anything is lost, so that the second rounding sees which side of a tie it is on
            bits = emit.cast(builder.fmul(value, emit.constant(self.kind, 2.0**-self.config.scale)), whole)
            bits = builder.or_(bits, emit.plus(emit.masked(bits, low), low))
            parts.append(builder.fptrunc(emit.cast(emit.masked(bits, ~low), self.kind), vector(F32, whole.count)))
        lanes = range(self.config.lanes)
        single = self._through_half(emit.shuffle(parts[0], parts[1], lanes))
        return [
            builder.fmul(builder.fpext(emit.shuffle(single, single, lanes[part : part + whole.count]), self.kind), self._scale(1))
            for part in (0, whole.count)
        ]

    def _scale(self, power: int) -> ir.Constant:
        return self.emit.constant(self.kind, 2.0 ** (power * self.config.scale))

    def _scales(self, power: int) -> tuple[ir.Constant, ...]:
        return (self._scale(power),) if self.config.scale else ()

    def _through_half(self, value: ir.Value) -> ir.Value:
        """f32 lanes rounded to f16 values."""
        emit, builder = self.emit, self.builder
        pieces = []
        for lane in range(0, self.config.lanes, 8):
            codes = self._half_codes(emit.shuffle(value, value, range(lane, lane + 8)))
            pieces.append(builder.fpext(emit.cast(codes, vector(HALF, 8)), vector(F32, 8)))
        return pieces[0] if len(pieces) == 1 else emit.shuffle(pieces[0], pieces[1], range(16))

    def _half_codes(self, value: ir.Value) -> ir.Value:
        """The f16 codes of 8 f32 lanes, to nearest even, whatever the mode in force."""
        return architecture_of(self.builder.module).half_codes(self.builder, value)

    def half_codes(self, value: ir.Value) -> ir.Value:
        """The f16 codes of 8 f32 lanes that hold f16 values; a zero is +0, also what rounded to it from below."""
        codes = self._half_codes(value)
        zero = ir.Constant(codes.type, None)
        real = self.builder.icmp_unsigned("!=", self.emit.masked(codes, 0x7FFF), zero)
        return self.builder.select(real, codes, zero)


class ColumnLanes(Lanes):
    """Adjacent columns, and their way to and from float32."""

    def __init__(self, config: Sums, emit: Emitter) -> None:
        super().__init__(config, emit)
        lanes = range(config.lanes)
        # columns in the order of the packed values: two, then two of the other vector
        self.order = tuple(lanes) if config.single else tuple(column for part in (0, 2) for column in lanes if column & 2 == part)

    def load(self, state: ir.Value, offset: ir.Value, factors: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """Sums from float32 in memory, times `factors` (2**scale)."""
        singles = self.emit.load(vector(F32, self.config.lanes), state, offset, 4 * self.config.lanes)
        if self.config.single:
            return [singles]
        count = self.config.lanes // 2
        pieces = [self.emit.shuffle(singles, singles, self.order[part : part + count]) for part in (0, count)]
        return self._times([self.builder.fpext(piece, self.kind) for piece in pieces], factors or self._scales(1))

    def store(self, values: list[ir.Value], state: ir.Value, offset: ir.Value, factors: Sequence[ir.Value] = ()) -> None:
        """Sums, times `factors` (2**-scale), to float32 in memory, where they fit exactly."""
        if not self.config.single:
            pieces = [
                self.builder.fptrunc(value, vector(F32, self.config.lanes // 2))
                for value in self._times(values, factors or self._scales(-1))
            ]
            values = [self.emit.shuffle(pieces[0], pieces[1], [self.order.index(column) for column in range(self.config.lanes)])]
        else:
            values = [self.emit.cast(self.emit.masked(self.emit.cast(values[0], self.words), -2), self.kind)]
        self.emit.store(values[0], state, offset, 4 * self.config.lanes)

    def _times(self, values: list[ir.Value], factors: Sequence[ir.Value]) -> list[ir.Value]:
        for factor in factors:
            values = [self.builder.fmul(value, factor) for value in values]
        return values
