"""The micro-kernel of products of bytes on AMX: some rows by some columns over a slice of k, in blocks of two by two tiles of int32."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS, PlainTiles, Tiles
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import I32, Emitter, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.memory import LINE

BLOCK = 2 * TILE_ROWS  # rows, or columns, of a block
SCRATCH = 4 * TILE_BYTES  # bytes for the sums of a block
_ROW_OF_SUMS = 4 * BLOCK
_A, _B = (4, 5), (6, 7)  # tiles; those before them hold sums
_PARTS = 4  # of a block of rows, each of which is asked for during another block of columns
_LANES = vector(I32, TILE_ROWS)


@dataclass(frozen=True)
class AmxConfig:
    """The variant of the code: which bytes have a sign, and whether plain code stands for AMX."""

    a_signed: bool
    b_signed: bool
    plain: bool = False


@dataclass(frozen=True)
class _Ahead:
    """Memory to ask for: a part, by number, of the next block of rows of A; and the block of results."""

    rows: ir.Value
    part: ir.Value
    out: ir.Value
    out_stride: ir.Value


class _Block:
    """Emission of one block."""

    def __init__(self, config: AmxConfig, emit: Emitter, scratch: ir.Value) -> None:
        self._emit, self._scratch = emit, scratch
        self._signed = config.a_signed, config.b_signed
        self.tiles = (PlainTiles if config.plain else Tiles)(emit)

    def multiply(self, a: ir.Value, b: tuple[ir.Value, ir.Value], chunks: ir.Value, ahead: _Ahead) -> None:
        """Leave the sums over so many tiles of k in the scratch memory."""
        emit, tiles = self._emit, self.tiles
        for total in range(4):
            tiles.clear(total)
        with for_range(emit.builder, chunks) as chunk:
            self._ask(ahead, chunk.index)
            rows = emit.at(a, emit.scaled(chunk.index, 2 * TILE_BYTES))
            for i, left in enumerate(_A):
                tiles.load(left, emit.at(rows, i * TILE_BYTES), ROW_BYTES)
                for j, right in enumerate(_B):
                    if i == 0:
                        tiles.load(right, emit.at(b[j], emit.scaled(chunk.index, TILE_BYTES)), ROW_BYTES)
                    tiles.multiply(2 * i + j, left, right, self._signed)
        for total in range(4):
            i, j = divmod(total, 2)
            tiles.store(total, emit.at(self._scratch, i * TILE_ROWS * _ROW_OF_SUMS + j * ROW_BYTES), _ROW_OF_SUMS)

    def _ask(self, ahead: _Ahead, chunk: ir.Value) -> None:
        """Ask for memory that will be needed."""
        emit, builder = self._emit, self._emit.builder
        result = emit.at(ahead.out, builder.mul(builder.and_(chunk, emit.index(BLOCK - 1)), ahead.out_stride))
        for place in range(0, _ROW_OF_SUMS, LINE):
            emit.prefetch(result, place, written=True)
        with builder.if_then(builder.icmp_signed("<", ahead.part, emit.index(_PARTS))):
            rows = emit.at(ahead.rows, emit.scaled(chunk, 2 * TILE_BYTES))
            for place in range(0, 2 * TILE_BYTES // _PARTS, LINE):
                emit.prefetch(rows, emit.sum(emit.scaled(ahead.part, 2 * TILE_BYTES // _PARTS), place), near=False)

    def add(self, c: ir.Value, c_stride: ir.Value, out: ir.Value, out_stride: ir.Value, rows: ir.Value, columns: ir.Value) -> None:
        """``out = c + sums`` for the rows and columns that there are."""
        emit, builder = self._emit, self._emit.builder
        with for_range(builder, self._least(rows)) as row:
            sums = emit.at(self._scratch, emit.scaled(row.index, _ROW_OF_SUMS))
            old, new = (emit.at(base, builder.mul(row.index, stride)) for base, stride in ((c, c_stride), (out, out_stride)))
            with builder.if_else(builder.icmp_signed(">=", columns, emit.index(BLOCK))) as (whole, partial):
                with whole:
                    for place in range(0, _ROW_OF_SUMS, ROW_BYTES):
                        emit.store(builder.add(emit.load(_LANES, old, place), emit.load(_LANES, sums, place)), new, place)
                with partial, for_range(builder, columns) as column:
                    place = emit.scaled(column.index, 4)
                    emit.store(builder.add(emit.load(I32, old, place), emit.load(I32, sums, place)), new, place)

    def _least(self, lines: ir.Value) -> ir.Value:
        """A block's lines, or fewer."""
        block = self._emit.index(BLOCK)
        return self._emit.builder.select(self._emit.builder.icmp_signed("<", lines, block), lines, block)


def _emit(config: AmxConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """``out = c + a b``, of packed `a` and `b`.

    Addresses: a, b, c, out, `SCRATCH` bytes. Integers: bytes from a block of rows of `a` to the next, from a tile of columns of `b` to the
    next, from row to row of c and from block to block of its columns, from row to row of out; tiles of k, rows, columns.
    """
    a, b, c, out, scratch, a_step, b_step, c_stride, c_step, out_stride, chunks, rows, columns = arguments
    emit = Emitter(builder)
    block = _Block(config, emit, scratch)

    def blocks(lines: ir.Value) -> ir.Value:
        return builder.udiv(emit.sum(lines, BLOCK - 1), emit.index(BLOCK))

    block.tiles.begin()
    with for_range(builder, blocks(rows)) as i, for_range(builder, blocks(columns)) as j:
        row, column = emit.scaled(i.index, BLOCK), emit.scaled(j.index, BLOCK)
        b_first = emit.at(b, builder.mul(emit.scaled(j.index, 2), b_step))
        before = emit.at(emit.at(c, builder.mul(row, c_stride)), builder.mul(j.index, c_step))
        after = emit.at(emit.at(out, builder.mul(row, out_stride)), emit.scaled(column, 4))
        rows_of_a = emit.at(a, builder.mul(i.index, a_step))
        ahead = _Ahead(emit.at(rows_of_a, a_step), j.index, after, out_stride)
        block.multiply(rows_of_a, (b_first, emit.at(b_first, b_step)), chunks, ahead)
        block.add(before, c_stride, after, out_stride, builder.sub(rows, row), builder.sub(columns, column))
    block.tiles.end()


KERNEL = MicroKernel(_emit, 5, 8)
