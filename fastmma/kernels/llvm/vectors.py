"""The kind of a SIMD vector, its operators, and how code for it is emitted."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.emit import Emitter

_MASK_BITS = 1


class VectorType(kinds.Kind):
    """The kind of a vector: an element type (boolean for masks) and a number of lanes."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(f"{dtype}x{lanes}")


def llvm_element(dtype: Any) -> ir.Type:
    if dtype == kinds.boolean:
        return ir.IntType(_MASK_BITS)
    if dtype == kinds.float64:
        return ir.DoubleType()
    if dtype == kinds.float32:
        return ir.FloatType()
    return ir.IntType(dtype.bitwidth)


def llvm_vector(dtype: Any, lanes: int) -> ir.VectorType:
    return ir.VectorType(llvm_element(dtype), lanes)


def is_float(dtype: Any) -> bool:
    return isinstance(dtype, kinds.Float)


ARITHMETIC: dict[Any, tuple[str, str | None]] = {  # IRBuilder's integer and float method
    operator.add: ("add", "fadd"),
    operator.sub: ("sub", "fsub"),
    operator.mul: ("mul", "fmul"),
    operator.and_: ("and_", None),
    operator.or_: ("or_", None),
    operator.xor: ("xor", None),
    operator.lshift: ("shl", None),
    operator.rshift: ("lshr", None),
}
INPLACE = {symbol: getattr(operator, f"i{symbol.__name__.strip('_')}") for symbol in ARITHMETIC}
COMPARISON: dict[Any, str] = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}


def operand_vector(left: Any, right: Any) -> VectorType | None:
    """The vector type at which a binary operator works, or None when it is not ours."""
    if isinstance(left, VectorType):
        return left if right == left or isinstance(right, kinds.Number) else None
    return right if isinstance(right, VectorType) and isinstance(left, kinds.Number) else None


def as_vector(context: Any, builder: ir.IRBuilder, value: ir.Value, kind: Any, vector: VectorType) -> ir.Value:
    if kind == vector:
        return value
    return Emitter(builder).splat(llvm_vector(vector.dtype, vector.lanes), context.cast(builder, value, kind, vector.dtype))


def emit_arithmetic(symbol: Any, builder: ir.IRBuilder, dtype: Any, left: ir.Value, right: ir.Value) -> ir.Value:
    integer, floating = ARITHMETIC[symbol]
    if is_float(dtype):
        return getattr(builder, str(floating))(left, right)
    if symbol is operator.rshift and dtype.signed:
        return builder.ashr(left, right)
    return getattr(builder, integer)(left, right)


def emit_comparison(symbol: Any, builder: ir.IRBuilder, dtype: Any, left: ir.Value, right: ir.Value) -> ir.Value:
    sign = COMPARISON[symbol]
    if is_float(dtype):
        # != is true of NaN, the others are false, as in Python
        return builder.fcmp_unordered(sign, left, right) if sign == "!=" else builder.fcmp_ordered(sign, left, right)
    return builder.icmp_signed(sign, left, right) if dtype.signed else builder.icmp_unsigned(sign, left, right)
