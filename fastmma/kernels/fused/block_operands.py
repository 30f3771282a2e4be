"""Decoding for the kernel of `fastmma.kernels.fused.block_kernel`: a unit of a block of A's rows, or of a panel of B's columns, from codes.

Of every element there are its value, an exponent byte, and bits that say whether it is negative and whether it is positive. Code is
emitted in pieces, between which a caller may put other work; masks go through memory, where the next piece finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from fastmma.kernels.decode.emit import decoder_of, half_codes, singles
from fastmma.kernels.fused.blocks import COLUMNS, ROWS, BlockConfig, BlockElementSpec
from fastmma.kernels.llvm.building import alloca_once
from fastmma.kernels.llvm.emit import F64, I8, I16, I32, I64, Emitter, vector

LINE = 16  # results whose exponent bytes share 128 bits: two rows
VALUES_AT_ONCE = 32  # codes

Emission = Callable[[], None]


def gathered(emit: Emitter, sources: Sequence[ir.Value], picks: Sequence[tuple[int, int]]) -> ir.Value:
    """A vector of the lanes (source, lane)."""
    used = sorted({source for source, _ in picks})
    if len(used) <= 2:
        first, second = used[0], used[-1]
        width = sources[0].type.count
        return emit.shuffle(sources[first], sources[second], [lane + (width if source != first else 0) for source, lane in picks])
    half = set(used[: (len(used) + 1) // 2])
    parts = []
    for keep in (True, False):
        chosen = [pick if (pick[0] in half) == keep else None for pick in picks]
        spare = next(pick for pick in chosen if pick is not None)
        parts.append(gathered(emit, sources, [pick or spare for pick in chosen]))
    return emit.shuffle(parts[0], parts[1], [place + (0 if pick[0] in half else len(picks)) for place, pick in enumerate(picks)])


class Decoder:
    """Decodes one operand; `lines` is how many rows of A or columns of B there are."""

    def __init__(self, config: BlockConfig, spec: BlockElementSpec, emit: Emitter) -> None:
        self.config, self.spec, self.emit, self.builder = config, spec, emit, emit.builder
        self.element = spec.element
        self.decoder = decoder_of(emit, spec.element)
        self.bytes = vector(I8, config.byte_vector)
        self.largest = alloca_once(self.builder, self.bytes)
        self.smallest = alloca_once(self.builder, self.bytes)

    def forget(self) -> None:
        """Forget all extremes."""
        self.builder.store(ir.Constant(self.bytes, None), self.largest)
        self.builder.store(self.emit.constant(self.bytes, 255), self.smallest)

    def note(self, values: ir.Value, variable: ir.Value, which: str) -> None:
        """Count bytes in."""
        copies = self.config.byte_vector // values.type.count
        if copies > 1:
            values = self.emit.shuffle(values, values, list(range(values.type.count)) * copies)
        self.builder.store(self.emit.call(which, self.builder.load(variable), values), variable)

    def note_exponents(self, exponents: ir.Value) -> None:
        """Count exponent bytes, 0 for zeros, in."""
        if self.spec.bad_byte is not None:
            self.note(exponents, self.largest, "umax")
        if self.config.lowest_sum:
            self.note(self.emit.plus(exponents, -1), self.smallest, "umin")  # a zero's is the largest of all

    def bad(self) -> ir.Value:
        """Tell whether there was a bad magnitude."""
        limit = self.spec.first_bad if self.spec.bad_byte is None else self.spec.bad_byte
        if limit > 255:
            return ir.Constant(ir.IntType(1), 0)
        largest = self.builder.load(self.largest)
        return self.emit.any_lane(self.builder.icmp_unsigned(">=", largest, self.emit.constant(self.bytes, limit)))

    def least(self) -> ir.Value:
        """The smallest exponent byte less 1, as a word; 255 if all are zeros."""
        return self.builder.zext(self.emit.reduced("umin", self.builder.load(self.smallest)), I32)

    def values(self, place: ir.Value, offset: int) -> list[ir.Value]:
        """The next `VALUES_AT_ONCE` adjacent codes as f32 or f64 values, times 2**-decoded_scale, 8 or 16 at a time."""
        emit, element = self.emit, self.element
        size, wide = element.itemsize, 16 if self.config.single and self.config.byte_vector == 64 else 8
        if size == 1 and element.through_half:
            halves = half_codes(emit, element, emit.load(vector(I8, VALUES_AT_ONCE), place, offset))
            parts = [emit.shuffle(halves, halves, range(first, first + wide)) for first in range(0, VALUES_AT_ONCE, wide)]
        else:
            places = range(offset, offset + VALUES_AT_ONCE, wide)
            parts = [emit.load(vector(ir.IntType(8 * size), wide), place, start * size) for start in places]
        values = [singles(emit, element, part) for part in parts]
        return values if self.config.single else [self.builder.fpext(value, vector(F64, wide)) for value in values]

    def codes(self, place: ir.Value, offset: int) -> ir.Value:
        """A vector of codes, shifted down."""
        size = self.spec.itemsize
        codes = self.emit.load(vector(ir.IntType(8 * size), self.config.byte_vector // size), place, offset)
        return self.emit.shifted_right(codes, self.element.shift) if self.element.shift else codes

    def magnitude(self, codes: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Magnitudes, and where they are not zero."""
        magnitude = self.decoder.magnitude(codes)
        if self.spec.bad_byte is None and self.spec.first_bad <= 255:
            self.note(magnitude, self.largest, "umax")
        return magnitude, self.decoder.nonzero(magnitude)

    def exponents(self, magnitude: ir.Value, nonzero: ir.Value) -> ir.Value:
        """Exponent bytes, 0 for zeros."""
        emit, builder, bits = self.emit, self.builder, self.element.mantissa_bits
        kind = magnitude.type
        if self.spec.normal:
            field = self.decoder.bare_field(magnitude)
            one = emit.constant(kind, 1)
            for power in range(1, bits):
                below = builder.icmp_unsigned("<", magnitude, emit.constant(kind, 1 << power))
                field = builder.select(below, builder.sub(field, one), field)
        else:
            field = self.decoder.field(magnitude)
        field = emit.plus(field, self.spec.byte_offset)
        if (1 << self.element.exponent_bits) - 1 + self.spec.byte_offset > 255:
            field = emit.call("umin", field, emit.constant(kind, 255))
        byte = builder.select(nonzero, field, ir.Constant(kind, None))
        return byte if self.spec.itemsize == 1 else builder.trunc(byte, vector(I8, kind.count))

    def signs(self, codes: ir.Value, nonzero: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Masks of the negative and of the positive elements."""
        negative = self.decoder.negative(codes)
        return self.builder.and_(negative, nonzero), self.builder.and_(self.builder.not_(negative), nonzero)

    def store_mask(self, mask: ir.Value, target: ir.Value, offset: int) -> None:
        """A mask as bits."""
        self.emit.store(self.emit.cast(mask, ir.IntType(mask.type.count)), target, offset)


class LeftDecoder(Decoder):
    """Decodes blocks of A."""

    def emissions(self, place: ir.Value, target: ir.Value) -> list[Emission]:
        """A unit of a block."""
        config, unit = self.config, self.config.unit
        found: list[ir.Value] = []
        size = config.byte_vector
        per_vector = size // self.spec.itemsize
        values, at_once = (self._pairs, 2 * unit) if config.paired else (self._values, VALUES_AT_ONCE)
        return [
            *(partial(values, place, target, first) for first in range(0, ROWS * unit, at_once)),
            *(partial(self._exponents, place, target, first, found) for first in range(0, ROWS * unit, per_vector)),
            *(partial(self._arranged, target, number, found) for number in range(ROWS * unit // size)),
        ]

    def words(self, target: ir.Value) -> list[list[Emission]]:
        """Words of signs from a unit's masks, which take a while to reach memory."""
        return [[partial(self._words, target)]]

    def _values(self, place: ir.Value, target: ir.Value, first: int) -> None:
        offset = first * self.config.value_bytes
        if self.config.raw:
            for value in self._raw(place, first):
                self.emit.store(value, target, offset)
                offset += 64
            return
        for value in self.values(place, first):
            self.emit.store(value, target, offset)
            offset += value.type.count * self.config.value_bytes

    def _pairs(self, place: ir.Value, target: ir.Value, first: int) -> None:
        """Two rows, element by element, in the order of unpack instructions."""
        emit, count = self.emit, 2 * self.config.unit
        values = [value for start in range(first, first + count, VALUES_AT_ONCE) for value in self.values(place, start)]
        offset = first * self.config.value_bytes
        for upper, lower in zip(values[: len(values) // 2], values[len(values) // 2 :], strict=True):
            for part in (0, 2):
                picks = [pick for lane in range(0, 16, 4) for word in range(part, part + 2) for pick in (lane + word, 16 + lane + word)]
                emit.store(emit.shuffle(upper, lower, picks), target, offset)
                offset += 64

    def _raw(self, place: ir.Value, first: int) -> list[ir.Value]:
        """The next `VALUES_AT_ONCE` codes of 16 bits as f64 of the lowest exponents, in the order of unpack instructions."""
        emit, builder, kind = self.emit, self.builder, vector(I16, VALUES_AT_ONCE)
        down = 11 - self.element.exponent_bits
        codes = emit.load(kind, place, 2 * first)
        high = emit.masked(builder.ashr(codes, emit.constant(kind, down)), 0x7FFF >> down | 0x8000)
        low = emit.shifted_left(codes, 16 - down)
        zero = emit.constant(vector(I32, 16), 0)
        found = []
        for half in (0, 4):
            picks = [pick for lane in range(0, 32, 8) for word in range(half, half + 4) for pick in (lane + word, 32 + lane + word)]
            words = emit.cast(emit.shuffle(low, high, picks), zero.type)
            for part in (0, 2):
                picks = [pick for lane in range(0, 16, 4) for word in range(part, part + 2) for pick in (lane + word, 16 + lane + word)]
                found.append(emit.shuffle(zero, words, picks))
        return found

    def _exponents(self, place: ir.Value, target: ir.Value, first: int, found: list[ir.Value]) -> None:
        codes = self.codes(place, first * self.spec.itemsize)
        magnitude, nonzero = self.magnitude(codes)
        found.append(self.exponents(magnitude, nonzero))
        masks = self.config.left_masks
        for mask, offset in zip(self.signs(codes, nonzero), (masks, masks + ROWS * self.config.unit // 8), strict=True):
            self.store_mask(mask, target, offset + first // 8)

    def _arranged(self, target: ir.Value, number: int, found: list[ir.Value]) -> None:
        """Eights of k: all rows of the first, then all rows of the next."""
        config, emit = self.config, self.emit
        eights = [emit.cast(each, vector(I64, each.type.count // 8)) for each in found]
        width, count = eights[0].type.count, config.byte_vector // 8
        places = range(number * count, (number + 1) * count)
        positions = [place % ROWS * (config.unit // 8) + place // ROWS for place in places]
        arranged = emit.cast(gathered(emit, eights, [divmod(position, width) for position in positions]), self.bytes)
        self.note_exponents(arranged)
        emit.store(arranged, target, config.values_size + number * config.byte_vector)

    def _words(self, target: ir.Value) -> None:
        """The rows' bits as words, as often as a group has columns of them."""
        config, emit, builder = self.config, self.emit, self.builder
        source = emit.opaque(target)
        kind = vector(ir.IntType(config.unit), ROWS)
        masks = [emit.load(kind, source, config.left_masks + part * ROWS * config.unit // 8) for part in (0, 1)]
        if config.word_of_step:
            each = ROWS * config.words
            negative, positive = (emit.cast(mask, vector(I16, each)) for mask in masks)
            places = [range(step, each, config.words) for step in range(config.words)]
            pairs = [emit.shuffle(negative, positive, [place + sign for place in step for sign in (0, each)]) for step in places]
            words = [emit.cast(pair, vector(I32, ROWS)) for pair in pairs]
        elif config.unit > 32:
            halves = [emit.cast(mask, vector(I32, 2 * ROWS)) for mask in masks]
            words = [emit.shuffle(half, half, range(part, 2 * ROWS, 2)) for half in halves for part in (0, 1)]
        else:
            words = [mask if config.unit == 32 else builder.zext(mask, vector(I32, ROWS)) for mask in masks]
        if config.words == 1:
            words = [builder.or_(words[0], emit.shifted_left(words[1], config.unit))]
        offset = config.left_words
        for word in words:
            if config.lanes == LINE:
                for first in (0, ROWS // 2):
                    rows = [first + row + place for row in range(0, ROWS // 2, 2) for place, _ in config.places[:4]]
                    emit.store(emit.shuffle(word, word, rows), target, offset)
                    offset += 64
            else:
                emit.store(word, target, offset)
                offset += 64


class RightDecoder(Decoder):
    """Decodes panels of B."""

    def emissions(self, place: ir.Value, target: ir.Value) -> list[Emission]:
        """A unit of a panel."""
        config, unit = self.config, self.config.unit
        per_vector = config.byte_vector // self.spec.itemsize
        return [
            *(partial(self._values, place, target, first) for first in range(0, COLUMNS * unit, VALUES_AT_ONCE)),
            *(partial(self._exponents, place, target, first) for first in range(0, COLUMNS * unit, per_vector)),
        ]

    def words(self, target: ir.Value) -> list[list[Emission]]:
        """Words of signs from a unit's masks, which take a while to reach memory, twice."""
        return [[partial(self._bits, target, part) for part in range(self.config.words)], [partial(self._words, target)]]

    def _values(self, place: ir.Value, target: ir.Value, first: int) -> None:
        config = self.config
        growth = (1 + 2.0**-config.extra_bits) * 2.0**config.decoded_scale
        offset = first * config.value_bytes * (2 if config.paired else 1)
        for value in self.values(place, first):
            scaled = self.builder.fmul(value, self.emit.constant(value.type, growth))
            for part in self._twice(scaled) if config.paired else (scaled,):
                self.emit.store(part, target, offset)
                offset += value.type.count * config.value_bytes

    def _twice(self, value: ir.Value) -> list[ir.Value]:
        """Every lane of a vector twice."""
        lanes = [lane for lane in range(value.type.count) for _ in (0, 1)]
        return [self.emit.shuffle(value, value, part) for part in (lanes[: len(lanes) // 2], lanes[len(lanes) // 2 :])]

    def _exponents(self, place: ir.Value, target: ir.Value, first: int) -> None:
        config, emit = self.config, self.emit
        codes = self.codes(place, first * self.spec.itemsize)
        magnitude, nonzero = self.magnitude(codes)
        exponents = self.exponents(magnitude, nonzero)
        self.note_exponents(exponents)
        if not config.least_sum:
            exponents = self.builder.not_(exponents)
        order = [column for _, column in config.places]
        half = config.byte_vector // 2
        for start in range(0, exponents.type.count, half):
            lanes = [k + column for k in range(start, min(start + half, exponents.type.count), COLUMNS) for column in order]
            emit.store(emit.shuffle(exponents, exponents, lanes), target, config.right_exponents + 2 * (first + start))
        negatives, positives = self.signs(codes, nonzero)
        for mask, offset in ((positives, config.right_masks), (negatives, config.right_masks + config.unit)):
            self.store_mask(mask, target, offset + first // 8)

    def _bits(self, target: ir.Value, part: int) -> None:
        """From bytes whose bits are columns, the bits of each column."""
        config, emit, builder = self.config, self.emit, self.builder
        count = 2 * config.unit // config.words
        source = emit.opaque(target)
        if config.word_of_step:
            positive, negative = (emit.load(vector(I8, 16), source, config.right_masks + sign * config.unit + 16 * part) for sign in (0, 1))
            rows = emit.shuffle(positive, negative, range(count))
        else:
            rows = emit.load(vector(I8, count), source, config.right_masks + part * count)
        at_once = config.byte_vector // count
        repeated = emit.shuffle(rows, rows, list(range(count)) * at_once)
        for first in range(0, COLUMNS, at_once):
            tests = ir.Constant(repeated.type, [1 << column for column in range(first, first + at_once) for _ in range(count)])
            found = builder.icmp_unsigned("!=", builder.and_(repeated, tests), ir.Constant(repeated.type, None))
            self.store_mask(found, target, config.right_bits + (part * COLUMNS + first) * count // 8)

    def _words(self, target: ir.Value) -> None:
        """The columns' bits as words, at the lanes of a line."""
        config, emit, builder = self.config, self.emit, self.builder
        count = 2 * config.unit // config.words
        source = emit.opaque(target)
        for part in range(config.words):
            bits = emit.load(vector(ir.IntType(count), COLUMNS), source, config.right_bits + part * COLUMNS * count // 8)
            words = bits if count == 32 else builder.zext(bits, vector(I32, COLUMNS))
            lanes = [column for _, column in config.places]
            emit.store(emit.shuffle(words, words, lanes), target, config.right_words + 64 * part)
