"""The micro-kernel of products of bytes on AMX: some rows by some columns over a slice of k, in blocks of two by two tiles of int32."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS, PlainTiles, Tiles
from fastmma.kernels.llvm.building import alloca_once, for_range, for_range_slice
from fastmma.kernels.llvm.emit import I32, I64, POINTER, Emitter, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.memory import LINE

_ROW_OF_SUMS = 4 * BLOCK
_ROWS = 4  # of sums that are written together
SCRATCH = BLOCK * _ROW_OF_SUMS  # bytes for the sums of a block
_A, _B = (4, 5), (6, 7)  # tiles; those before them hold sums
_LANES = vector(I32, TILE_ROWS)
_BIT = ir.IntType(1)


@dataclass(frozen=True)
class AmxConfig:
    """The variant of the code: which bytes have a sign, and whether plain code stands for AMX."""

    a_signed: bool
    b_signed: bool
    plain: bool = False


@dataclass(frozen=True)
class _Start:
    """Name where the sums of a block start, unless that is zero, with bytes from row to row."""

    from_zero: ir.Value
    place: ir.Value
    stride: ir.Value


class _Block:
    """Emission of one block, whose sums wait in scratch memory to be written to the results, with bytes from row to row of these."""

    def __init__(self, config: AmxConfig, emit: Emitter, scratch: ir.Value, stride: ir.Value) -> None:
        self._emit = emit
        self._signed = config.a_signed, config.b_signed
        self._stride = stride
        self.tiles = (PlainTiles if config.plain else Tiles)(emit)
        self.sums = scratch, emit.index(_ROW_OF_SUMS)
        self._waiting = tuple(alloca_once(emit.builder, kind) for kind in (POINTER, I64))

    def wait(self, place: ir.Value, rows: ir.Value) -> None:
        """Let the sums wait to be written to a place of so many rows."""
        for value, variable in zip((place, rows), self._waiting, strict=True):
            self._emit.builder.store(value, variable)

    def multiply(self, a: ir.Value, b: tuple[ir.Value, ir.Value], chunks: ir.Value, start: _Start, backwards: ir.Value) -> None:
        """Add the products over so many tiles of k, from the last one on or not, to the sums of a block, and leave them in scratch memory.

        Meanwhile the sums that wait there go to the results.
        """
        emit, builder, tiles = self._emit, self._emit.builder, self.tiles
        with builder.if_else(start.from_zero) as (fresh, begun):
            with fresh:
                for total in range(4):
                    tiles.clear(total)
            with begun:
                for total in range(4):
                    tiles.load(total, self._tile(start.place, start.stride, total), start.stride)
        steps = builder.udiv(emit.sum(chunks, BLOCK // _ROWS - 1), chunks)
        rows_at_once = emit.scaled(steps, _ROWS)
        with for_range(builder, chunks) as step:
            chunk = builder.select(backwards, builder.sub(emit.sum(chunks, -1), step.index), step.index)
            rows = emit.at(a, emit.scaled(chunk, 2 * TILE_BYTES))
            for i, left in enumerate(_A):
                tiles.load(left, emit.at(rows, i * TILE_BYTES), ROW_BYTES)
                for j, right in enumerate(_B):
                    if i == 0:
                        tiles.load(right, emit.at(b[j], emit.scaled(chunk, TILE_BYTES)), ROW_BYTES)
                    tiles.multiply(2 * i + j, left, right, self._signed)
            first = builder.mul(step.index, rows_at_once)
            self.put(first, emit.sum(first, rows_at_once))
        for total in range(4):
            tiles.store(total, self._tile(*self.sums, total), _ROW_OF_SUMS)

    def put(self, first: ir.Value, last: ir.Value) -> None:
        """Write some rows of the sums that wait, if any do, to the results, `_ROWS` at a time."""
        emit, builder = self._emit, self._emit.builder
        out, rows = (builder.load(each) for each in self._waiting)
        last = builder.select(builder.icmp_signed("<", last, rows), last, rows)
        with for_range_slice(builder, first, last, emit.index(_ROWS)) as row:
            sums, place = emit.at(self.sums[0], emit.scaled(row, _ROW_OF_SUMS)), emit.at(out, builder.mul(row, self._stride))
            for following in range(_ROWS):
                for line in range(0, _ROW_OF_SUMS, LINE):
                    emit.store(emit.load(_LANES, sums, following * _ROW_OF_SUMS + line, LINE), place, line)
                place = emit.at(place, self._stride)

    def _tile(self, block: ir.Value, stride: ir.Value, total: int) -> ir.Value:
        """Return where one of the four tiles of a block begins, whose rows are `stride` bytes apart."""
        i, j = divmod(total, 2)
        return self._emit.at(self._emit.at(block, self._emit.scaled(stride, i * TILE_ROWS)), j * ROW_BYTES)

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
    block = _Block(config, emit, scratch, out_stride)
    block_lines, no_rows = emit.index(BLOCK), emit.index(0)

    def blocks(lines: ir.Value) -> ir.Value:
        return builder.udiv(emit.sum(lines, BLOCK - 1), block_lines)

    from_zero = builder.icmp_signed("==", c_step, no_rows)
    block.tiles.begin()
    with for_range(builder, blocks(rows)) as i, for_range(builder, blocks(columns)) as j:
        row, column = emit.scaled(i.index, BLOCK), emit.scaled(j.index, BLOCK)
        b_first = emit.at(b, builder.mul(emit.scaled(j.index, 2), b_step))
        before = emit.at(emit.at(c, builder.mul(row, c_stride)), builder.mul(j.index, c_step))
        after = emit.at(emit.at(out, builder.mul(row, out_stride)), emit.scaled(column, 4))
        rows_of_a = emit.at(a, builder.mul(i.index, a_step))
        lines = builder.sub(rows, row), builder.sub(columns, column)
        whole = builder.and_(*(builder.icmp_signed(">=", each, block_lines) for each in lines))
        edge = builder.not_(whole)
        with builder.if_then(builder.and_(edge, builder.not_(from_zero))):
            block.put(no_rows, block_lines)
            block.wait(after, no_rows)
            block.copy((before, c_stride), block.sums, *lines)
        start = _Start(from_zero, *(builder.select(whole, *each) for each in zip((before, c_stride), block.sums, strict=True)))
        backwards = builder.trunc(j.index, _BIT)
        block.multiply(rows_of_a, (b_first, emit.at(b_first, b_step)), chunks, start, backwards)
        block.wait(after, builder.select(whole, block_lines, no_rows))
        with builder.if_then(edge):
            block.copy(block.sums, (after, out_stride), *lines)
    block.put(no_rows, block_lines)
    block.tiles.end()


KERNEL = MicroKernel(_emit, 5, 8)
