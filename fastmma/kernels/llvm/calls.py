"""Calls in Python functions whose code is emitted: of intrinsics, of Python's own functions, and of NumPy's types."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.emit import I64
from fastmma.kernels.llvm.intrinsics import Intrinsic
from fastmma.kernels.llvm.scalars import Array, Value, cast, compute, is_group, is_number, negative, runtime, smaller, truth


class Context:
    """The part of an emitter that intrinsics call."""

    @staticmethod
    def cast(builder: ir.IRBuilder, value: ir.Value, given: Any, kind: Any) -> ir.Value:
        """A scalar of another kind."""
        return cast(builder, Value(_kind_of_literal(given), value), kind).code

    @staticmethod
    def get_constant(_kind: Any, value: int) -> ir.Constant:
        """An integer."""
        return ir.Constant(I64, value)

    @staticmethod
    def get_dummy_value() -> None:
        """Nothing."""


def _kind_of_literal(kind: Any) -> Any:
    return kinds.int64 if isinstance(kind, kinds.Literal) else kind


def call_intrinsic(builder: ir.IRBuilder, called: Intrinsic, given: Sequence[Any]) -> Any:
    """Emit what an intrinsic emits; what it does not take as it is becomes what it takes."""
    arguments = [_argument(builder, each, called.prefer_literal) for each in given]
    signature, codegen = called.define(None, *(kind for kind, _ in arguments))
    codes = [
        cast(builder, Value(_kind_of_literal(kind), code), wanted).code if isinstance(wanted, kinds.Number) and wanted != kind else code
        for (kind, code), wanted in zip(arguments, signature.args, strict=True)
    ]
    result = codegen(Context, builder, signature, codes)
    return None if signature.return_type == kinds.none else Value(signature.return_type, result)


def _argument(builder: ir.IRBuilder, value: Any, literal: bool) -> tuple[Any, Any]:
    """The kind and the code of an argument."""
    if is_group(value):
        parts = [_argument(builder, each, False) for each in value]
        whole = ir.Constant(ir.LiteralStructType([code.type for _, code in parts]), ir.Undefined)
        for number, (_, code) in enumerate(parts):
            whole = builder.insert_value(whole, code, number)
        return kinds.Group(tuple(kind for kind, _ in parts)), whole
    if isinstance(value, type):
        return kinds.DType(kinds.scalar_of(value)), None
    if not isinstance(value, Value) and not is_number(value):
        return kinds.kind_of(value), None  # a record
    if literal and type(value) is int:
        return kinds.Literal(value), ir.Constant(I64, value)
    found = runtime(value)
    return found.kind, found.code


def convert(builder: ir.IRBuilder, kind: type, value: Any) -> Value:
    """Emit the conversion of a number to one of NumPy's types."""
    return cast(builder, runtime(value), kinds.scalar_of(kind))


def _absolute(builder: ir.IRBuilder, value: Any) -> Any:
    return smaller(builder, value, negative(builder, value), ">")


def _extremum(sign: str) -> Callable[..., Any]:
    def emit(builder: ir.IRBuilder, first: Any, *others: Any) -> Any:
        for other in others:
            first = smaller(builder, first, other, sign)
        return first

    return emit


def _to_int(builder: ir.IRBuilder, value: Any) -> Any:
    return cast(builder, value, kinds.int64) if isinstance(value, Value) else int(value)


def _to_bool(builder: ir.IRBuilder, value: Any) -> Any:
    return truth(builder, value) if isinstance(value, Value) else bool(value)


def _length(_builder: ir.IRBuilder, value: Any) -> Any:
    return value.shape[0] if isinstance(value, Array) else len(value)


def _quotient_and_rest(builder: ir.IRBuilder, value: Any, divisor: Any) -> Any:
    return tuple(compute(builder, symbol, value, divisor) for symbol in (operator.floordiv, operator.mod))


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    min: _extremum("<"),
    max: _extremum(">"),
    abs: _absolute,
    int: _to_int,
    bool: _to_bool,
    len: _length,
    divmod: _quotient_and_rest,
}
