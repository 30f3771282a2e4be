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


@dataclass(frozen=True)
class _Sums:
    """Name where the sums of a block start, unless that is zero, and where they end, with bytes from row to row of each."""

    from_zero: ir.Value
    before: ir.Value
    before_stride: ir.Value
    after: ir.Value
    after_stride: ir.Value


class _Block:
    """Emission of one block."""

    def __init__(self, config: AmxConfig, emit: Emitter) -> None:
        self._emit = emit
        self._signed = config.a_signed, config.b_signed
        self.tiles = (PlainTiles if config.plain else Tiles)(emit)

    def multiply(self, a: ir.Value, b: tuple[ir.Value, ir.Value], chunks: ir.Value, sums: _Sums, ahead: _Ahead) -> None:
        """Add the products over so many tiles of k to sums of a block, which are read and written as whole tiles."""
        emit, builder, tiles = self._emit, self._emit.builder, self.tiles
        with builder.if_else(sums.from_zero) as (fresh, begun):
            with fresh:
                for total in range(4):
                    tiles.clear(total)
            with begun:
                for total in range(4):
                    tiles.load(total, self._tile(sums.before, sums.before_stride, total), sums.before_stride)
        with for_range(builder, chunks) as chunk:
            self._ask(ahead, chunk.index)
            rows = emit.at(a, emit.scaled(chunk.index, 2 * TILE_BYTES))
            for i, left in enumerate(_A):
                tiles.load(left, emit.at(rows, i * TILE_BYTES), ROW_BYTES)
                for j, right in enumerate(_B):
                    if i == 0:
                        tiles.load(right, emit.at(b[j], emit.scaled(chunk.index, TILE_BYTES)), ROW_BYTES)
                    tiles.multiply(2 * i + j, left, right, self._signed)
        for total in range(4):
            tiles.store(total, self._tile(sums.after, sums.after_stride, total), sums.after_stride)

    def _tile(self, block: ir.Value, stride: ir.Value, total: int) -> ir.Value:
        """Return where one of the four tiles of a block begins, whose rows are `stride` bytes apart."""
        i, j = divmod(total, 2)
        return self._emit.at(self._emit.at(block, self._emit.scaled(stride, i * TILE_ROWS)), j * ROW_BYTES)

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

    def copy(self, source: tuple[ir.Value, ir.Value], target: tuple[ir.Value, ir.Value], rows: ir.Value, columns: ir.Value) -> None:
        """Copy some rows and columns of a block, at most all of them; source and target are addresses, and bytes from row to row."""
        emit, builder = self._emit, self._emit.builder
        with for_range(builder, self._least(rows)) as row:
            old, new = (emit.at(base, builder.mul(row.index, stride)) for base, stride in (source, target))
            with builder.if_else(builder.icmp_signed(">=", columns, emit.index(BLOCK))) as (whole, partial):
                with whole:
                    for place in range(0, _ROW_OF_SUMS, ROW_BYTES):
                        emit.store(emit.load(_LANES, old, place), new, place)
                with partial, for_range(builder, columns) as column:
                    place = emit.scaled(column.index, 4)
                    emit.store(emit.load(I32, old, place), new, place)

    def _least(self, lines: ir.Value) -> ir.Value:
        """A block's lines, or fewer."""
        block = self._emit.index(BLOCK)
        return self._emit.builder.select(self._emit.builder.icmp_signed("<", lines, block), lines, block)


def _emit(config: AmxConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """``out = c + a b``, of packed `a` and `b`.

    Addresses: a, b, c, out, `SCRATCH` bytes. Integers: bytes from a block of rows of `a` to the next, from a tile of columns of `b` to the
    next, from row to row of c and from block to block of its columns (0 if c is zero and not read), from row to row of out; tiles of k,
    rows, columns.
    """
    a, b, c, out, scratch, a_step, b_step, c_stride, c_step, out_stride, chunks, rows, columns = arguments
    emit = Emitter(builder)
    block = _Block(config, emit)

    def blocks(lines: ir.Value) -> ir.Value:
        return builder.udiv(emit.sum(lines, BLOCK - 1), emit.index(BLOCK))

    corner = scratch, emit.index(_ROW_OF_SUMS)  # where the sums of a block lie that the product has a part of
    from_zero = builder.icmp_signed("==", c_step, emit.index(0))
    block.tiles.begin()
    with for_range(builder, blocks(rows)) as i, for_range(builder, blocks(columns)) as j:
        row, column = emit.scaled(i.index, BLOCK), emit.scaled(j.index, BLOCK)
        b_first = emit.at(b, builder.mul(emit.scaled(j.index, 2), b_step))
        before = emit.at(emit.at(c, builder.mul(row, c_stride)), builder.mul(j.index, c_step))
        after = emit.at(emit.at(out, builder.mul(row, out_stride)), emit.scaled(column, 4))
        rows_of_a = emit.at(a, builder.mul(i.index, a_step))
        ahead = _Ahead(emit.at(rows_of_a, a_step), j.index, after, out_stride)
        lines = builder.sub(rows, row), builder.sub(columns, column)
        whole = builder.and_(*(builder.icmp_signed(">=", each, emit.index(BLOCK)) for each in lines))
        edge = builder.not_(whole)
        with builder.if_then(builder.and_(edge, builder.not_(from_zero))):
            block.copy((before, c_stride), corner, *lines)
        places = (builder.select(whole, *each) for each in zip((before, c_stride, after, out_stride), corner * 2, strict=True))
        block.multiply(rows_of_a, (b_first, emit.at(b_first, b_step)), chunks, _Sums(from_zero, *places), ahead)
        with builder.if_then(edge):
            block.copy(corner, (after, out_stride), *lines)
    block.tiles.end()


KERNEL = MicroKernel(_emit, 5, 8)
