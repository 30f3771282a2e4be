"""Products of groups of e2m1 on AMX: elements times scales become bf16 numbers, whose products AMX sums exactly, step by step.

It does so where rows and columns have exponents of scales so near each other that no sum of a step, in any order, needs more bits than
float32 has, and where nothing is truncated. Products that may not be so are left to other kernels.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from math import ldexp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of, aligned_empty
from fastmma.kernels.block_tiles import BLOCK, cut_blocks
from fastmma.kernels.llvm.amx import TILE_BYTES
from fastmma.kernels.llvm.pieces import Phase, run_phases
from fastmma.kernels.matrices.memory import KeptMemory, places_of
from fastmma.kernels.params import Element, Scaled
from fastmma.kernels.scaled import groups
from fastmma.kernels.scaled.amx_group_kernel import CHUNK, KERNEL, AmxGroupConfig
from fastmma.kernels.scaled.amx_group_kernel import SCRATCH as SCRATCH_OF_SUMS
from fastmma.kernels.scaled.amx_group_lines import TWICE_VALUES
from fastmma.kernels.scaled.amx_group_panels import FACTS, GROUP, NO_UNIT, SCRATCH, STEP, Codes, Tables, entries
from fastmma.kernels.scaled.amx_group_whole import VERDICT, judges
from fastmma.kernels.scaled.lines import ScaledOperands, fixed, nans_of, scales_of

_HIGHEST_EXPONENT = 50  # of scales, and the least one's negative: products of two are far from the ends of float32
_OUT_OF_REACH = ldexp(1, 100)  # whose square is infinite; zeros times it are zeros
_SPARE = 3  # bits by which sums stay below those that would be truncated
_SLICE = 2048  # of k that is packed at once
_PACKED_AT_ONCE = 1 << 19  # bytes in a piece, at least a block
_WORK_OF_A_THREAD = 1 << 25  # multiply-adds, some 0.1 milliseconds
_ROWS_OF_C = 64  # that are looked at together
KEPT = KeptMemory()
# places of scratch memory's address in records of calls
_ROOM_OF_PACKING, _ROOM_OF_SUMS = 1 + 2 * len(Codes._fields) + len(Tables._fields) + 5, 5


def supported(p: Scaled) -> bool:
    """Tell whether products of these parameters may be computed so."""
    shared = p.block // GROUP
    return groups.supported(p) and p.block % GROUP == 0 and shared & (shared - 1) == 0 and p.step % (2 * CHUNK) == 0 and p.step <= STEP


def highest_sum(p: Scaled) -> int:
    """Return log2 of the units that no sum exceeds, so that nothing is truncated."""
    return p.align_bits - _SPARE


class ScaleTables(NamedTuple):
    """Tables by the code of a scale: a half of its value, log2 of the unit of its products with elements, and these as bf16 numbers."""

    values: NDArray[np.float32]
    units: NDArray[np.int32]
    products: NDArray[np.uint16]

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Return where they are."""
        return address_of(self.values), address_of(self.units), address_of(self.products)


@lru_cache(16)
def tables_of(scale: Element) -> ScaleTables:
    """Make the tables of a format of scales."""
    found, alive = scales_of(scale), scales_of(scale).alive != 0
    within = alive & (np.abs(found.exponents) <= _HIGHEST_EXPONENT)
    values = np.where(within, found.values / 2, np.where(alive, _OUT_OF_REACH, 0)).astype(np.float32)
    values[nans_of(scale) != 0] = np.nan
    units = np.where(within, found.exponents - scale.mantissa_bits - 1, NO_UNIT)
    products = aligned_empty((len(values), len(TWICE_VALUES)), np.uint16)
    products[:] = (values[:, None] * np.array(TWICE_VALUES, np.float32)).view(np.uint32) >> 16
    return ScaleTables(values, units.astype(np.int32), products)


def left_of(codes: NDArray[np.uint8], scales: NDArray[np.uint8], shift: int) -> tuple[Codes, Codes]:
    """Find where A lies, whose rows' elements follow one another."""
    (line, k), (scale_line, scale_k) = codes.strides, scales.strides
    return Codes(address_of(codes), line, k), Codes(address_of(scales), scale_line, scale_k, shift)


def right_of(codes: NDArray[np.uint8], scales: NDArray[np.uint8], shift: int) -> tuple[Codes, Codes]:
    """Find where B lies, whose columns are lines."""
    (k, line), (scale_k, scale_line) = codes.strides, scales.strides
    return Codes(address_of(codes), line, k), Codes(address_of(scales), scale_line, scale_k, shift)


def shift_of(p: Scaled) -> int:
    """Return log2 of the groups of 16 that share a scale."""
    return (p.block // GROUP).bit_length() - 1


def adjacent(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return operands whose elements follow one another: of A's rows, and of B's rows or columns."""
    return a if a.strides[1] == 1 else fixed(a), b if 1 in b.strides else fixed(b)


class _Product:
    """A product, slice after slice of k, whose packed operands share memory."""

    def __init__(self, p: Scaled, operands: ScaledOperands, threads: int, plain: bool) -> None:
        self._how, self._kept = AmxGroupConfig(p.step // CHUNK, plain), adjacent(operands.a, operands.b)
        self._step: int = p.step
        a, b = self._kept
        self._sides = left_of(a, operands.scale_a, shift_of(p)), right_of(b, operands.scale_b, shift_of(p))
        self._c, self._out, self._tables = operands.c, operands.out, tables_of(p.scale)
        self._bits, self._lines = highest_sum(p), operands.out.shape
        self._depth: int = a.shape[1]
        self._threads = min(threads, max(1, self._out.size * self._depth // _WORK_OF_A_THREAD))
        self._blocks = [-(-lines // BLOCK) for lines in self._lines]
        self._steps = -(-self._depth // p.step)
        self._step_bytes = self._how.chunks * 2 * TILE_BYTES
        self._slices = range(0, self._depth, _SLICE)
        block_bytes = self._steps_from(0) * self._step_bytes
        self._at_once = max(1, _PACKED_AT_ONCE // block_bytes)
        self._pieces = [-(-blocks // self._at_once) for blocks in self._blocks]
        sizes = (len(self._slices) * pieces * FACTS for pieces in self._pieces)
        *self._places, self.size = places_of(sum(self._blocks) * block_bytes, *sizes, 8 * VERDICT)

    def run(self, memory: int) -> bool:
        """Multiply, in memory of this `size`; False where this is out of reach."""
        judge, (packed, of_a, of_b, verdict) = judges(), [memory + place for place in self._places]
        for number, start in enumerate(self._slices):
            done = number + 1
            self._do(self._packing(number, start, packed, (of_a, of_b)), _ROOM_OF_PACKING)
            judge(of_a, done * self._pieces[0], of_b, done * self._pieces[1], self._steps, self._bits, verdict)
            within, unit = (ctypes.c_int64 * VERDICT).from_address(verdict)
            if not within:
                return False
            self._do(self._multiplication(number, start, packed), _ROOM_OF_SUMS)
        return self._c is None or _is_exact(self._c, unit, unit + self._bits)

    def _do(self, records: NDArray[np.int64], room: int) -> None:
        run_phases((Phase(records, room),), self._threads, max(SCRATCH, SCRATCH_OF_SUMS))

    def _steps_from(self, start: int) -> int:
        """Count the steps of a slice."""
        return -(-min(self._depth - start, _SLICE) // self._step)

    def _packing(self, number: int, start: int, place: int, facts: tuple[int, int]) -> NDArray[np.int64]:
        """Cut the packing of a slice into pieces."""
        (along, across), records = entries(self._how), []
        at_once, block_bytes, depth = self._at_once * BLOCK, self._steps_from(start) * self._step_bytes, self._depth - start
        for turned, ((codes, scales), lines, noted) in enumerate(zip(self._sides, self._lines, facts, strict=True)):
            entry = across if turned and codes.k_stride != 1 else along
            given = entry, *codes.after(start), *scales.after(start // GROUP), *self._tables.addresses, min(depth, _SLICE)
            for piece, first in enumerate(range(0, lines, at_once)):
                target, note = place + first // BLOCK * block_bytes, noted + (number * self._pieces[turned] + piece) * FACTS
                records.append((*given, first, min(first + at_once, lines), target, note, 0, turned))
            place += self._blocks[turned] * block_bytes
        return np.array(records, np.int64)[:, None]

    def _multiplication(self, number: int, start: int, packed: int) -> NDArray[np.int64]:
        """Cut the results of a slice, which are added to those before."""
        tiles = cut_blocks(*self._out.shape, 2 * self._step * self._steps_from(start), self._threads)
        before = self._c if number == 0 else self._out
        steps, records = self._steps_from(start), np.zeros((len(tiles.row), 1, 14), np.int64)
        block_bytes = steps * self._step_bytes
        places = [packed + each // BLOCK * block_bytes for each in (tiles.row, tiles.column + self._blocks[0] * BLOCK)]
        starts = (0, 0) if before is None else (_addresses(before, tiles.row, tiles.column), before.strides[0])
        given = *places, starts[0], _addresses(self._out, tiles.row, tiles.column), 0, block_bytes, block_bytes // 2
        rest = starts[1], self._out.strides[0], steps, tiles.last_row - tiles.row, tiles.last_column - tiles.column
        for place, value in enumerate((KERNEL.address(self._how), *given, *rest)):
            records[:, 0, place] = value
        return records


def _addresses(matrix: NDArray[np.uint32], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where elements are."""
    found: NDArray[np.int64] = matrix.ctypes.data + rows * matrix.strides[0] + columns * matrix.strides[1]
    return found


def _is_exact(c: NDArray[np.uint32], unit: int, largest: int) -> bool:
    """Tell whether all of c are multiples of 2**unit below 2**largest."""
    for first in range(0, len(c), _ROWS_OF_C):
        values = np.ldexp(c[first : first + _ROWS_OF_C].view(np.float32).astype(np.float64), -unit)
        if not (np.abs(values) < ldexp(1, largest - unit)).all() or (values != np.trunc(values)).any():
            return False
    return True


def multiply(p: Scaled, operands: ScaledOperands, threads: int, plain: bool = False) -> bool:
    """Write a product of at least one k to its `out`, which overlaps nothing, for `supported` parameters.

    Returns False where it is out of reach, and `out` is anything. `plain` code in place of AMX's instructions runs on any CPU.
    """
    c, out = operands.c, operands.out
    if c is not None and c.strides[1] != c.itemsize:
        operands = operands._replace(c=np.ascontiguousarray(c))
    results = out if out.strides[1] == out.itemsize else np.empty(out.shape, out.dtype)
    product = _Product(p, operands._replace(out=results), threads, plain)
    with KEPT.lent(product.size) as memory:
        done = product.run(memory)
    if results is not out:
        out[...] = results
    return done
