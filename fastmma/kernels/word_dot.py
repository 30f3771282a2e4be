"""Register tiles of dot products over 32-bit words of k, emitted as LLVM vectors.

A word holds consecutive elements of one row of A or one column of B: four bytes, two int16, or 32 single bits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, intrinsic, lower_getattr_generic, models, register_model, typeof_impl, unbox

_BYTE, _HALF, _WORD, _INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_SOURCES = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]

# elements of k in a word, by operation: bytes are signed in A and unsigned in B, or the other way round
ELEMENTS = {"signed_bytes": 4, "unsigned_bytes": 4, "pairs": 2, "xor": 32, "and": 32}


@dataclass(frozen=True)
class Tile:
    """What is compiled: an operation on words and the register tile that it runs in."""

    operation: str
    lanes: int  # int32 lanes of one vector
    rows: int  # rows of A
    vectors: int  # vectors of columns of B
    saturate: bool = False  # clamp to int32 after every segment of k

    @property
    def columns(self) -> int:
        """Columns of B that the tile covers."""
        return self.lanes * self.vectors

    @property
    def elements(self) -> int:
        """Elements of k in one word."""
        return ELEMENTS[self.operation]


class _TileType(types.Type):  # type: ignore[misc]
    """The Numba type that carries a `Tile`; its name is part of the key of the cache on disk, and so are these sources."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        super().__init__(name=f"{tile}#{_SOURCES}")


register_model(_TileType)(models.OpaqueModel)


@typeof_impl.register(Tile)
def _typeof_tile(tile: Tile, context: Any) -> _TileType:
    return _TileType(tile)


@unbox(_TileType)
def _unbox_tile(typ: _TileType, value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


@infer_getattr
class _TileAttributes(AttributeTemplate):  # type: ignore[misc]
    """The numbers of a tile, constants to a kernel."""

    key = _TileType

    def generic_resolve(self, tile: _TileType, name: str) -> Any:
        return types.intp


@lower_getattr_generic(_TileType)
def _lower_tile_attribute(context: Any, builder: ir.IRBuilder, tile: _TileType, value: Any, name: str) -> ir.Value:
    return _index(getattr(tile.tile, name))


def _index(value: int) -> ir.Constant:
    return ir.Constant(_INDEX, value)


def _vector(element: ir.Type, count: int) -> ir.VectorType:
    return ir.VectorType(element, count)


def _same(vector: ir.VectorType, value: int) -> ir.Constant:
    """A vector constant with equal lanes."""
    return ir.Constant(vector, [value] * vector.count)


def _splat(builder: ir.IRBuilder, vector: ir.VectorType, scalar: ir.Value) -> ir.Value:
    undefined = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(undefined, scalar, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(single, undefined, _same(_vector(_WORD, vector.count), 0))


def _load(builder: ir.IRBuilder, address: ir.Value, typ: ir.Type) -> ir.Value:
    value = builder.load(builder.inttoptr(address, typ.as_pointer()))
    value.align = 1
    return value


def _store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return builder.call(function, args)


def _offset(builder: ir.IRBuilder, address: ir.Value, index: ir.Value | int, step: ir.Value | int) -> ir.Value:
    """``address + index * step``."""
    left, right = (value if isinstance(value, ir.Value) else _index(value) for value in (index, step))
    return builder.add(address, builder.mul(left, right))


def _dot_bytes(builder: ir.IRBuilder, total: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
    """VNNI: per lane, the sum of four products of unsigned and signed bytes, wrapping (not vpdpbusds)."""
    lanes = total.type.count
    if llvmlite.binding.llvm_version_info[0] >= 21:
        unsigned, signed = (builder.bitcast(x, _vector(_BYTE, 4 * lanes)) for x in (unsigned, signed))
    return _call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", total.type, total, unsigned, signed)


def _dot_pairs(builder: ir.IRBuilder, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Per lane, the sum of two products of int16, in the form that LLVM turns into pmaddwd on x86."""
    lanes = total.type.count
    wide = _vector(_WORD, 2 * lanes)
    a, b = (builder.sext(builder.bitcast(x, _vector(_HALF, 2 * lanes)), wide) for x in (a, b))
    products = builder.mul(a, b)
    even, odd = (
        builder.shuffle_vector(products, products, ir.Constant(_vector(_WORD, lanes), list(range(first, 2 * lanes, 2)))) for first in (0, 1)
    )
    return builder.add(total, builder.add(even, odd))


def _dot_bits(builder: ir.IRBuilder, total: ir.Value, combined: ir.Value) -> ir.Value:
    """Per lane, the number of one bits."""
    return builder.add(total, _call(builder, f"llvm.ctpop.v{total.type.count}i32", total.type, combined))


def _dot(builder: ir.IRBuilder, tile: Tile, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """``total`` plus the dot product of a word of A and a word of B, in every lane."""
    match tile.operation:
        case "signed_bytes":
            return _dot_bytes(builder, total, b, a)
        case "unsigned_bytes":
            return _dot_bytes(builder, total, a, b)
        case "pairs":
            return _dot_pairs(builder, total, a, b)
        case "xor":
            return _dot_bits(builder, total, builder.xor(a, b))
        case _:
            return _dot_bits(builder, total, builder.and_(a, b))


def _word_of_run(builder: ir.IRBuilder, tile: Tile, address: ir.Value, flip: ir.Value) -> ir.Value:
    """One word from elements that follow one another in memory."""
    match tile.elements:
        case 4:
            return builder.xor(_load(builder, address, _WORD), builder.mul(builder.trunc(flip, _WORD), ir.Constant(_WORD, 0x01010101)))
        case 2:
            pair = _vector(_HALF, 2)
            bias = _splat(builder, pair, builder.trunc(flip, _HALF))
            wide = builder.zext(_load(builder, address, _vector(_BYTE, 2)), pair)
            return builder.bitcast(builder.sub(builder.xor(wide, bias), bias), _WORD)
        case _:
            run = _load(builder, address, _vector(_BYTE, 32))
            return builder.bitcast(builder.icmp_unsigned("!=", run, _same(run.type, 0)), _WORD)


def _words_of_lines(builder: ir.IRBuilder, tile: Tile, elements: list[ir.Value], flip: ir.Value) -> ir.Value:
    """One word in each lane from vectors of elements, ascending in k."""
    bytes_ = elements[0].type
    words = _vector(_WORD, bytes_.count)
    if tile.elements == 32:
        parts = []
        for first in range(0, 32, 8):
            part = _same(bytes_, 0)
            for element in reversed(elements[first : first + 8]):
                bit = _call(builder, f"llvm.umin.v{bytes_.count}i8", bytes_, element, _same(bytes_, 1))
                part = builder.or_(builder.add(part, part), bit)
            parts.append(builder.zext(part, words))
    elif tile.elements == 4:
        bias = _splat(builder, bytes_, builder.trunc(flip, _BYTE))
        parts = [builder.zext(builder.xor(element, bias), words) for element in elements]
    else:
        bias = _splat(builder, words, builder.trunc(flip, _WORD))
        parts = [builder.sub(builder.xor(builder.zext(element, words), bias), bias) for element in elements]
        parts[0] = builder.and_(parts[0], _same(words, 0xFFFF))
    word = parts[0]
    for position, part in enumerate(parts[1:], 1):
        word = builder.or_(word, builder.shl(part, _same(words, position * 32 // len(parts))))
    return word


@intrinsic
def load_word(typing_context: Any, address: Any) -> Any:
    """The int32 at an address, aligned or not."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _load(builder, args[0], _WORD)

    return types.int32(types.intp), emit


@intrinsic
def store_word(typing_context: Any, value: Any, address: Any) -> Any:
    """Store an int32 at an address, aligned or not."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _store(builder, args[0], args[1])
        return context.get_dummy_value()

    return types.void(types.int32, types.intp), emit


@intrinsic
def copy_byte(typing_context: Any, source: Any, target: Any) -> Any:
    """Copy one byte from address to address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _store(builder, _load(builder, args[0], _BYTE), args[1])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), emit


@intrinsic
def word_of_run(typing_context: Any, tile: Any, address: Any, flip: Any) -> Any:
    """The word of `elements` bytes that follow one another."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _word_of_run(builder, tile.tile, args[1], args[2])

    return types.int32(tile, types.intp, types.intp), emit


@intrinsic
def words_of_lines(typing_context: Any, tile: Any, address: Any, k_stride: Any, flip: Any, target: Any) -> Any:
    """Store the words of `lanes` neighbouring lines, whose elements are `k_stride` bytes apart."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _, address, k_stride, flip, target = args
        bytes_ = _vector(_BYTE, tile.tile.lanes)
        elements = [_load(builder, _offset(builder, address, k, k_stride), bytes_) for k in range(tile.tile.elements)]
        _store(builder, _words_of_lines(builder, tile.tile, elements, flip), target)
        return context.get_dummy_value()

    return types.void(tile, types.intp, types.intp, types.intp, types.intp), emit


@intrinsic
def sum_rows(typing_context: Any, tile: Any, panel: Any, words: Any, target: Any) -> Any:
    """Store -128 times (signed A) or 128 times (unsigned A) the sum of each of a panel's rows; reads one vector past the panel."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _, panel, words, target = args
        spec = tile.tile
        vector = _vector(_WORD, spec.lanes)
        scale = -128 if spec.operation == "signed_bytes" else 128
        total = cgutils.alloca_once_value(builder, _same(vector, 0))
        with cgutils.for_range(builder, words) as loop:
            rows = _load(builder, _offset(builder, panel, loop.index, 4 * spec.rows), vector)
            builder.store(_dot(builder, spec, builder.load(total), rows, _same(vector, 0x01010101)), total)
        sums = builder.mul(builder.load(total), _same(vector, scale))
        for row in range(spec.rows):
            _store(builder, builder.extract_element(sums, ir.Constant(_WORD, row)), builder.add(target, _index(4 * row)))
        return context.get_dummy_value()

    return types.void(tile, types.intp, types.intp, types.intp), emit


@intrinsic
def multiply(
    typing_context: Any,
    tile: Any,
    a: Any,
    b: Any,
    segments: Any,
    words: Any,
    starts: Any,
    starts_step: Any,
    c: Any,
    c_stride: Any,
    out: Any,
    out_stride: Any,
) -> Any:
    """One register tile of ``out = c + a b`` over ``segments`` runs of ``words`` words, clamped after each when the tile saturates.

    Panels hold the words of all rows (or columns) of the tile, word after word. A segment's sums begin with the row's number at `starts`.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _, a, b, segments, words, starts, starts_step, c, c_stride, out, out_stride = args
        spec = tile.tile
        vector = _vector(_WORD, spec.lanes)
        totals = [[cgutils.alloca_once(builder, vector) for _ in range(spec.vectors)] for _ in range(spec.rows)]
        with cgutils.for_range(builder, segments) as segment:
            start = _offset(builder, starts, segment.index, starts_step)
            for row in range(spec.rows):
                first = _splat(builder, vector, _load(builder, builder.add(start, _index(4 * row)), _WORD))
                for total in totals[row]:
                    builder.store(first, total)
            skipped = builder.mul(segment.index, words)
            a_words = _offset(builder, a, skipped, 4 * spec.rows)
            b_words = _offset(builder, b, skipped, 4 * spec.columns)
            with cgutils.for_range(builder, words) as word:
                a_word = _offset(builder, a_words, word.index, 4 * spec.rows)
                b_word = _offset(builder, b_words, word.index, 4 * spec.columns)
                columns = [_load(builder, builder.add(b_word, _index(4 * spec.lanes * v)), vector) for v in range(spec.vectors)]
                for row in range(spec.rows):
                    element = _splat(builder, vector, _load(builder, builder.add(a_word, _index(4 * row)), _WORD))
                    for total, column in zip(totals[row], columns, strict=True):
                        builder.store(_dot(builder, spec, builder.load(total), element, column), total)
            at_first = builder.icmp_signed("==", segment.index, _index(0))
            before, stride = builder.select(at_first, c, out), builder.select(at_first, c_stride, out_stride)
            for row in range(spec.rows):
                for v, total in enumerate(totals[row]):
                    column = _index(4 * spec.lanes * v)
                    old = _load(builder, builder.add(_offset(builder, before, row, stride), column), vector)
                    new = builder.load(total)
                    if spec.saturate:
                        new = _call(builder, f"llvm.sadd.sat.v{spec.lanes}i32", vector, old, new)
                    else:
                        new = builder.add(old, new)
                    _store(builder, new, builder.add(_offset(builder, out, row, out_stride), column))
        return context.get_dummy_value()

    return types.void(tile, *[types.intp] * 10), emit
