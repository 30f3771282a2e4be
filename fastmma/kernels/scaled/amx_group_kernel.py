"""The micro-kernel of sums of groups on AMX: products of bf16 numbers, which are e2m1 elements times their scales, step by step.

All sums of a step are exact in float32, in whatever order AMX adds, and one addition toward zero joins them to those of the steps before.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS, PlainTiles, Tiles
from fastmma.kernels.llvm.architecture import TOWARD_ZERO
from fastmma.kernels.llvm.building import for_range, for_range_slice
from fastmma.kernels.llvm.emit import F32, I32, Emitter, vector
from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.llvm.micro_kernel import MicroKernel

CHUNK = ROW_BYTES // 2  # of k in a tile
_ROW_OF_SUMS = 4 * BLOCK
_SUMS = BLOCK * _ROW_OF_SUMS  # bytes of a block
SCRATCH = 3 * _SUMS  # the sums of all steps before, and of two steps in turn
_A, _B = (4, 5), (6, 7)  # tiles; those before them hold sums
_LANES = vector(F32, TILE_ROWS)
_NEAREST = 8  # an instruction's own rounding
_MASK = vector(ir.IntType(1), TILE_ROWS)


@constant
@dataclass(frozen=True)
class AmxGroupConfig:
    """The variant of the code: tiles of k in a step, whether plain code stands for AMX, and whether sums are multiplied by a factor."""

    chunks: int
    plain: bool = False
    factor: bool = False


class _Block:
    """Emission of one block: 32 rows by 32 columns, all steps."""

    def __init__(self, config: AmxGroupConfig, emit: Emitter, scratch: ir.Value) -> None:
        self._emit, self._chunks, self._total = emit, config.chunks, scratch
        self.tiles = (PlainTiles if config.plain else Tiles)(emit)
        self._steps = emit.at(scratch, _SUMS)

    def clear(self) -> None:
        """Let the sums of all steps before be zeros."""
        with for_range(self._emit.builder, self._emit.index(BLOCK)) as row:
            for line in range(0, _ROW_OF_SUMS, ROW_BYTES):
                self._emit.store(self._emit.constant(_LANES, 0.0), self._total, self._emit.sum(self._row(row.index), line), ROW_BYTES)

    def start(self, c: ir.Value, stride: ir.Value, rows: ir.Value, masks: list[ir.Value]) -> None:
        """Let them be numbers of c instead."""
        emit, builder = self._emit, self._emit.builder
        with for_range(builder, rows) as row:
            place = emit.at(c, builder.mul(row.index, stride))
            for mask, line in zip(masks, range(0, _ROW_OF_SUMS, ROW_BYTES), strict=True):
                source = builder.bitcast(emit.at(place, line), ir.PointerType(_LANES))
                zeros, alignment = emit.constant(_LANES, 0.0), ir.Constant(I32, 1)
                values = emit.intrinsic(f"masked.load.v{TILE_ROWS}f32.p0", _LANES, source, alignment, mask, zeros)
                emit.store(values, self._total, emit.sum(self._row(row.index), line), ROW_BYTES)

    def multiply(self, a: ir.Value, b: tuple[ir.Value, ir.Value], step: ir.Value, *, first: bool) -> None:
        """Leave the sums of a step in scratch memory; meanwhile, add those of the step before, unless it is the first."""
        emit, tiles = self._emit, self.tiles
        for total in range(4):
            tiles.clear(total)
        at_once = BLOCK // (4 * self._chunks) if 4 * self._chunks < BLOCK else 1
        added = 0
        for number in range(self._chunks):
            chunk = emit.sum(emit.scaled(step, self._chunks), number)
            rows = emit.at(a, emit.scaled(chunk, 2 * TILE_BYTES))
            for i, left in enumerate(_A):
                tiles.load(left, emit.at(rows, i * TILE_BYTES), ROW_BYTES)
                for j, right in enumerate(_B):
                    if i == 0:
                        tiles.load(right, emit.at(b[j], emit.scaled(chunk, TILE_BYTES)), ROW_BYTES)
                    tiles.multiply_bf16(2 * i + j, left, right)
                    for row in range(added, min(added + at_once, BLOCK)) if not first else ():
                        self._add(emit.index(row), emit.sum(step, -1))
                    added += at_once
        for total in range(4):
            i, j = divmod(total, 2)
            tiles.store(total, emit.at(self._of_step(step), i * TILE_ROWS * _ROW_OF_SUMS + j * ROW_BYTES), _ROW_OF_SUMS)

    def _of_step(self, step: ir.Value) -> ir.Value:
        """Return where the sums of a step are."""
        emit = self._emit
        return emit.at(self._steps, emit.scaled(emit.builder.and_(step, emit.index(1)), _SUMS))

    def _row(self, row: ir.Value) -> ir.Value:
        return self._emit.scaled(row, _ROW_OF_SUMS)

    def _sums(self, row: ir.Value, step: ir.Value) -> list[ir.Value]:
        """Return a row of sums of all steps up to one."""
        emit, builder = self._emit, self._emit.builder
        places = [emit.sum(self._row(row), line) for line in range(0, _ROW_OF_SUMS, ROW_BYTES)]
        pairs = [[emit.load(_LANES, base, place, ROW_BYTES) for base in (self._total, self._of_step(step))] for place in places]
        return [builder.fadd(*pair) for pair in pairs]

    def _add(self, row: ir.Value, step: ir.Value) -> None:
        """Add a row of sums of a step to those before."""
        for number, sums in enumerate(self._sums(row, step)):
            self._emit.store(sums, self._total, self._emit.sum(self._row(row), number * ROW_BYTES), ROW_BYTES)

    def write(
        self, out: ir.Value, stride: ir.Value, rows: ir.Value, masks: list[ir.Value], last: ir.Value, factor: ir.Value | None
    ) -> None:
        """Write the sums of all steps, times a factor if there is one, to nearest even."""
        emit, builder = self._emit, self._emit.builder
        with for_range(builder, rows) as row:
            place = emit.at(out, builder.mul(row.index, stride))
            for number, (mask, sums) in enumerate(zip(masks, self._sums(row.index, last), strict=True)):
                if factor is not None:
                    sums = emit.intrinsic("x86.avx512.mul.ps.512", _LANES, sums, factor, ir.Constant(I32, _NEAREST))
                target = builder.bitcast(emit.at(place, number * ROW_BYTES), ir.PointerType(_LANES))
                emit.intrinsic(f"masked.store.v{TILE_ROWS}f32.p0", ir.VoidType(), sums, target, ir.Constant(I32, 1), mask)


def _masks(emit: Emitter, columns: ir.Value) -> list[ir.Value]:
    """Return which lanes of each vector of a block are columns of the results."""
    kind = vector(I32, TILE_ROWS)
    count = emit.splat(kind, emit.builder.trunc(columns, I32))
    lanes = (ir.Constant(kind, list(range(first, first + TILE_ROWS))) for first in range(0, BLOCK, TILE_ROWS))
    return [emit.builder.icmp_signed("<", each, count) for each in lanes]


def _emit(config: AmxGroupConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """``out = c + a b``, of packed `a` and `b`.

    Addresses: a, b, c, out, `SCRATCH` bytes from a cache line on. Integers: bytes from a block of rows of `a` to the next, from a tile of
    columns of `b` to the next, from row to row of c (0 if it is zero and not read) and of out; steps, at least one; rows, columns. Last,
    the factor.
    """
    a, b, c, out, scratch, a_step, b_step, c_stride, out_stride, steps, rows, columns, given = arguments
    emit = Emitter(builder)
    block, lines = _Block(config, emit, scratch), emit.index(BLOCK)

    def blocks(count: ir.Value) -> ir.Value:
        return builder.udiv(emit.sum(count, BLOCK - 1), lines)

    def least(count: ir.Value) -> ir.Value:
        return builder.select(builder.icmp_signed("<", count, lines), count, lines)

    factor = emit.splat(_LANES, builder.fptrunc(given, F32)) if config.factor else None
    starts = builder.icmp_signed("!=", c_stride, emit.index(0))
    block.tiles.begin()
    with for_range(builder, blocks(rows)) as i, for_range(builder, blocks(columns)) as j:
        row, column = emit.scaled(i.index, BLOCK), emit.scaled(j.index, BLOCK)
        left_rows, masks = least(builder.sub(rows, row)), _masks(emit, builder.sub(columns, column))
        rows_of_a, b_first = emit.at(a, builder.mul(i.index, a_step)), emit.at(b, builder.mul(emit.scaled(j.index, 2), b_step))
        b_tiles = b_first, emit.at(b_first, b_step)
        before, after = (
            emit.at(emit.at(base, builder.mul(row, stride)), emit.scaled(column, 4)) for base, stride in ((c, c_stride), (out, out_stride))
        )
        block.clear()
        with builder.if_then(starts):
            block.start(before, c_stride, left_rows, masks)
        block.multiply(rows_of_a, b_tiles, emit.index(0), first=True)
        with for_range_slice(builder, emit.index(1), steps, emit.index(1)) as step:
            block.multiply(rows_of_a, b_tiles, step, first=False)
        block.write(after, out_stride, left_rows, masks, emit.sum(steps, -1), factor)
    block.tiles.end()


KERNEL = MicroKernel(_emit, 5, 7, 1, mode=lambda _: TOWARD_ZERO)
