"""Instructions that LLVM has no common word for: a row for each architecture that micro-kernels are emitted for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from fastmma.kernels.llvm.building import alloca_once, get_or_insert_function

_I16, _I32, _I64, _POINTER = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.PointerType(ir.IntType(8))

NEAREST, TOWARD_ZERO = (
    "to nearest even",
    "toward zero",
)  # roundings; all exceptions are masked, subnormals neither flushed nor taken as zeros


class Architecture(NamedTuple):
    """The code by which an architecture says what LLVM's common instructions do not."""

    register: str  # inline assembly's constraint for a vector register
    register_bytes: int  # of the longest value that such a register takes
    modes: dict[str, int]  # what the control register of floats holds for a rounding
    enter: Callable[[ir.IRBuilder, int], ir.Value]  # emits the setting of the control register; what `leave` needs
    leave: Callable[[ir.IRBuilder, ir.Value], None]  # emits the setting back
    half_codes: Callable[[ir.IRBuilder, ir.Value], ir.Value]  # emits the f16 codes of 8 f32 lanes, to nearest even, whatever the mode


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(get_or_insert_function(builder.module, kind, f"llvm.{name}"), arguments)


def _enter_mxcsr(builder: ir.IRBuilder, mode: int) -> ir.Value:
    saved, chosen = (builder.bitcast(alloca_once(builder, _I32), _POINTER) for _ in range(2))
    builder.store(ir.Constant(_I32, mode), builder.bitcast(chosen, ir.PointerType(_I32)))
    _call(builder, "x86.sse.stmxcsr", ir.VoidType(), saved)
    _call(builder, "x86.sse.ldmxcsr", ir.VoidType(), chosen)
    return saved


def _leave_mxcsr(builder: ir.IRBuilder, saved: ir.Value) -> None:
    _call(builder, "x86.sse.ldmxcsr", ir.VoidType(), saved)


def _enter_fpcr(builder: ir.IRBuilder, mode: int) -> ir.Value:
    saved = _call(builder, "aarch64.get.fpcr", _I64)
    _leave_fpcr(builder, ir.Constant(_I64, mode))
    return saved


def _leave_fpcr(builder: ir.IRBuilder, saved: ir.Value) -> None:
    _call(builder, "aarch64.set.fpcr", ir.VoidType(), saved)


def _x86_half_codes(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The instruction's own rounding field overrides the mode."""
    return _call(builder, "x86.vcvtps2ph.256", ir.VectorType(_I16, 8), value, ir.Constant(_I32, 0))


def _aarch64_half_codes(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """FCVTN rounds by the mode, FRINTN does not: values become whole numbers of their last places, which FCVTN then leaves alone."""
    words = ir.VectorType(_I32, 8)

    def word(number: int) -> ir.Constant:
        return ir.Constant(words, [number] * 8)

    bits = builder.bitcast(value, words)
    field = builder.and_(bits, word(0xFF << 23))
    # f16 has subnormals below 2**-14, and 65520 and more are infinity
    field = _call(builder, "umax.v8i32", words, field, word(127 - 14 << 23))
    place, inverse = builder.sub(field, word(10 << 23)), builder.sub(word(2 * 127 + 10 << 23), field)
    units = _call(builder, "roundeven.v8f32", value.type, builder.fmul(value, builder.bitcast(inverse, value.type)))
    rounded = builder.fmul(units, builder.bitcast(place, value.type))
    magnitude = builder.and_(builder.bitcast(rounded, words), word(0x7FFFFFFF))
    infinite = builder.icmp_unsigned(">=", magnitude, word(127 + 16 << 23))
    infinity = builder.or_(builder.and_(bits, word(-1 << 31)), word(0xFF << 23))
    result = builder.select(infinite, builder.bitcast(infinity, value.type), rounded)
    return builder.bitcast(builder.fptrunc(result, ir.VectorType(ir.HalfType(), 8)), ir.VectorType(_I16, 8))


_X86 = Architecture("v", 64, {NEAREST: 0x1F80, TOWARD_ZERO: 0x7F80}, _enter_mxcsr, _leave_mxcsr, _x86_half_codes)
_AARCH64 = Architecture("w", 16, {NEAREST: 0, TOWARD_ZERO: 3 << 22}, _enter_fpcr, _leave_fpcr, _aarch64_half_codes)
_ROWS = {"x86_64": _X86, "aarch64": _AARCH64, "arm64": _AARCH64}


def architecture_of(module: ir.Module) -> Architecture:
    """The row that the code of a module is emitted by, from LLVM's target triple."""
    return _ROWS[module.triple.split("-")[0]]
