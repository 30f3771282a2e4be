"""Codes as values in vector registers: by way of f16 where it holds them, else by way of the upper bits of f32."""

from __future__ import annotations

from llvmlite import ir

from fastmma.kernels.llvm.emit import F32, HALF, I16, I32, Emitter, vector
from fastmma.kernels.params import Element


def half_codes(emit: Emitter, element: Element, codes: ir.Value) -> ir.Value:
    """The f16 codes of bytes, whose values are lower by 2**`Element.lowered`."""
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
