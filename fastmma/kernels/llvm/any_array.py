"""Arrays of any dtype and strides as arguments of kernels that want to know only where they start, or the address itself, as an int.

Python takes a microsecond to tell the address of an array, and Numba would compile a kernel for each dtype and number of dimensions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from fastmma.kernels.llvm.emit import I64, POINTER
from fastmma.kernels.llvm.numba_internals import alloca_once, alloca_once_value, false_bit, gep_inbounds, is_not_null

_DATA = 4  # of what Numba's runtime tells of an array: memory, parent, elements, bytes of one, data; then shape and strides
_WORDS = 5 + 2 * 64  # as many dimensions as NumPy has


class AnyArrayType(types.Type):
    """Numba's type of such an argument."""

    def __init__(self) -> None:
        super().__init__(name="any array")


ANY_ARRAY = AnyArrayType()


@register_model(AnyArrayType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: AnyArrayType) -> None:
        super().__init__(manager, kind, I64)


@unbox(AnyArrayType)
def _unbox(_kind: AnyArrayType, array: Any, context: Any) -> NativeValue:
    builder, api = context.builder, context.pyapi
    told = alloca_once(builder, ir.ArrayType(I64, _WORDS))
    memory, place = (gep_inbounds(builder, told, 0, word) for word in (0, _DATA))
    builder.store(I64(0), memory)
    no_array = is_not_null(builder, api.nrt_adapt_ndarray_from_python(array, builder.bitcast(told, POINTER)))
    failed = alloca_once_value(builder, false_bit)
    with builder.if_then(no_array, likely=False):
        builder.store(api.long_as_longlong(array), place)
        builder.store(is_not_null(builder, api.err_occurred()), failed)

    def release() -> None:
        context.context.nrt.decref(builder, types.MemInfoPointer(types.voidptr), builder.inttoptr(builder.load(memory), POINTER))

    return NativeValue(builder.load(place), is_error=builder.load(failed), cleanup=release)


@intrinsic
def start_of(typingctx: Any, array: Any) -> Any:
    """The address of its first element, while the kernel runs."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return args[0]

    return types.intp(array), codegen
