"""Numba's types of the kernels' own values: vectors, records, intrinsics, and functions that it is to compile when it meets them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from llvmlite import ir
from numba import typeof, types
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.calls import Context
from fastmma.kernels.llvm.intrinsics import Intrinsic
from fastmma.kernels.llvm.numba_internals import AbstractTemplate, AttributeTemplate, infer_global, signature, type_of_global
from fastmma.kernels.llvm.vectors import (
    ARITHMETIC,
    COMPARISON,
    INPLACE,
    VectorType,
    as_vector,
    emit_arithmetic,
    emit_comparison,
    is_float,
    llvm_vector,
    operand_vector,
)

__all__ = ["typeof"]  # which knows records, now


# --- records ---


class NumbaRecord(types.Type):
    """The Numba type of one record: `value`. Its name is part of the key of kernels on the disk."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(name=str(value))


register_model(NumbaRecord)(models.OpaqueModel)
_type_of_record = lru_cache(4096)(NumbaRecord)


@typeof_impl.register(kinds.Constants)
def _type_of_constants(value: Any, _context: Any) -> NumbaRecord:
    return _type_of_record(value)


@unbox(NumbaRecord)
def _unbox(_typ: NumbaRecord, _value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


@infer_getattr
class _Attributes(AttributeTemplate):
    """Fields and properties, as integers."""

    key = NumbaRecord

    def generic_resolve(self, _constant: NumbaRecord, _name: str) -> Any:
        return types.intp


@lower_getattr_generic(NumbaRecord)
def _lower_attribute(context: Any, _builder: ir.IRBuilder, typ: NumbaRecord, _value: Any, name: str) -> ir.Value:
    return ir.Constant(context.get_value_type(types.intp), int(getattr(typ.value, name)))


# --- kinds ---


class NumbaVector(types.Type):
    """The Numba type of a vector."""

    def __init__(self, kind: VectorType) -> None:
        self.kind = kind
        super().__init__(name=str(kind))


@register_model(NumbaVector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, given: NumbaVector) -> None:
        super().__init__(manager, given, llvm_vector(given.kind.dtype, given.kind.lanes))


def _kind_of(given: Any) -> Any:
    """The kind of a value of one of Numba's types."""
    if isinstance(given, NumbaVector):
        return given.kind
    if isinstance(given, types.IntegerLiteral):
        return kinds.Literal(given.literal_value)
    if isinstance(given, types.NumberClass):
        return kinds.DType(kinds.scalar_of(str(given.dtype)))
    if isinstance(given, types.BaseTuple):
        return kinds.Group(tuple(map(_kind_of, given)))
    if isinstance(given, NumbaRecord):
        return kinds.Record(given.value)
    return kinds.none if isinstance(given, types.NoneType) else kinds.scalar_of(str(given))


def _numba_type(kind: Any) -> Any:
    """The Numba type of vectors and scalars of a kind."""
    return NumbaVector(kind) if isinstance(kind, VectorType) else getattr(types, {"bool": "boolean"}.get(kind.name, kind.name))


# --- operators of vectors ---

_VECTOR_AND_SCALAR = ((NumbaVector, NumbaVector), (NumbaVector, types.Number), (types.Number, NumbaVector))


def _tell_of_operator(symbol: Any, emit: Callable[..., ir.Value], compares: bool) -> None:
    def result_of(given: Any) -> tuple[VectorType, VectorType] | None:
        if not all(isinstance(each, (NumbaVector, types.Number)) for each in given):
            return None
        vector = operand_vector(*map(_kind_of, given))
        if vector is None or (not compares and is_float(vector.dtype) and ARITHMETIC[symbol][1] is None):
            return None
        return vector, VectorType(kinds.boolean, vector.lanes) if compares else vector

    class VectorOperator(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            found = result_of(args) if len(args) == 2 and not kws else None
            return None if found is None else signature(_numba_type(found[1]), *args)

    def lower(_context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        given = [_kind_of(each) for each in sig.args]
        vector = operand_vector(*given)
        assert vector is not None
        left, right = (as_vector(Context, builder, value, kind, vector) for value, kind in zip(args, given, strict=True))
        return emit(symbol, builder, vector.dtype, left, right)

    spellings = [symbol, *([INPLACE[symbol]] if symbol in INPLACE else [])]
    for spelling in spellings:
        infer_global(spelling)(VectorOperator)
    for spelling, given in itertools.product(spellings, _VECTOR_AND_SCALAR):
        lower_builtin(spelling, *given)(lower)


for _symbol in ARITHMETIC:
    _tell_of_operator(_symbol, emit_arithmetic, False)
for _symbol in COMPARISON:
    _tell_of_operator(_symbol, emit_comparison, True)


# --- functions ---


def _numba_intrinsic(called: Intrinsic) -> Any:
    @wraps(called.define)
    def define(_context: Any, *given: Any) -> Any:
        own = [_kind_of(each) for each in given]
        defined = called.define(None, *own)
        if defined is None:
            return None
        found, codegen = defined
        takes = [each if wanted == kind else _numba_type(wanted) for each, kind, wanted in zip(given, own, found.args, strict=True)]

        def emit(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
            return codegen(Context, builder, found, args)

        return _numba_type(found.return_type)(*takes), emit

    return intrinsic(prefer_literal=called.prefer_literal)(define)


@typeof_impl.register(Intrinsic)
def _type_of_intrinsic(called: Intrinsic, _context: Any) -> Any:
    called.jitted = called.jitted or _numba_intrinsic(called)
    return type_of_global(called.jitted)
