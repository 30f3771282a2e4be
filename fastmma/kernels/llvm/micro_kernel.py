"""Micro-kernels: functions of LLVM code, compiled on their own for each record of constants, that compiled loops call by their address.

So the loops around them are compiled for what they depend on themselves, and serve all micro-kernels of a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.extending import intrinsic

from fastmma.host.threads import apart
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.emit import F64, I32, I64, POINTER, Emitter

# MXCSR: all exceptions masked, subnormals neither flushed nor taken as zeros
NEAREST, TOWARD_ZERO = 0x1F80, 0x7F80

Emit = Callable[[Any, ir.IRBuilder, list[ir.Value]], None]


class MicroKernel:
    """How a function is emitted: `emit` gets the record, the builder and the arguments, which are byte pointers, int64, then float64.

    It runs under the value of MXCSR that `mode` says.
    """

    def __init__(
        self, emit: Emit, pointers: int, integers: int, floats: int = 0, mode: Callable[[Any], int] = lambda _: TOWARD_ZERO
    ) -> None:
        self._emit, self._mode, self._pointers = emit, mode, pointers
        self._kinds = [POINTER] * pointers + [I64] * integers + [F64] * floats
        self._addresses: dict[Any, int] = {}
        self._compiled = self._entry()

    def address(self, record: Any) -> int:
        """Where the function for a record is, compiled if need be."""
        found = self._addresses.get(record)
        if found is None:
            signature = (typeof(record), types.int64)
            apart(self._compiled.compile, signature)
            kernel = self._compiled.overloads[signature]
            found = self._addresses[record] = kernel.library.get_pointer_to_function(kernel.fndesc.llvm_func_name)
        return found

    def _entry(self) -> Any:
        """What Numba compiles: it takes a record, and the address of the arguments."""

        @intrinsic
        def run(typingctx: Any, record: Any, arguments: Any) -> Any:
            def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
                self._call(record.value, builder, builder.inttoptr(args[1], POINTER))
                return context.get_dummy_value()

            return types.none(record, arguments), codegen

        def entry(record: Any, arguments: int) -> None:
            run(record, arguments)

        entry.__module__ = self._emit.__module__  # names the kernel on the disk
        return compiled(entry)

    def _call(self, record: Any, builder: ir.IRBuilder, arguments: ir.Value) -> None:
        """Call the function for a record.

        LLVM knows nothing of the rounding mode and may move arithmetic across its change: what changes it does nothing else but call a
        second function, which is never inlined.
        """
        outer, inside = (self._declared(builder.module, name) for name in ("fastmma_kernel", "fastmma_kernel_inside"))
        body = ir.IRBuilder(inside.append_basic_block("entry"))
        self._emit(record, body, list(inside.args))
        body.ret_void()
        body = ir.IRBuilder(outer.append_basic_block("entry"))
        saved, chosen = (cgutils.alloca_once(body, I32) for _ in range(2))
        body.store(ir.Constant(I32, self._mode(record)), chosen)
        _control(body, "stmxcsr", saved)
        _control(body, "ldmxcsr", chosen)
        body.call(inside, outer.args)
        _control(body, "ldmxcsr", saved)
        body.ret_void()
        emit = Emitter(builder)
        builder.call(outer, [emit.load(kind, arguments, 8 * number) for number, kind in enumerate(self._kinds)])

    def _declared(self, module: ir.Module, name: str) -> ir.Function:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), self._kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        return function


def _control(builder: ir.IRBuilder, instruction: str, place: ir.Value) -> None:
    Emitter(builder).intrinsic(f"x86.sse.{instruction}", ir.VoidType(), builder.bitcast(place, POINTER))


@intrinsic
def run_at(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call the micro-kernel at an address with a tuple of its arguments, addresses and integers as int64."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        kinds = [types.float64 if isinstance(kind, types.Float) else types.int64 for kind in arguments.types]
        values = [
            context.cast(builder, builder.extract_value(args[1], index), given, kind)
            for index, (given, kind) in enumerate(zip(arguments.types, kinds, strict=True))
        ]
        memory = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, values))
        nothing = cgutils.alloca_once_value(builder, ir.Constant(POINTER, None))
        # as Numba's functions are called: where a result and an exception go, of which there are none; the record; the argument
        function = ir.FunctionType(I32, [nothing.type, nothing.type, POINTER, I64]).as_pointer()
        null = ir.Constant(POINTER, None)
        builder.call(builder.inttoptr(args[0], function), [nothing, nothing, null, builder.ptrtoint(memory, I64)])
        return context.get_dummy_value()

    return types.none(address, arguments), codegen
