"""Arithmetic on scalars and vectors in code that is emitted from Python: integers of 64 bits, as NumPy and Numba compute."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.emit import F64, I64, Emitter
from fastmma.kernels.llvm.vectors import (
    ARITHMETIC,
    COMPARISON,
    VectorType,
    emit_arithmetic,
    emit_comparison,
    is_float,
    llvm_element,
    llvm_vector,
    operand_vector,
)


class Value(NamedTuple):
    """A number that is known when the code runs."""

    kind: Any  # a number or a `VectorType`
    code: ir.Value


class Array(NamedTuple):
    """A C-contiguous array: where it starts, and its sizes."""

    dtype: Any
    address: Value
    shape: tuple[Value, ...]

    @property
    def size(self) -> Value:
        """The elements of an array of one dimension."""
        (size,) = self.shape
        return size


def is_group(value: Any) -> bool:
    """Tell whether a value has members."""
    return isinstance(value, tuple) and not isinstance(value, (Value, Array))


def llvm_kind(kind: Any) -> ir.Type:
    """The LLVM type of a value."""
    return llvm_vector(kind.dtype, kind.lanes) if isinstance(kind, VectorType) else llvm_element(kind)


def as_kind(kind: Any) -> type:
    """The NumPy scalar of a kind, for numbers that are known before."""
    scalar: type = np.dtype(str(kind)).type
    return scalar


def is_number(value: Any) -> bool:
    """Tell whether a number is known before the code runs."""
    return isinstance(value, (int, float, np.number, np.bool_))


def known(value: Any) -> Any:
    """Return a number that is known before, in Python's own type where it has no width of its own."""
    return value.item() if isinstance(value, (np.int64, np.float64, np.bool_)) else value


def runtime(value: Any) -> Value:
    """Return a number as code has it: Python's integers have 64 bits."""
    if isinstance(value, Value):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Value(kinds.boolean, ir.Constant(ir.IntType(1), int(value)))
    if isinstance(value, np.number):
        kind = kinds.scalar_of(value.dtype)
        return Value(kind, ir.Constant(llvm_element(kind), value.item()))
    return Value(kinds.int64, ir.Constant(I64, int(value))) if isinstance(value, int) else Value(kinds.float64, ir.Constant(F64, value))


def cast(builder: ir.IRBuilder, value: Value, kind: Any) -> Value:
    """Convert a scalar, as NumPy does."""
    given, target = value.kind, llvm_element(kind)
    if given == kind:
        return value
    if kind == kinds.boolean:
        return truth(builder, value)
    signed = given != kinds.boolean and not is_float(given) and given.signed
    if is_float(given) and is_float(kind):
        code = builder.fpext(value.code, target) if kind.bitwidth > given.bitwidth else builder.fptrunc(value.code, target)
    elif is_float(given):
        code = builder.fptosi(value.code, target) if kind.signed else builder.fptoui(value.code, target)
    elif is_float(kind):
        code = builder.sitofp(value.code, target) if signed else builder.uitofp(value.code, target)
    elif value.code.type.width == target.width:
        code = value.code
    elif value.code.type.width > target.width:
        code = builder.trunc(value.code, target)
    else:
        code = builder.sext(value.code, target) if signed else builder.zext(value.code, target)
    return Value(kind, code)


def truth(builder: ir.IRBuilder, value: Value) -> Value:
    """Tell whether a number is not zero."""
    if value.kind == kinds.boolean:
        return value
    zero = ir.Constant(value.code.type, 0)
    different = builder.fcmp_unordered("!=", value.code, zero) if is_float(value.kind) else builder.icmp_unsigned("!=", value.code, zero)
    return Value(kinds.boolean, different)


def _common(left: Any, right: Any) -> Any:
    """The kind in which two scalars are added or compared."""
    if is_float(left) or is_float(right):
        return kinds.float32 if left == right == kinds.float32 else kinds.float64
    unsigned = [kind == kinds.boolean or not kind.signed for kind in (left, right)]
    if all(unsigned):
        return kinds.boolean if left == right == kinds.boolean else kinds.uint64
    if kinds.uint64 in (left, right):
        raise TypeError("an unsigned integer of 64 bits and a signed one have no common type")
    return kinds.int64


def as_vector(builder: ir.IRBuilder, value: Any, vector: VectorType) -> ir.Value:
    """A vector, or a scalar in each of its lanes."""
    if isinstance(value, Value):
        if value.kind == vector:
            return value.code
        return Emitter(builder).splat(llvm_vector(vector.dtype, vector.lanes), cast(builder, value, vector.dtype).code)
    number = as_kind(vector.dtype)(value).item() if is_float(vector.dtype) else int(value)
    return Emitter(builder).constant(llvm_vector(vector.dtype, vector.lanes), number)


def kind_of(value: Any) -> Any:
    """The kind of a number."""
    return value.kind if isinstance(value, Value) else runtime(value).kind


def compute(builder: ir.IRBuilder, symbol: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Emit a binary operation, or compute it if both operands are known."""
    if not isinstance(left, Value) and not isinstance(right, Value):
        return known(symbol(left, right))
    vector = operand_vector(kind_of(left), kind_of(right))
    if vector is not None:
        codes = (as_vector(builder, each, vector) for each in (left, right))
        if symbol in COMPARISON:
            return Value(VectorType(kinds.boolean, vector.lanes), emit_comparison(symbol, builder, vector.dtype, *codes))
        return Value(vector, emit_arithmetic(symbol, builder, vector.dtype, *codes))
    a, b = runtime(left), runtime(right)
    if symbol in (operator.lshift, operator.rshift):
        kind: Any = kinds.uint64 if not a.kind.signed else kinds.int64
        amount = cast(builder, b, kinds.int64).code
        return Value(kind, emit_arithmetic(symbol, builder, kind, cast(builder, a, kind).code, amount))
    kind = kinds.float64 if symbol is operator.truediv and not is_float(_common(a.kind, b.kind)) else _common(a.kind, b.kind)
    if symbol in ARITHMETIC and kind == kinds.boolean and ARITHMETIC[symbol][1] is not None:
        kind = kinds.int64
    x, y = cast(builder, a, kind).code, cast(builder, b, kind).code
    if symbol in COMPARISON:
        signless = kinds.uint64 if kind == kinds.boolean else kind
        return Value(kinds.boolean, emit_comparison(symbol, builder, signless, x, y))
    if symbol in ARITHMETIC:
        return Value(kind, emit_arithmetic(symbol, builder, kind, x, y))
    if symbol is operator.truediv:
        return Value(kind, builder.fdiv(x, y))
    return Value(kind, _divided(builder, symbol, kind, x, y))


def _divided(builder: ir.IRBuilder, symbol: Callable[[Any, Any], Any], kind: Any, x: ir.Value, y: ir.Value) -> ir.Value:
    """Emit ``x // y`` or ``x % y``, rounded down; nothing is divided by zero, which would end the process."""
    if is_float(kind) or symbol not in (operator.floordiv, operator.mod):
        raise TypeError(f"{symbol.__name__} of {kind}")
    zero = ir.Constant(y.type, 0)
    y = builder.select(builder.icmp_unsigned("==", y, zero), ir.Constant(y.type, 1), y)
    if not kind.signed:
        return builder.udiv(x, y) if symbol is operator.floordiv else builder.urem(x, y)
    rest = builder.srem(x, y)
    below = builder.and_(builder.icmp_signed("!=", rest, zero), builder.icmp_signed("<", builder.xor(rest, y), zero))
    if symbol is operator.mod:
        return builder.add(rest, builder.select(below, y, zero))
    return builder.add(builder.sdiv(x, y), builder.sext(below, y.type))


def smaller(builder: ir.IRBuilder, left: Any, right: Any, sign: str) -> Any:
    """Emit the smaller (`sign` "<") or the larger (">") of two integers."""
    if not isinstance(left, Value) and not isinstance(right, Value):
        return min(left, right) if sign == "<" else max(left, right)
    a, b = runtime(left), runtime(right)
    kind = _common(a.kind, b.kind)
    if is_float(kind):
        raise TypeError("the smaller of two floats is not emitted")
    x, y = cast(builder, a, kind), cast(builder, b, kind)
    test = emit_comparison(operator.lt if sign == "<" else operator.gt, builder, kind, x.code, y.code)
    return Value(kind, builder.select(test, x.code, y.code))


def negative(builder: ir.IRBuilder, value: Any) -> Any:
    """Emit the negation."""
    if not isinstance(value, Value):
        return -value
    if isinstance(value.kind, VectorType):
        return Value(value.kind, builder.fneg(value.code) if is_float(value.kind.dtype) else builder.neg(value.code))
    if is_float(value.kind):
        return Value(value.kind, builder.fneg(value.code))
    return Value(kinds.int64, builder.neg(cast(builder, value, kinds.int64).code))
