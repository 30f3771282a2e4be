"""Lines of bf16 numbers for the tiles of AMX, emitted as LLVM vectors."""

# the parameters of an intrinsic are Numba types, found again in its signature

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.emit import F32, I8, I16, I32, POINTER, Emitter, vector
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.llvm.vectors import VectorType
from fastmma.kernels.matrices.memory import LINE

_COUNT = LINE // 4
_TWICE = 0, 1, 2, 3, 4, 6, 8, 12  # magnitudes of e2m1
TWICE_VALUES = tuple(sign * each for sign in (1.0, -1.0) for each in _TWICE)  # by code
_FLOATS, _WORDS, _HALVES = vector(F32, _COUNT), vector(I32, _COUNT), vector(I16, 2 * _COUNT)


@intrinsic
def load_twice_values(typing_context: Any, how: Any, source: Any) -> Any:
    """Load 16 codes of e2m1, and return twice their values."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit = Emitter(builder)
        codes = emit.load(vector(I8, _COUNT), builder.inttoptr(args[1], POINTER))
        return _by_shifts(emit, codes) if how.value.plain else _by_permutation(emit, codes)

    return VectorType(kinds.float32, _COUNT)(how, kinds.int64), generate


def _by_permutation(emit: Emitter, codes: ir.Value) -> ir.Value:
    """An instruction of AVX-512 finds 16 numbers in a table of 16; it looks at four bits."""
    table = ir.Constant(_FLOATS, TWICE_VALUES)
    return emit.intrinsic("x86.avx512.permvar.sf.512", _FLOATS, table, emit.widened(codes))


def _by_shifts(emit: Emitter, codes: ir.Value) -> ir.Value:
    """Shift a word of eight magnitudes."""
    words, builder = emit.widened(codes), emit.builder
    places = emit.shifted_left(emit.masked(words, 7), 2)
    table = emit.constant(_WORDS, sum(each << 4 * code for code, each in enumerate(_TWICE)))
    magnitudes = builder.uitofp(emit.masked(builder.lshr(table, places), 15), _FLOATS)
    signs = emit.shifted_left(emit.masked(words, 8), 28)
    return emit.cast(builder.or_(emit.cast(magnitudes, _WORDS), signs), _FLOATS)


@intrinsic
def load_products(typing_context: Any, how: Any, source: Any, first: Any, second: Any) -> Any:
    """Load 32 codes of e2m1, and return what two tables of 16 words have for the codes of either half."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit = Emitter(builder)
        source, *tables = (builder.inttoptr(each, POINTER) for each in args[1:])
        codes = emit.load(vector(I8, 2 * _COUNT), source)
        halves = [emit.load(vector(I16, _COUNT), each) for each in tables]
        table = emit.shuffle(halves[0], halves[1], range(2 * _COUNT))
        if how.value.plain:
            return _by_lanes(emit, table, codes)
        places = builder.or_(emit.masked(builder.zext(codes, _HALVES), 15), ir.Constant(_HALVES, [0] * _COUNT + [_COUNT] * _COUNT))
        return emit.intrinsic("x86.avx512.permvar.hi.512", _HALVES, table, places)

    return VectorType(kinds.int16, 2 * _COUNT)(how, kinds.int64, kinds.int64, kinds.int64), generate


def _by_lanes(emit: Emitter, table: ir.Value, codes: ir.Value) -> ir.Value:
    """Look up one word after another."""
    builder, found = emit.builder, ir.Constant(_HALVES, ir.Undefined)
    for lane in range(2 * _COUNT):
        code = builder.and_(builder.extract_element(codes, ir.Constant(I32, lane)), ir.Constant(I8, 15))
        place = builder.or_(builder.zext(code, I32), ir.Constant(I32, lane // _COUNT * _COUNT))
        found = builder.insert_element(found, builder.extract_element(table, place), ir.Constant(I32, lane))
    return found


@intrinsic
def store_pairs(typing_context: Any, first: Any, second: Any, target: Any) -> Any:
    """Store the upper halves of 16 floats, each followed by that of one of 16 others."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit = Emitter(builder)
        low, high = (emit.cast(each, _WORDS) for each in args[:2])
        pairs = builder.or_(emit.shifted_right(low, 16), emit.masked(high, -(1 << 16)))
        emit.store(pairs, builder.inttoptr(args[2], POINTER))
        return context.get_dummy_value()

    return kinds.none(first, second, kinds.int64), generate


@intrinsic
def sums_of_lines(typing_context: Any, source: Any) -> Any:
    """Sum up the floats of each of 16 lines that follow one another."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit, source = Emitter(builder), builder.inttoptr(args[0], POINTER)
        sums = [emit.load(_FLOATS, source, LINE * line) for line in range(_COUNT)]
        while len(sums) > 1:
            pairs = zip(sums[::2], sums[1::2], strict=True)
            sums = [builder.fadd(*(emit.shuffle(*pair, range(first, 2 * _COUNT, 2)) for first in (0, 1))) for pair in pairs]
        return sums[0]

    return VectorType(kinds.float32, _COUNT)(kinds.int64), generate
