"""Frozen records as arguments of kernels: their numbers are constants of the code that is compiled for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from llvmlite import ir
from numba import types
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, typeof_impl, unbox

from fastmma.kernels.llvm.numba_internals import AttributeTemplate

T = TypeVar("T")


class ConstantType(types.Type):
    """The Numba type of one record: `value`. Its name is part of the key of kernels on the disk."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(name=str(value))


register_model(ConstantType)(models.OpaqueModel)
_type_of = lru_cache(4096)(ConstantType)


def constant(record: type[T]) -> type[T]:
    """Let kernels take instances of a frozen dataclass: a kernel is compiled for each, and reads their attributes as integers."""
    typeof_impl.register(record)(lambda value, _context: _type_of(value))
    return record


@unbox(ConstantType)
def _unbox(_typ: ConstantType, _value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


@infer_getattr
class _Attributes(AttributeTemplate):
    """Fields and properties, as integers."""

    key = ConstantType

    def generic_resolve(self, _constant: ConstantType, _name: str) -> Any:
        return types.intp


@lower_getattr_generic(ConstantType)
def _lower_attribute(context: Any, _builder: ir.IRBuilder, typ: ConstantType, _value: Any, name: str) -> ir.Value:
    return ir.Constant(context.get_value_type(types.intp), int(getattr(typ.value, name)))
