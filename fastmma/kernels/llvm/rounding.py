"""Instructions of AVX-512 that name a rounding, and whether others were inexact, for Numba kernels on CPUs with avx512f."""

# Numba prescribes these functions' arguments

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.building import alloca_once, get_or_insert_function
from fastmma.kernels.llvm.intrinsics import intrinsic

# as instructions have them: none that names its rounding is noted as inexact
_NEAREST, _DOWN, _UP = 8, 9, 10


def _rounded_operation(name: str, rounding: int, arguments: tuple[Any, ...]) -> Any:
    """Typing and code of an AVX-512 instruction on 8 lanes of float64 that names its rounding."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        kind, mode = args[0].type, ir.IntType(32)
        signature = ir.FunctionType(kind, [kind] * len(args) + [mode])
        function = get_or_insert_function(builder.module, signature, f"llvm.x86.avx512.{name}.pd.512")
        return builder.call(function, [*args, ir.Constant(mode, rounding)])

    return arguments[0](*arguments), codegen


@intrinsic
def fma_down(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once, down."""
    return _rounded_operation("vfmadd", _DOWN, (a, b, c))


@intrinsic
def fma_up(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once, up."""
    return _rounded_operation("vfmadd", _UP, (a, b, c))


@intrinsic
def add_down(typingctx: Any, a: Any, b: Any) -> Any:
    """``a + b`` rounded down: 8 lanes of float64."""
    return _rounded_operation("add", _DOWN, (a, b))


@intrinsic
def subtract_down(typingctx: Any, a: Any, b: Any) -> Any:
    """``a - b`` rounded down: 8 lanes of float64."""
    return _rounded_operation("sub", _DOWN, (a, b))


@intrinsic
def add_nearest(typingctx: Any, a: Any, b: Any) -> Any:
    """``a + b`` rounded to nearest, which is never noted as inexact: 8 lanes of float64."""
    return _rounded_operation("add", _NEAREST, (a, b))


@intrinsic
def add_up(typingctx: Any, a: Any, b: Any) -> Any:
    """``a + b`` rounded up: 8 lanes of float64."""
    return _rounded_operation("add", _UP, (a, b))


_INEXACT = 1 << 5  # in the control register
_REGISTER = ir.IntType(32)


def _move_control_register(builder: ir.IRBuilder, name: str, place: ir.Value) -> None:
    """Store the control register of floats to memory ("st"), or load it from there ("ld")."""
    pointer = ir.PointerType(ir.IntType(8))
    function = get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), f"llvm.x86.sse.{name}mxcsr")
    builder.call(function, [builder.bitcast(place, pointer)])


@intrinsic
def forget_inexact(typingctx: Any) -> Any:
    """Let no result of this thread count as inexact."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        place = alloca_once(builder, _REGISTER)
        _move_control_register(builder, "st", place)
        builder.store(builder.and_(builder.load(place), ir.Constant(_REGISTER, ~_INEXACT)), place)
        _move_control_register(builder, "ld", place)
        return context.get_dummy_value()

    return kinds.none(), codegen


@intrinsic
def was_inexact(typingctx: Any) -> Any:
    """Tell whether a result of this thread was inexact since `forget_inexact`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        place = alloca_once(builder, _REGISTER)
        _move_control_register(builder, "st", place)
        noted = builder.and_(builder.load(place), ir.Constant(_REGISTER, _INEXACT))
        return builder.icmp_unsigned("!=", noted, ir.Constant(_REGISTER, 0))

    return kinds.boolean(), codegen
