"""Emitted decoding of the codes in the lanes of a vector: of a format that is known now, or when the code runs."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fastmma.kernels.llvm.emit import F32, HALF, I16, I32, Emitter, vector
from fastmma.kernels.params import Element


def _lanes(emit: Emitter, kind: ir.VectorType, number: int | ir.Value) -> ir.Value:
    """A number in every lane."""
    if isinstance(number, int):
        return emit.constant(kind, number)
    return emit.splat(kind, emit.builder.trunc(number, kind.element) if number.type != kind.element else number)


class Decoder(NamedTuple):
    """Emits the parts of codes, which are shifted down; of what is a zero or special the significand and the exponent are of no meaning."""

    emit: Emitter
    mantissa_bits: int | ir.Value
    width: int | ir.Value  # of a magnitude
    mask: int | ir.Value
    sign_bit: int | ir.Value

    def magnitude(self, codes: ir.Value) -> ir.Value:
        """Codes without their signs."""
        return self.emit.builder.and_(codes, _lanes(self.emit, codes.type, self.mask))

    def nonzero(self, magnitude: ir.Value) -> ir.Value:
        """Mark the magnitudes that are not zero."""
        return self.emit.builder.icmp_unsigned("!=", magnitude, ir.Constant(magnitude.type, None))

    def bare_field(self, magnitude: ir.Value, lane: ir.Type | None = None) -> ir.Value:
        """Exponent fields, in narrower lanes if they are asked for."""
        field = self.emit.builder.lshr(magnitude, _lanes(self.emit, magnitude.type, self.mantissa_bits))
        return field if lane is None or field.type.element == lane else self.emit.builder.trunc(field, vector(lane, field.type.count))

    def raised(self, field: ir.Value) -> ir.Value:
        """Fields, those of subnormals as that of the smallest normal number."""
        which = "smax" if field.type.element == I32 else "umax"
        return self.emit.call(which, field, self.emit.constant(field.type, 1))

    def field(self, magnitude: ir.Value) -> ir.Value:
        """Exponent fields that are exponents if the bias is taken off."""
        return self.raised(self.bare_field(magnitude))

    def significand(self, magnitude: ir.Value, field: ir.Value) -> ir.Value:
        """Whole numbers, the last bit being worth 2**(exponent - mantissa_bits)."""
        builder = self.emit.builder
        before = builder.sub(field, self.emit.constant(field.type, 1))
        return builder.sub(magnitude, builder.shl(before, _lanes(self.emit, field.type, self.mantissa_bits)))

    def sign(self, codes: ir.Value) -> ir.Value:
        """The sign bits alone, where they are."""
        return self.emit.builder.and_(codes, _lanes(self.emit, codes.type, self.sign_bit))

    def negative(self, codes: ir.Value) -> ir.Value:
        """Mark the codes whose sign bits are set."""
        zero, builder = ir.Constant(codes.type, None), self.emit.builder
        if isinstance(self.width, int) and self.width + 1 == codes.type.element.width:
            return builder.icmp_signed("<", codes, zero)
        return builder.icmp_unsigned("!=", self.sign(codes), zero)


def decoder_of(emit: Emitter, element: Element) -> Decoder:
    """The decoder of a format that is known now."""
    return Decoder(emit, element.mantissa_bits, element.width, (1 << element.width) - 1, 1 << element.width)


def half_codes(emit: Emitter, element: Element, codes: ir.Value) -> ir.Value:
    """The f16 codes of bytes, whose values are lower by 2**`Element.decoded_scale`."""
    kind, shift = vector(I16, codes.type.count), 10 - element.mantissa_bits
    magnitude = (1 << element.width) - 1 << shift
    if element.width == 7:  # copies of the sign go to the top
        return emit.masked(emit.shifted_left(emit.builder.sext(codes, kind), shift), magnitude | -1 << 15)
    words = emit.builder.zext(codes, kind)
    sign = emit.masked(emit.shifted_left(words, 15 - element.width), 1 << 15)
    return emit.builder.or_(sign, emit.masked(emit.shifted_left(words, shift), magnitude))


def singles(emit: Emitter, element: Element, codes: ir.Value) -> ir.Value:
    """The f32 values of codes of two or four bytes; those of f16 in place of bytes."""
    count, builder = codes.type.count, emit.builder
    kind = vector(F32, count)
    if element.through_half:
        return builder.fpext(emit.cast(codes, vector(HALF, count)), kind)
    if element.itemsize == 2:
        return emit.cast(emit.shifted_left(builder.zext(codes, vector(I32, count)), 16), kind)
    return emit.cast(emit.masked(codes, -1 << element.shift), kind)
