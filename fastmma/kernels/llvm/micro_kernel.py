"""Micro-kernels: functions of LLVM code, one for each record of constants, that compiled loops call with addresses and numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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

    def function(self, record: Any, module: ir.Module) -> ir.Function:
        """The function for a record.

        LLVM knows nothing of the rounding mode and may move arithmetic across its change: what changes it does nothing else but call a
        second function, which is never inlined.
        """
        name = "fastmma_" + hashlib.sha256(f"{self._emit.__module__} {record}".encode()).hexdigest()[:16]
        if name in module.globals:
            return module.globals[name]
        outer, inside = (self._declared(module, declared) for declared in (name, f"{name}_inside"))
        builder = ir.IRBuilder(inside.append_basic_block("entry"))
        self._emit(record, builder, list(inside.args))
        builder.ret_void()
        builder = ir.IRBuilder(outer.append_basic_block("entry"))
        saved, chosen = (cgutils.alloca_once(builder, I32) for _ in range(2))
        builder.store(ir.Constant(I32, self._mode(record)), chosen)
        _control(builder, "stmxcsr", saved)
        _control(builder, "ldmxcsr", chosen)
        builder.call(inside, outer.args)
        _control(builder, "ldmxcsr", saved)
        builder.ret_void()
        return outer

    def _declared(self, module: ir.Module, name: str) -> ir.Function:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), self._kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        return function

    def call(self, record: Any, builder: ir.IRBuilder, numbers: ir.Value) -> None:
        """Call it with a tuple of its arguments."""
        values = [builder.extract_value(numbers, index) for index in range(len(self._kinds))]
        values[: self._pointers] = [builder.inttoptr(value, POINTER) for value in values[: self._pointers]]
        builder.call(self.function(record, builder.module), values)


def _control(builder: ir.IRBuilder, instruction: str, place: ir.Value) -> None:
    Emitter(builder).intrinsic(f"x86.sse.{instruction}", ir.VoidType(), builder.bitcast(place, POINTER))


def runs(kernel: MicroKernel) -> Any:
    """What compiled loops call: ``run(record, arguments)``."""

    @intrinsic
    def run(typingctx: Any, record: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            kernel.call(record.value, builder, args[1])
            return context.get_dummy_value()

        return types.none(record, arguments), codegen

    return run
