"""The parts of codes in vectors of Numba, of a format that is known when a kernel runs, and what they are together."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fastmma.kernels.decode.emit import Decoder
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.emit import Emitter
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.llvm.simd import convert, power_of_two, select
from fastmma.kernels.llvm.vectors import VectorType
from fastmma.kernels.params import Element, Specials

_EXPONENT_BITS, _MANTISSA_BITS = (Element._fields.index(name) for name in ("exponent_bits", "mantissa_bits"))


def _decoder(builder: ir.IRBuilder, element: ir.Value) -> Decoder:
    mantissa_bits = builder.extract_value(element, _MANTISSA_BITS)
    width = builder.add(builder.extract_value(element, _EXPONENT_BITS), mantissa_bits)
    one = ir.Constant(width.type, 1)
    sign_bit = builder.shl(one, width)
    return Decoder(Emitter(builder), mantissa_bits, width, builder.sub(sign_bit, one), sign_bit)


@intrinsic
def magnitude_of(typingctx: Any, codes: Any, element: Any) -> Any:
    """Codes, shifted down, without their signs."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _decoder(builder, args[1]).magnitude(args[0])

    return codes(codes, element), codegen


@intrinsic
def field_of(typingctx: Any, magnitude: Any, element: Any) -> Any:
    """Exponent fields, from 1 on: less the bias they are exponents."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _decoder(builder, args[1]).field(args[0])

    return magnitude(magnitude, element), codegen


@intrinsic
def significand_of(typingctx: Any, magnitude: Any, field: Any, element: Any) -> Any:
    """Whole numbers that mantissas and hidden bits are."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _decoder(builder, args[2]).significand(args[0], args[1])

    return magnitude(magnitude, field, element), codegen


@intrinsic
def is_negative(typingctx: Any, codes: Any, element: Any) -> Any:
    """A mask of the codes, shifted down, with a sign."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _decoder(builder, args[1]).negative(args[0])

    return VectorType(kinds.boolean, codes.lanes)(codes, element), codegen


@inner
def first_special_of(element: Element) -> int:
    """The lowest magnitude that is an infinity or a NaN; one past the last if there is none."""
    width = element.exponent_bits + element.mantissa_bits
    if element.specials == Specials.IEEE:
        return ((1 << element.exponent_bits) - 1) << element.mantissa_bits
    return (1 << width) - 1 if element.specials == Specials.NAN else 1 << width


@inner
def value_of(magnitude: Any, field: Any, power: Any, element: Element, dtype: Any) -> Any:
    """Magnitudes of finite values times 2**power, which turns a field into the exponent of a significand's last bit."""
    return convert(significand_of(magnitude, field, element), dtype) * power_of_two(field + power, dtype)


@inner
def signed(value: Any, codes: Any, element: Element) -> Any:
    """Values with the signs of codes."""
    return select(is_negative(codes, element), value * -1.0, value)
