"""Register tiles of dot products over 32-bit words of k, as LLVM vectors, and the packing of operands into panels of such words.

A word holds consecutive elements of one row of A or one column of B: four bytes, two int16, or 32 single bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, typeof_impl, unbox

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


class Source(NamedTuple):
    """An operand of one-byte elements in memory; k or the other index ("lines") has a stride of one byte."""

    address: int
    k: int
    k_stride: int
    line_stride: int
    flip: int  # 128 exchanges signed and unsigned bytes (and says that bytes are signed where they widen to int16)


class Block(NamedTuple):
    """A block of the result: int32, columns contiguous, strides in bytes; a column step of 0 repeats one row of zeros."""

    address: int
    row_stride: int
    column_step: int


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


def _word(builder: ir.IRBuilder, tile: Tile, elements: list[ir.Value], flip: ir.Value) -> ir.Value:
    """Words (of the same lanes) made of bytes, the first element of k in the lowest bits."""
    count = elements[0].type.count
    words = _vector(_WORD, count)
    if tile.elements == 32:
        zero, one = _same(elements[0].type, 0), _same(elements[0].type, 1)
        parts = []
        for first in range(0, 32, 8):
            part = zero
            for bit, element in enumerate(elements[first : first + 8]):
                set_ = builder.select(builder.icmp_unsigned("!=", element, zero), one, zero)
                part = builder.or_(part, builder.shl(set_, _same(set_.type, bit)))
            parts.append(builder.zext(part, words))
    elif tile.elements == 4:
        bias = _splat(builder, elements[0].type, builder.trunc(flip, _BYTE))
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
def _tile_value(typing_context: Any, tile: Any, name: Any) -> Any:
    """A constant of the tile, by name."""
    value = getattr(tile.tile, name.literal_value)
    return types.intp(tile, name), lambda context, builder, signature, args: _index(value)


@intrinsic
def _load_word(typing_context: Any, address: Any) -> Any:
    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _load(builder, args[0], _WORD)

    return types.int32(types.intp), emit


@intrinsic
def _load_byte(typing_context: Any, address: Any) -> Any:
    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _load(builder, args[0], _BYTE)

    return types.uint8(types.intp), emit


@intrinsic
def _store_word(typing_context: Any, value: Any, address: Any) -> Any:
    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _store(builder, args[0], args[1])
        return context.get_dummy_value()

    return types.void(types.int32, types.intp), emit
