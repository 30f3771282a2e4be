"""Tiles of 8 columns whose terms are exact sums of groups, many at a time: packed, and multiplied by the micro-kernel of groups."""

from __future__ import annotations

from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import aligned_empty
from fastmma.host.threads import parallel_for
from fastmma.kernels.decode.tables import ScaleTable
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.micro_kernel import run_at
from fastmma.kernels.llvm.simd import bitcast, convert, insert, interleave, lane_bits, load, select, splat, store
from fastmma.kernels.macro_tiles import OfWorkers
from fastmma.kernels.params import Scaled
from fastmma.kernels.scaled import groups
from fastmma.kernels.scaled.group_micro_kernel import EXCESS, GROWTH, MARKED, SLAB, GroupConfig
from fastmma.kernels.scaled.group_panels import BIAS_A, RUN, signed
from fastmma.kernels.scaled.lines import NO_EXPONENT, Codes, fixed, nans_of, scales_of
from fastmma.kernels.tiles import GROUPS, first_fit

COLUMNS = 8
AT_ONCE = 64  # tiles, whose packed operands stay in the cache


class Packed(NamedTuple):
    """Operands of some tiles as the micro-kernel reads them, and the sums."""

    elements: NDArray[np.uint8]  # (tile, row, k)
    scales_a: NDArray[np.float64]  # (tile, row, group)
    exponents_a: NDArray[np.int32]
    words: NDArray[np.int32]  # (tile, word of k, column)
    starts: NDArray[np.int32]  # (tile, group, column)
    scales_b: NDArray[np.float64]
    exponents_b: NDArray[np.int32]
    nonzero_a: NDArray[np.int32]  # (tile, row, group): a bit for each element that is not zero
    nonzero_b: NDArray[np.int32]  # (tile, group, column)
    state: NDArray[np.uint32]  # (tile, row, column)


class Tables(NamedTuple):
    """The 256 codes of a scale: what A's and B's sums are multiplied by, and whether it is NaN."""

    scales: ScaleTable
    values_a: NDArray[np.float64]
    values_b: NDArray[np.float64]
    nan: NDArray[np.uint8]


class Limits(NamedTuple):
    """The limits within which the micro-kernel is exact: exponents of two scales added, and the magnitude of c."""

    lowest: int
    highest: int
    largest_c: int


class Known(NamedTuple):
    """Of a tile's scales: the lowest and the highest exponent, and whether one is NaN."""

    lowest: int
    highest: int
    nan: int


@inner
def _pack_rows(a: Any, scale_codes: Any, tables: Tables, groups_of_scale: int, group: int, packed: Packed, tile: int) -> Any:
    """Pack A of a tile."""
    low, high, nan = NO_EXPONENT, -NO_EXPONENT, 0
    bias = splat(np.uint8(BIAS_A), RUN)
    for row in range(a.shape[0]):
        for place in range(scale_codes.shape[1]):
            code = scale_codes[row, place]
            alive, exponent = tables.scales.alive[code] != 0, int(tables.scales.exponents[code])
            nan |= int(tables.nan[code])
            if alive:
                low, high = min(low, exponent), max(high, exponent)
            for term in range(place * groups_of_scale, (place + 1) * groups_of_scale):
                packed.scales_a[tile, row, term] = tables.values_a[code]
                packed.exponents_a[tile, row, term] = (exponent + EXCESS // 2) << 20
                source, target = a[row, term * group :].ctypes.data, packed.elements[tile, row, term * group :].ctypes.data
                bits = 0
                for k in range(0, group, RUN):
                    codes = load(source + k, np.uint8, RUN)
                    store(bias + signed(codes) if alive else bias, target + k)
                    bits |= lane_bits((codes & 7) != 0) << k
                packed.nonzero_a[tile, row, term] = bits if alive else 0
                if group <= MARKED:
                    packed.exponents_a[tile, row, term] |= packed.nonzero_a[tile, row, term]
    return Known(low, high, nan)


@inner
def _pack_columns(b: Any, scale_codes: Any, tables: Tables, groups_of_scale: int, group: int, packed: Packed, tile: int) -> Any:
    """Pack B of a tile."""
    low, high, nan = NO_EXPONENT, -NO_EXPONENT, 0
    for term in range(scale_codes.shape[0] * groups_of_scale):
        mask = splat(np.uint8(0), COLUMNS)
        for column in range(COLUMNS):
            code = scale_codes[term // groups_of_scale if groups_of_scale > 1 else term, column]
            exponent = int(tables.scales.exponents[code])
            nan |= int(tables.nan[code])
            # two columns, then two for the other half of the vector
            place = (column & 2) * (COLUMNS // 4) + column // 4 * 2 + column % 2
            packed.scales_b[tile, term, place] = tables.values_b[code]
            packed.exponents_b[tile, term, column] = (exponent + EXCESS // 2) << 20
            if tables.scales.alive[code] != 0:
                mask = insert(mask, column, np.uint8(255))
                low, high = min(low, exponent), max(high, exponent)
        source, stride = b[term * group].ctypes.data, b.strides[0]
        target = packed.words[tile, term * group // 4].ctypes.data
        sums = splat(np.int16(0), COLUMNS)
        nonzero = splat(np.int32(0), COLUMNS)
        bit = splat(np.int32(1), COLUMNS)
        for _ in range(0, group, 4):
            row0 = signed(load(source, np.uint8, COLUMNS)) & mask
            row1 = signed(load(source + stride, np.uint8, COLUMNS)) & mask
            row2 = signed(load(source + 2 * stride, np.uint8, COLUMNS)) & mask
            row3 = signed(load(source + 3 * stride, np.uint8, COLUMNS)) & mask
            store(interleave(bitcast(interleave(row0, row1), np.uint16), bitcast(interleave(row2, row3), np.uint16)), target)
            sums = sums + convert(bitcast(row0, np.int8), np.int16) + convert(bitcast(row1, np.int8), np.int16)
            sums = sums + convert(bitcast(row2, np.int8), np.int16) + convert(bitcast(row3, np.int8), np.int16)
            nonzero = nonzero | select(row0 != 0, bit, 0) | select(row1 != 0, bit << 1, 0)
            nonzero = nonzero | select(row2 != 0, bit << 2, 0) | select(row3 != 0, bit << 3, 0)
            bit = bit << 4
            source += 4 * stride
            target += 4 * COLUMNS
        store(convert(sums, np.int32) * np.int32(-BIAS_A) + np.int32(-(2**31)), packed.starts[tile, term].ctypes.data)
        store(nonzero, packed.nonzero_b[tile, term].ctypes.data)
        if group <= MARKED:
            exponents = packed.exponents_b[tile, term].ctypes.data
            store(load(exponents, np.int32, COLUMNS) | nonzero, exponents)
    return Known(low, high, nan)


@compiled
def run_tiles(
    tile: Any,
    kernel: int,
    a: Any,
    b: Any,
    c: Any,
    scale_codes_a: Any,
    scale_codes_b: Any,
    tables: Tables,
    groups_of_scale: int,
    limits: Limits,
    factors: Any,
    packed: Packed,
    bad: Any,
) -> None:
    """Multiply tiles into the state, and mark those that are out of reach; None for c is +0."""
    depth = a.shape[2]
    for number in range(len(a)):
        of_a = _pack_rows(a[number], scale_codes_a[number], tables, groups_of_scale, tile.group, packed, number)
        of_b = _pack_columns(b[number], scale_codes_b[number], tables, groups_of_scale, tile.group, packed, number)
        wrong = (of_a.nan | of_b.nan) != 0
        wrong |= (of_a.lowest + of_b.lowest < limits.lowest) | (of_a.highest + of_b.highest > limits.highest)
        for row in range(a.shape[1]):
            for column in range(COLUMNS):
                bits = np.uint32(0)
                if c is not None:
                    bits = np.uint32(c[number, row, column])
                magnitude = bits & np.uint32(0x7FFFFFFF)
                wrong |= magnitude >= limits.largest_c
                packed.state[number, row, column] = np.uint32(0) if magnitude == 0 else bits
        bad[number] = wrong
    run_at(
        kernel,
        (
            packed.elements.ctypes.data,
            packed.scales_a.ctypes.data,
            packed.exponents_a.ctypes.data,
            packed.words.ctypes.data,
            packed.starts.ctypes.data,
            packed.scales_b.ctypes.data,
            packed.exponents_b.ctypes.data,
            packed.nonzero_a.ctypes.data,
            packed.nonzero_b.ctypes.data,
            packed.state.ctypes.data,
            packed.elements.strides[1],
            packed.scales_a.strides[1],
            packed.exponents_a.strides[1],
            packed.nonzero_a.strides[1],
            a.shape[1] // tile.rows,
            depth // tile.step,
            len(a),
            factors[0],
            factors[1],
        ),
    )


class GroupTiles(NamedTuple):
    """A `run` that this CPU has a kernel for."""

    p: Scaled
    tile: GroupConfig

    def run(self, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> NDArray[np.uint8]:
        """Write tiles to `out`; a byte a tile says which ones are wrong, being out of reach."""
        p, tile = self.p, self.tile
        count, rows, depth = a.shape
        scales = scales_of(p.scale)
        tables = Tables(
            scales,
            scales.values * ldexp(1 + ldexp(1, -GROWTH), groups.SCALE_A),
            scales.values * ldexp(1, groups.SCALE_B - 2),
            nans_of(p.scale),
        )
        steps = depth // p.step
        limits = Limits(groups.SMALLEST + groups.last_bit_of(p), groups.HIGHEST - groups.growth_of(steps), (127 + groups.HIGHEST) << 23)
        factors = ldexp(1, groups.SCALE_A), ldexp(1, groups.SCALE_B)
        bad = np.empty(count, np.uint8)
        memory = OfWorkers(lambda: self._packed(min(count, AT_ONCE), rows, depth))

        def multiply(start: int, stop: int, worker: int) -> None:
            part = slice(start, stop)
            operands = (fixed(a[part]), fixed(b[part]), None if c is None else fixed(c[part]), fixed(scale_a[part]), fixed(scale_b[part]))
            packed = memory[worker]
            run_tiles(tile, SLAB.address(tile), *operands, tables, p.block // p.group, limits, factors, packed, bad[part])
            out[part] = packed.state[: stop - start]

        parallel_for(multiply, count, threads, AT_ONCE)
        return bad

    def _packed(self, count: int, rows: int, depth: int) -> Packed:
        terms = depth // self.p.group
        return Packed(
            aligned_empty((count, rows, depth), np.uint8),
            aligned_empty((count, rows, terms), np.float64),
            aligned_empty((count, rows, terms), np.int32),
            aligned_empty((count, depth // 4, COLUMNS), np.int32),
            aligned_empty((count, terms, COLUMNS), np.int32),
            aligned_empty((count, terms, COLUMNS), np.float64),
            aligned_empty((count, terms, COLUMNS), np.int32),
            aligned_empty((count, rows, terms), np.int32),
            aligned_empty((count, terms, COLUMNS), np.int32),
            aligned_empty((count, rows, COLUMNS), np.uint32),
        )


def group_tiles(p: Scaled, rows: int, columns: int, depth: int) -> GroupTiles | None:
    """Return what multiplies batches of tiles of this shape, if this CPU has a kernel for it."""
    fit = first_fit(GROUPS)
    if fit is None or not groups.supported(p) or columns != COLUMNS or rows % fit.narrow or depth % p.step:
        return None
    return GroupTiles(p, GroupConfig(True, p.group, p.align_bits, fit.dot, COLUMNS, fit.narrow, 1))
