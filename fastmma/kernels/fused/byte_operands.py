"""Decoding of f16 for the kernel of `fastmma.kernels.fused.block_kernel`: exponents and signs of two vectors of codes as the bytes of one.

The higher byte of a code holds its sign and its exponent. Bytes of the first vector alternate with those of the second one, and so do their
bits in masks. In a word of signs bit 2 * k says that an element of A is negative, or one of B positive, and the next one the opposite.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir

from fastmma.kernels.fused.block_operands import Decoder, Emission, LeftDecoder, RightDecoder
from fastmma.kernels.fused.blocks import COLUMNS, ROWS
from fastmma.kernels.llvm.emit import I8, I16, I32, I64, vector

_CODES, _BYTES = vector(I16, 32), vector(I8, 64)
_EVEN = 0x5555555555555555
_DEPTH = 16  # of a unit


def _exponents_of(decoder: Decoder, place: ir.Value, offset: int, target: ir.Value, masks: int) -> ir.Value:
    """The exponent bytes of two vectors of codes; masks of those that are not zero and of negative ones go to memory."""
    emit, builder, element = decoder.emit, decoder.builder, decoder.element
    first, second = (emit.load(_CODES, place, offset + part) for part in (0, 64))
    # LLVM would see permutations of bytes of two registers, which are three instructions inside
    down, up = emit.pinned([emit.shifted_right(first, 8), emit.shifted_left(second, 8)])
    high = emit.cast(builder.or_(down, emit.masked(second, 0xFF00)), _BYTES)
    low = emit.cast(builder.or_(up, emit.masked(first, 0x00FF)), _BYTES)
    zero = ir.Constant(_BYTES, None)
    nonzero = builder.icmp_unsigned("!=", builder.or_(emit.masked(high, 0x7F), low), zero)
    field = emit.masked(emit.shifted_right(high, element.mantissa_bits - 8), (1 << element.exponent_bits) - 1)
    byte = emit.plus(decoder.decoder.raised(field), decoder.spec.byte_offset)
    decoder.store_mask(nonzero, target, masks)
    decoder.store_mask(builder.icmp_signed("<", high, zero), target, masks + 8)
    return builder.select(nonzero, byte, zero)


class LeftBytes(LeftDecoder):
    """Decodes blocks of A, of which a pair of vectors has four rows: the first and the third alternate, the second and the fourth."""

    def emissions(self, place: ir.Value, target: ir.Value) -> list[Emission]:
        """A unit of a block."""
        found: list[ir.Value] = []
        pairs = range(ROWS // 4)
        return [
            *(partial(self._values, place, target, first) for first in range(0, ROWS * _DEPTH, 32)),
            *(partial(self._pair, place, target, number, found) for number in pairs),
            *(partial(self._arranged, target, number, found) for number in pairs),
        ]

    def _pair(self, place: ir.Value, target: ir.Value, number: int, found: list[ir.Value]) -> None:
        found.append(_exponents_of(self, place, 128 * number, target, self.config.left_masks + 16 * number))

    def _arranged(self, target: ir.Value, number: int, found: list[ir.Value]) -> None:
        """Eights of k: two rows in 16 bytes, of all rows the first ones, then the next ones."""
        emit, kind = self.emit, vector(I64, 8)
        first, second = (emit.cast(each, kind) for each in found[number % 2 * 2 :][:2])
        half = number // 2 * 2
        picks = [half, half + 1, half + 4, half + 5]
        arranged = emit.cast(emit.shuffle(first, second, [*picks, *(8 + pick for pick in picks)]), _BYTES)
        self.note_exponents(arranged)
        emit.store(arranged, target, self.config.values_size + 64 * number)

    def _words(self, target: ir.Value) -> None:
        """The rows' bits as words: a line has those of its two rows twice."""
        emit, builder = self.emit, self.builder
        masks = emit.load(vector(I64, ROWS // 2), emit.opaque(target), self.config.left_masks)
        nonzero, signs = (emit.shuffle(masks, masks, range(part, ROWS // 2, 2)) for part in (0, 1))
        negative, positive = builder.and_(nonzero, signs), builder.and_(nonzero, builder.not_(signs))
        even = builder.or_(emit.masked(negative, _EVEN), emit.shifted_left(emit.masked(positive, _EVEN), 1))
        odd = builder.or_(emit.masked(emit.shifted_right(negative, 1), _EVEN), emit.masked(positive, _EVEN << 1))
        rows, others = (emit.cast(each, vector(I32, ROWS // 2)) for each in (even, odd))
        for number in (0, 1):
            lines = [pick for line in range(4 * number, 4 * number + 4) for pick in (line, line, ROWS // 2 + line, ROWS // 2 + line)]
            emit.store(emit.shuffle(rows, others, lines), target, self.config.left_words + 64 * number)


class RightBytes(RightDecoder):
    """Decodes panels of B, of which a pair of vectors has eight k: the first four alternate with the others."""

    def emissions(self, place: ir.Value, target: ir.Value) -> list[Emission]:
        """A unit of a panel."""
        return [
            *(partial(self._values, place, target, first) for first in range(0, COLUMNS * _DEPTH, 32)),
            *(partial(self._pair, place, target, number) for number in range(COLUMNS * _DEPTH // 64)),
        ]

    def words(self, target: ir.Value) -> list[list[Emission]]:
        """Words of signs from a unit's masks, which take a while to reach memory, three times."""
        return [[partial(self._signs, target)], [partial(self._bits, target, half) for half in (0, 1)], [partial(self._words, target)]]

    def _pair(self, place: ir.Value, target: ir.Value, number: int) -> None:
        config, emit = self.config, self.emit
        exponents = _exponents_of(self, place, 128 * number, target, config.right_masks + 16 * number)
        self.note_exponents(exponents)
        if not config.least_sum:
            exponents = self.builder.not_(exponents)
        order = [column for _, column in config.places]
        for part in (0, 1):
            lines = [lane + 2 * column + part for lane in range(0, 64, 16) for column in order]
            emit.store(emit.shuffle(exponents, exponents, lines), target, config.right_exponents + 128 * number + 64 * part)

    def _signs(self, target: ir.Value) -> None:
        """Bits of positive elements, then of negative ones, of each pair of vectors."""
        emit, builder = self.emit, self.builder
        source = emit.opaque(target)
        for place in range(self.config.right_masks, self.config.right_masks + 32, 16):
            nonzero, signs = (emit.load(I64, source, place + part) for part in (0, 8))
            emit.store(builder.and_(nonzero, builder.not_(signs)), target, place + 32)
            emit.store(builder.and_(nonzero, signs), target, place + 40)

    def _bits(self, target: ir.Value, half: int) -> None:
        """The bits of four columns: each column's of all k, as a word."""
        config, emit, builder = self.config, self.emit, self.builder
        rows = emit.load(vector(I8, 32), emit.opaque(target), config.right_masks + 32)
        signs = [(k, sign) for k in range(_DEPTH) for sign in (0, 1)]  # k = 8 * pair + 4 * part + quarter
        picks = [16 * (k // 8) + 8 * sign + 2 * (k % 4) + half for k, sign in signs]
        chosen = emit.shuffle(rows, rows, picks * 2)
        for first in (0, 2):
            tests = ir.Constant(_BYTES, [1 << 2 * column + k % 8 // 4 for column in (first, first + 1) for k, _ in signs])
            found = builder.icmp_unsigned("!=", builder.and_(chosen, tests), ir.Constant(_BYTES, None))
            self.store_mask(found, target, config.right_bits + 16 * half + 4 * first)

    def _words(self, target: ir.Value) -> None:
        """The columns' bits as words, at the lanes of a line: those of each step."""
        config, emit = self.config, self.emit
        bits = emit.load(vector(I32, COLUMNS), emit.opaque(target), config.right_bits)
        words = emit.shuffle(bits, bits, [column for _, column in config.places])
        for number, step in enumerate(config.steps):
            chosen = sum(3 << 2 * k for k in step)
            emit.store(words if len(config.steps) == 1 else emit.masked(words, chosen), target, config.right_words + 64 * number)
