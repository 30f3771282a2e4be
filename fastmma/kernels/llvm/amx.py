"""The tiles of AMX, eight registers of 16 rows of 64 bytes, in LLVM code; and plain code that does the same on any CPU."""

from __future__ import annotations

from llvmlite import ir

from fastmma.kernels.llvm.building import alloca_once, for_range
from fastmma.kernels.llvm.emit import F32, I8, I32, I64, POINTER, Emitter, vector

TILE_ROWS, ROW_BYTES = 16, 64
TILE_BYTES = TILE_ROWS * ROW_BYTES
_TILES = 8
_ROW, _FLOATS = vector(I32, TILE_ROWS), vector(F32, TILE_ROWS)
_LETTERS = {True: "s", False: "u"}


class Tiles:
    """Emission by AMX's instructions, which name tiles by number."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit

    def begin(self) -> None:
        """Give all tiles their whole size; LLVM, which would do so for tiles that it numbers itself, does nothing for these."""
        emit = self._emit
        configuration = bytes([1, *[0] * 15, *[ROW_BYTES, 0] * _TILES, *[0] * 16, *[TILE_ROWS] * _TILES, *[0] * 8])
        words = [int.from_bytes(configuration[first : first + 4], "little") for first in range(0, ROW_BYTES, 4)]
        memory = emit.builder.bitcast(alloca_once(emit.builder, _ROW), POINTER)
        emit.store(ir.Constant(_ROW, words), memory)
        self._call("ldtilecfg", memory)

    def end(self) -> None:
        """Give the tiles back, so that the system need not save them any more."""
        self._call("tilerelease")

    def clear(self, tile: int) -> None:
        """Set a tile to zero."""
        self._call("tilezero", ir.Constant(I8, tile))

    def load(self, tile: int, place: ir.Value, stride: int | ir.Value) -> None:
        """Read the rows of a tile, which are `stride` bytes apart."""
        self._call("tileloadd64", ir.Constant(I8, tile), place, self._bytes(stride))

    def store(self, tile: int, place: ir.Value, stride: int | ir.Value) -> None:
        """Write the rows of a tile, `stride` bytes apart."""
        self._call("tilestored64", ir.Constant(I8, tile), place, self._bytes(stride))

    def multiply(self, total: int, a: int, b: int, signed: tuple[bool, bool]) -> None:
        """Add products of bytes to a tile of int32, which wrap: rows of `a` are bytes of k, rows of `b` words of four k of each column."""
        letters = "".join(_LETTERS[each] for each in signed)
        self._call(f"tdpb{letters}d", *(ir.Constant(I8, tile) for tile in (total, a, b)))

    def multiply_bf16(self, total: int, a: int, b: int) -> None:
        """Add products of bf16 to a tile of float32: rows of `a` are numbers of k, rows of `b` pairs of two k of each column."""
        self._call("tdpbf16ps", *(ir.Constant(I8, tile) for tile in (total, a, b)))

    def _bytes(self, stride: int | ir.Value) -> ir.Value:
        return ir.Constant(I64, stride) if isinstance(stride, int) else stride

    def _call(self, name: str, *arguments: ir.Value) -> None:
        self._emit.intrinsic(f"x86.{name}", ir.VoidType(), *arguments)


class PlainTiles(Tiles):
    """Emission of the same by tiles in memory."""

    def begin(self) -> None:
        """Make room for the tiles."""
        memory = alloca_once(self._emit.builder, ir.ArrayType(_ROW, _TILES * TILE_ROWS))
        self._memory = self._emit.builder.bitcast(memory, POINTER)

    def end(self) -> None:
        """Do nothing: the room is the function's own."""

    def clear(self, tile: int) -> None:
        """Set a tile to zero."""
        emit = self._emit
        with for_range(emit.builder, emit.index(TILE_ROWS)) as row:
            emit.store(emit.constant(_ROW, 0), self._memory, emit.sum(emit.scaled(row.index, ROW_BYTES), tile * TILE_BYTES))

    def load(self, tile: int, place: ir.Value, stride: int | ir.Value) -> None:
        """Read the rows of a tile, which are `stride` bytes apart."""
        self._copy(tile, place, stride, stores=False)

    def store(self, tile: int, place: ir.Value, stride: int | ir.Value) -> None:
        """Write the rows of a tile, `stride` bytes apart."""
        self._copy(tile, place, stride, stores=True)

    def multiply(self, total: int, a: int, b: int, signed: tuple[bool, bool]) -> None:
        """Add products of bytes to a tile of int32, word after word of k."""
        emit, builder = self._emit, self._emit.builder
        total_rows, a_rows, b_rows = (emit.at(self._memory, tile * TILE_BYTES) for tile in (total, a, b))
        with for_range(builder, emit.index(TILE_ROWS)) as row, for_range(builder, emit.index(ROW_BYTES // 4)) as word:
            offset = emit.scaled(row.index, ROW_BYTES)
            left = emit.broadcast(_ROW, a_rows, emit.sum(offset, emit.scaled(word.index, 4)))
            right = emit.load(_ROW, b_rows, emit.scaled(word.index, ROW_BYTES))
            sums = emit.load(_ROW, total_rows, offset)
            for place in range(4):
                factors = [self._byte(value, place, each) for value, each in zip((left, right), signed, strict=True)]
                sums = builder.add(sums, builder.mul(*factors))
            emit.store(sums, total_rows, offset)

    def multiply_bf16(self, total: int, a: int, b: int) -> None:
        """Add products of bf16 to a tile of float32, pair after pair of k: AMX's results where no sum is rounded."""
        emit, builder = self._emit, self._emit.builder
        total_rows, a_rows, b_rows = (emit.at(self._memory, tile * TILE_BYTES) for tile in (total, a, b))
        with for_range(builder, emit.index(TILE_ROWS)) as row, for_range(builder, emit.index(ROW_BYTES // 4)) as word:
            offset = emit.scaled(row.index, ROW_BYTES)
            left = emit.broadcast(_ROW, a_rows, emit.sum(offset, emit.scaled(word.index, 4)))
            right = emit.load(_ROW, b_rows, emit.scaled(word.index, ROW_BYTES))
            sums = emit.load(_FLOATS, total_rows, offset)
            for place in range(2):
                factors = [emit.cast(self._half(value, place), _FLOATS) for value in (left, right)]
                sums = builder.fadd(sums, builder.fmul(*factors))
            emit.store(sums, total_rows, offset)

    def _half(self, words: ir.Value, place: int) -> ir.Value:
        """One of the two bf16 numbers of each word, as float32."""
        return self._emit.masked(words, -(1 << 16)) if place else self._emit.shifted_left(words, 16)

    def _byte(self, words: ir.Value, place: int, signed: bool) -> ir.Value:
        """One of the four bytes of each word, as int32."""
        top = self._emit.shifted_left(words, 24 - 8 * place)
        return self._emit.builder.ashr(top, self._emit.constant(_ROW, 24)) if signed else self._emit.shifted_right(top, 24)

    def _copy(self, tile: int, place: ir.Value, stride: int | ir.Value, *, stores: bool) -> None:
        emit = self._emit
        with for_range(emit.builder, emit.index(TILE_ROWS)) as row:
            kept = emit.at(self._memory, emit.sum(emit.scaled(row.index, ROW_BYTES), tile * TILE_BYTES))
            given = emit.at(place, emit.builder.mul(row.index, self._bytes(stride)))
            source, target = (kept, given) if stores else (given, kept)
            emit.store(emit.load(_ROW, source), target)
