"""Kernels that are emitted from their Python source for arguments of given types, and called with a record of all their numbers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from llvmlite import ir

from fastmma.host.addresses import DATA
from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.emit import F64, I64, POINTER
from fastmma.kernels.llvm.object_code import linked
from fastmma.kernels.llvm.parts import Part
from fastmma.kernels.llvm.scalars import Array, Value, as_kind
from fastmma.kernels.llvm.translation import Translation

_ENTRY = "fastmma_loops"


class _Record:
    """The arguments of a call: its numbers one after another, of 8 bytes each."""

    def __init__(self, builder: ir.IRBuilder, start: ir.Value) -> None:
        self._builder, self._start, self._count = builder, start, 0

    def next(self, kind: Any) -> Value:
        """Emit the reading of the next number."""
        which = F64 if isinstance(kind, kinds.Float) else I64
        place = self._builder.gep(self._start, [ir.Constant(I64, 8 * self._count)])
        self._count += 1
        return Value(kinds.float64 if which is F64 else kinds.int64, self._builder.load(self._builder.bitcast(place, which.as_pointer())))

    def argument(self, kind: Any) -> Any:
        """An argument of a kind: what is known of it, and numbers for the rest."""
        if isinstance(kind, kinds.Record):
            return kind.value
        if isinstance(kind, kinds.DType):
            return as_kind(kind.dtype)
        if kind == kinds.none:
            return None
        if isinstance(kind, kinds.Array):
            return Array(kind.dtype, self.next(kinds.int64), tuple(self.next(kinds.int64) for _ in range(kind.dimensions)))
        if isinstance(kind, kinds.Group):
            parts = [self.argument(each) for each in kind.types]
            return tuple(parts) if kind.made is tuple else kind.made(*parts)
        return self.next(kind)


def _fields(kind: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the expressions of an argument's numbers, and their codes for `struct`."""
    if isinstance(kind, kinds.Array):
        yield f"address_at(id({name}) + {DATA}).value", "q"
        yield from ((f"{name}.shape[{each}]", "q") for each in range(kind.dimensions))
    elif kind == kinds.any_array:
        yield f"(address_at(id({name}) + {DATA}).value if isinstance({name}, array) else {name})", "q"
    elif isinstance(kind, kinds.Group):
        for number, each in enumerate(kind.types):
            yield from _fields(each, f"{name}[{number}]")
    elif not isinstance(kind, (kinds.Record, kinds.DType)) and kind != kinds.none:
        yield name, "d" if isinstance(kind, kinds.Float) else "q"


def _emit(function: Callable[..., Any], given: tuple[Any, ...], module: ir.Module) -> None:
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), _ENTRY)
    entry.attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    record = _Record(builder, entry.args[0])
    arguments = {name: record.argument(kind) for name, kind in zip(signature(function).parameters, given, strict=True)}
    Translation(builder, function, arguments).run()
    builder.ret_void()


def entry_of(kernel: Any, *given: Any) -> int:
    """Return where a kernel's code is for arguments of these kinds, which takes the address of a record of all their numbers."""
    function = kernel.function if isinstance(kernel, Part) else kernel
    address: int = call_uninterrupted(linked, KernelFiles(function, (__name__,)), given, partial(_emit, function, given), _ENTRY)
    return address


def emitted(kernel: Any, *given: Any) -> Callable[..., None]:
    """Return what runs a kernel for arguments of these kinds."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(entry_of(kernel, *given))
    called: Callable[..., None] = _of_numbers("run(pack({}))", given, run=run)
    return called


def record_of(*given: Any) -> Callable[..., bytes]:
    """Return what makes the record of arguments of these kinds."""
    made: Callable[..., bytes] = _of_numbers("pack({})", given)
    return made


def _of_numbers(expression: str, given: tuple[Any, ...], **used: Any) -> Any:
    """A function of arguments of these kinds: an expression of all their numbers, of which `pack` makes a record."""
    names = [f"_{number}" for number in range(len(given))]
    fields = [each for kind, name in zip(given, names, strict=True) for each in _fields(kind, name)]
    pack = struct.Struct("=" + "".join(code for _, code in fields)).pack
    text = f"lambda {', '.join(names)}: {expression.format(', '.join(name for name, _ in fields))}"
    return eval(text, {"pack": pack, "address_at": ctypes.c_size_t.from_address, "array": np.ndarray, **used})
