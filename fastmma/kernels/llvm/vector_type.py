"""The Numba type of a SIMD vector, its operators, and how code for it is emitted."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, models, register_model

from fastmma.kernels.llvm.emit import Emitter
from fastmma.kernels.llvm.numba_internals import AbstractTemplate, infer_global, signature

_MASK_BITS = 1


class VectorType(types.Type):
    """The Numba type of a vector: an element type (boolean for masks) and a number of lanes."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(name=f"{dtype}x{lanes}")


def llvm_element(dtype: Any) -> ir.Type:
    if dtype == types.boolean:
        return ir.IntType(_MASK_BITS)
    if dtype == types.float64:
        return ir.DoubleType()
    if dtype == types.float32:
        return ir.FloatType()
    return ir.IntType(dtype.bitwidth)


def llvm_vector(dtype: Any, lanes: int) -> ir.VectorType:
    return ir.VectorType(llvm_element(dtype), lanes)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: VectorType) -> None:
        super().__init__(dmm, fe_type, llvm_vector(fe_type.dtype, fe_type.lanes))


def is_float(dtype: Any) -> bool:
    return isinstance(dtype, types.Float)


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
COMPARISON: dict[Any, str] = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}
_OPERANDS = ((VectorType, VectorType), (VectorType, types.Number), (types.Number, VectorType))


def operand_vector(left: Any, right: Any) -> VectorType | None:
    """The vector type at which a binary operator works, or None when it is not ours."""
    if isinstance(left, VectorType):
        return left if right == left or isinstance(right, types.Number) else None
    return right if isinstance(right, VectorType) and isinstance(left, types.Number) else None


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


def _register(symbol: Any, emit: Callable[..., ir.Value], result: Callable[[VectorType], VectorType]) -> None:
    class VectorOperator(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if kws or len(args) != 2:
                return None
            vector = operand_vector(*args)
            if vector is None or (is_float(vector.dtype) and emit is emit_arithmetic and ARITHMETIC[symbol][1] is None):
                return None
            return signature(result(vector), *args)

    inplace = getattr(operator, f"i{symbol.__name__.strip('_')}", None) if symbol in ARITHMETIC else None
    spellings = [symbol] if inplace is None else [symbol, inplace]
    for spelling in spellings:
        infer_global(spelling)(VectorOperator)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        vector = operand_vector(*sig.args)
        assert vector is not None
        left, right = (as_vector(context, builder, value, kind, vector) for value, kind in zip(args, sig.args, strict=True))
        return emit(symbol, builder, vector.dtype, left, right)

    for spelling, kinds in itertools.product(spellings, _OPERANDS):
        lower_builtin(spelling, *kinds)(lower)


for _symbol in ARITHMETIC:
    _register(_symbol, emit_arithmetic, lambda vector: vector)
for _symbol in COMPARISON:
    _register(_symbol, emit_comparison, lambda vector: VectorType(types.boolean, vector.lanes))
