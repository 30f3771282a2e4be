"""Compiled code that multiplies small matrices of groups on AMX in one go, and judges whether sums are exact."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.amx import TILE_BYTES, TILE_ROWS
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.direct import emitted, entry_of, record_of
from fastmma.kernels.llvm.micro_kernel import run_at
from fastmma.kernels.llvm.simd import bitcast, highest_lane, load, maximum, minimum, splat, store, zeros
from fastmma.kernels.matrices.memory import LINE
from fastmma.kernels.scaled.amx_group_kernel import CHUNK, AmxGroupConfig
from fastmma.kernels.scaled.amx_group_panels import CODES, FACTS, NO_UNIT, TABLES, Codes, Tables, pack_columns, pack_lines

# of squares of norms in units: sums of a step are below 2**24 units, which float32 has; less a little that rounding of squares may hide
_LARGEST_RATIO = float((1 << 48) - (1 << 40))
VERDICT = 2  # words


@inner
def _most(facts: int, pieces: int, place: int) -> Any:
    """Find the largest lane of the facts of pieces."""
    largest = zeros(np.int32, TILE_ROWS)
    for piece in range(pieces):
        largest = maximum(largest, load(facts + piece * FACTS + place, np.int32, TILE_ROWS))
    return np.float64(bitcast(highest_lane(largest), np.float32))


@inner
def _least_unit(facts: int, pieces: int) -> int:
    """Find the least unit of pieces; that of zeros is 1."""
    least = splat(np.int32(NO_UNIT), TILE_ROWS)
    for piece in range(pieces):
        least = minimum(least, load(facts + piece * FACTS + 2 * LINE, np.int32, TILE_ROWS))
    unit = -int(highest_lane(-least))
    return unit if unit < NO_UNIT else 0


@compiled
def judge(of_a: int, pieces_of_a: int, of_b: int, pieces_of_b: int, steps: int, bits: int, verdict: int) -> None:
    """Store whether sums of a step are exact, and those of all steps below 2**bits units; and log2 of the unit.

    No sum of products of rows and columns is larger than the product of their norms.
    """
    unit = _least_unit(of_a, pieces_of_a) + _least_unit(of_b, pieces_of_b)
    ratio = _most(of_a, pieces_of_a, 0) * _most(of_b, pieces_of_b, 0)
    norm = _most(of_a, pieces_of_a, LINE) * _most(of_b, pieces_of_b, LINE) * np.float64(steps * steps)
    largest = bitcast((1023 + 2 * (unit + bits)) << 52, np.float64)
    store(np.int64(ratio <= _LARGEST_RATIO and norm <= largest), verdict)
    store(np.int64(unit), verdict + 8)


@compiled
def multiply_whole(
    how: AmxGroupConfig,
    kernel: int,
    a: Codes,
    scales_a: Codes,
    b: Codes,
    scales_b: Codes,
    tables: Tables,
    shape: tuple[int, int, int],
    packed_rows: int,
    bits: int,
    out: int,
    factor: float,
    panels: int,
    facts: int,
    room: int,
) -> None:
    """Write a product of a shape (rows, columns, k), times a factor, to C-contiguous `out`: pack B, then `packed_rows` of A after others.

    The verdict on all of them precedes the facts, of B and then of A.
    """
    rows, columns, depth = shape
    steps = -(-depth // (how.chunks * CHUNK))
    block_bytes = steps * how.chunks * 2 * TILE_BYTES
    rows_of_a, of_b = panels + -(-columns // BLOCK) * block_bytes, facts + LINE
    if b.k_stride == 1:
        pack_lines(how, b, scales_b, tables, depth, 0, columns, panels, of_b, room, 1)
    else:
        pack_columns(how, b, scales_b, tables, depth, 0, columns, panels, of_b, room, 1)
    of_a = of_b + FACTS
    pieces = 0
    for row in range(0, rows, packed_rows):
        last = min(row + packed_rows, rows)
        pack_lines(how, a, scales_a, tables, depth, row, last, rows_of_a, of_a + pieces * FACTS, room, 0)
        places, strides = (rows_of_a, panels, 0, out + row * 4 * columns, room), (block_bytes, block_bytes // 2, 0, 4 * columns)
        run_at(kernel, places + strides + (steps, last - row, columns, factor))
        pieces += 1
    judge(of_a, pieces, of_b, 1, steps, bits, facts)


@lru_cache(1)
def judges() -> Callable[..., None]:
    """Compile `judge`."""
    return emitted(judge, *[kinds.int64] * 7)


_WHOLE = (
    kinds.int64,
    *[CODES] * 4,
    TABLES,
    kinds.Group((kinds.int64,) * 3),
    *[kinds.int64] * 3,
    kinds.float64,
    *[kinds.int64] * 3,
)  # what `multiply_whole` takes after `how`
record_of_whole = record_of(*_WHOLE)
KERNEL_IN_RECORD = 0
OPERANDS_IN_RECORD = tuple(1 + number * len(Codes._fields) for number in range(4))  # addresses of A, its scales, B and its scales
OUT_IN_RECORD = 1 + 4 * len(Codes._fields) + len(Tables._fields) + 3 + 2
FACTOR_IN_RECORD, MEMORY_IN_RECORD = OUT_IN_RECORD + 1, OUT_IN_RECORD + 2  # a float; panels, facts and room


@lru_cache(16)
def entry_of_whole(how: AmxGroupConfig) -> Callable[[int], None]:
    """Compile `multiply_whole`, and return what takes the address of a record."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry_of(multiply_whole, kinds.kind_of(how), *_WHOLE))
