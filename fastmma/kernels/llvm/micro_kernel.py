"""Micro-kernels: functions of LLVM code, compiled on their own for each record of constants, that compiled loops call by their address.

So the loops around them are compiled for what they depend on themselves, and serve all micro-kernels of a kind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir

from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.architecture import TOWARD_ZERO, architecture_of
from fastmma.kernels.llvm.building import alloca_once_value, pack_struct
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.emit import F64, I64, POINTER, Emitter
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.llvm.object_code import assembly, linked

_ENTRY = "fastmma_kernel"

Emit = Callable[[Any, ir.IRBuilder, list[ir.Value]], None]


class MicroKernel:
    """The emission of a function: `emit` gets the record, the builder and the arguments, which are byte pointers, int64, then float64.

    It rounds floats as `mode` says.
    """

    def __init__(
        self, emit: Emit, pointers: int, integers: int, floats: int = 0, mode: Callable[[Any], str] = lambda _: TOWARD_ZERO
    ) -> None:
        self._emit, self._mode = emit, mode
        self._kinds = [POINTER] * pointers + [I64] * integers + [F64] * floats
        self._addresses: dict[Any, int] = {}
        self._functions: dict[Any, Callable[[int], None]] = {}
        self._files = KernelFiles(emit)

    def address(self, record: Any) -> int:
        """Return where the function for a record is, compiled if need be."""
        found = self._addresses.get(record)
        if found is None:
            found = self._addresses[record] = call_uninterrupted(linked, self._files, (record,), partial(self._emit_all, record), _ENTRY)
        return found

    def function(self, record: Any) -> Callable[[int], None]:
        """The function for a record, which Python calls with the address of its arguments in memory."""
        found = self._functions.get(record)
        if found is None:
            found = self._functions[record] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address(record))
        return found

    def assembly(self, record: Any, triple: str, name: str, features: str = "") -> str:
        """The function for a record in the assembly language of any CPU, by LLVM's target triple, name and features."""
        return assembly(partial(self._emit_all, record), triple, name, features)

    def _emit_all(self, record: Any, module: ir.Module) -> None:
        """Emit the function for a record, and an entry that takes the address of the arguments.

        LLVM knows nothing of the rounding mode and may move arithmetic across its change: what changes it does nothing else but call a
        second function, which is never inlined.
        """
        entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), _ENTRY)
        inside = ir.Function(module, ir.FunctionType(ir.VoidType(), self._kinds), f"{_ENTRY}_inside")
        inside.linkage = "internal"
        for attribute in ("noinline", "nounwind"):
            inside.attributes.add(attribute)
        body = ir.IRBuilder(inside.append_basic_block("entry"))
        self._emit(record, body, list(inside.args))
        body.ret_void()
        body = ir.IRBuilder(entry.append_basic_block("entry"))
        emit = Emitter(body)
        arguments = [emit.load(kind, entry.args[0], 8 * number) for number, kind in enumerate(self._kinds)]
        architecture = architecture_of(module)
        found = architecture.enter(body, architecture.modes[self._mode(record)])
        body.call(inside, arguments)
        architecture.leave(body, found)
        body.ret_void()


@intrinsic
def run_at(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call the micro-kernel at an address with a tuple of its arguments, addresses and integers as int64."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        wanted = [kinds.float64 if isinstance(kind, kinds.Float) else kinds.int64 for kind in arguments.types]
        values = [
            context.cast(builder, builder.extract_value(args[1], index), given, kind)
            for index, (given, kind) in enumerate(zip(arguments.types, wanted, strict=True))
        ]
        memory = alloca_once_value(builder, pack_struct(builder, values))
        function = ir.FunctionType(ir.VoidType(), [POINTER]).as_pointer()
        builder.call(builder.inttoptr(args[0], function), [builder.bitcast(memory, POINTER)])
        return context.get_dummy_value()

    return kinds.none(address, arguments), codegen
