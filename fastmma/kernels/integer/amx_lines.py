"""Bytes that become lines of AMX's tiles, emitted as LLVM vectors; on the way, codes of fewer bits become numbers."""

# the parameters of an intrinsic are Numba types, found again in its signature

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from fastmma.kernels.llvm import cpu, kinds
from fastmma.kernels.llvm.emit import I8, I32, POINTER, Emitter, undefined, vector
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.matrices.memory import LINE

_BIT = ir.IntType(1)
_BYTES, _WORDS = vector(I8, LINE), vector(I32, LINE // 4)
LINES = 4  # that are copied together
_LANES = 16  # bytes of a row of B that become a line with those of the next rows


@constant
@dataclass(frozen=True)
class Numbers:
    """Describe how codes of a byte become bytes of numbers: ``((min(code, most) ^ sign) - sign) | ones``; A's zeros have to stay zeros."""

    most: int = 255
    sign: int = 0  # the sign bit of numbers of fewer bits; 255 negates
    ones: int = 0


BYTES, HALVES = Numbers(), Numbers(sign=8)  # bytes are numbers already; codes of s4
BITS, SIGNS = Numbers(most=1), Numbers(most=1, sign=255, ones=1)  # 0 and 1; 1 and -1


class _Lines(Emitter):
    """Emission of code on cache lines."""

    def numbers(self, line: ir.Value, how: Numbers) -> ir.Value:
        """Numbers of the codes of a line."""
        builder = self.builder
        if how.most < 255:
            line = self.call("umin", line, self.constant(line.type, how.most))
        if how.sign:
            signs = self.constant(line.type, how.sign)
            line = builder.sub(builder.xor(line, signs), signs)
        return builder.or_(line, self.constant(line.type, how.ones)) if how.ones else line

    def woven(self, rows: ir.Value) -> ir.Value:
        """The first bytes of four rows, which follow one another, then the next ones."""
        picks = [lane % 4 * _LANES + lane // 4 for lane in range(LINE)]
        if "avx512vbmi" not in cpu.usable():
            return self.shuffle(rows, undefined(_BYTES), picks)
        # one instruction: of numbers that it knows LLVM makes eleven, which weave pairs of rows
        (hidden,) = self.pinned([ir.Constant(_BYTES, picks)])
        return self.intrinsic("x86.avx512.permvar.qi.512", _BYTES, rows, hidden)

    def turned(self, lines: list[ir.Value]) -> list[ir.Value]:
        """16 lines of 16 words, turned over the diagonal."""
        count = len(lines)
        for size in (1, 2, 4, 8):  # squares of so many words change places across the diagonal
            lower = [lane if not lane & size else count + lane - size for lane in range(count)]
            upper = [lane + size if not lane & size else count + lane for lane in range(count)]
            for line in range(count):
                if not line & size:
                    pair = lines[line], lines[line + size]
                    lines[line], lines[line + size] = (self.shuffle(*pair, picks) for picks in (lower, upper))
        return lines


@intrinsic
def copy_line(typing_context: Any, how: Any, source: Any, target: Any) -> Any:
    """Copy the bytes of a cache line from address to address, aligned or not."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        lines, (_, source, target) = _Lines(builder), args
        source, target = (builder.inttoptr(address, POINTER) for address in (source, target))
        lines.store(lines.numbers(lines.load(_BYTES, source), how.value), target)
        return context.get_dummy_value()

    return kinds.none(how, *[kinds.int64] * 2), generate


@intrinsic
def copy_lines(typing_context: Any, how: Any, source: Any, target: Any, step: Any) -> Any:
    """Copy `LINES` cache lines that follow one another to lines `step` bytes apart."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        lines, (_, source, target, step) = _Lines(builder), args
        source, target = (builder.inttoptr(address, POINTER) for address in (source, target))
        for number, line in enumerate([lines.load(_BYTES, source, LINE * number) for number in range(LINES)]):
            lines.store(lines.numbers(line, how.value), target, lines.scaled(step, number))
        return context.get_dummy_value()

    return kinds.none(how, *[kinds.int64] * 3), generate


@intrinsic
def copy_part(typing_context: Any, how: Any, source: Any, target: Any, count: Any) -> Any:
    """Copy the first bytes of a cache line, and zeros after them; what follows in the source is not read."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        lines, (_, source, target, count) = _Lines(builder), args
        some = builder.sub(builder.shl(lines.index(1), builder.and_(count, lines.index(LINE - 1))), lines.index(1))
        bits = builder.select(builder.icmp_signed("<", count, lines.index(LINE)), some, lines.index(-1))
        mask = builder.bitcast(bits, vector(_BIT, LINE))
        place = builder.bitcast(builder.inttoptr(source, POINTER), ir.PointerType(_BYTES))
        zeros = lines.constant(_BYTES, 0)
        line = lines.intrinsic(f"masked.load.v{LINE}i8.p0", _BYTES, place, ir.Constant(I32, 1), mask, zeros)
        lines.store(lines.numbers(line, how.value), builder.inttoptr(target, POINTER))
        return context.get_dummy_value()

    return kinds.none(how, *[kinds.int64] * 3), generate


@intrinsic
def copy_turned(typing_context: Any, how: Any, source: Any, stride: Any, target: Any) -> Any:
    """Copy 16 words each of 16 lines, `stride` bytes apart: the first ones of all lines, then the next ones, one after the other."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        lines, (_, source, stride, target) = _Lines(builder), args
        source, target = (builder.inttoptr(address, POINTER) for address in (source, target))
        rows = [lines.load(_BYTES, source, lines.scaled(stride, line)) for line in range(_WORDS.count)]
        rows = [lines.cast(lines.numbers(row, how.value), _WORDS) for row in rows]
        for number, line in enumerate(lines.turned(rows)):
            lines.store(line, target, LINE * number)
        return context.get_dummy_value()

    return kinds.none(how, *[kinds.int64] * 3), generate


@intrinsic
def copy_woven(typing_context: Any, how: Any, source: Any, stride: Any, target: Any) -> Any:
    """Copy 16 bytes each of four rows, `stride` bytes apart: the first ones of all rows, then the next ones, one after the other."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        lines, (_, source, stride, target) = _Lines(builder), args
        source = builder.inttoptr(source, POINTER)
        rows = lines.joined([lines.load(vector(I8, _LANES), source, lines.scaled(stride, row)) for row in range(4)])
        lines.store(lines.numbers(lines.woven(rows), how.value), builder.inttoptr(target, POINTER))
        return context.get_dummy_value()

    return kinds.none(how, *[kinds.int64] * 3), generate
