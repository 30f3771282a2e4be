"""Small products of groups of e2m1 in one go: what `fastmma.kernels.scaled.groups` does for most operands, without Python in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from math import ldexp
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from fastmma.host.addresses import aligned_empty
from fastmma.kernels.llvm.compilation import compiled, entry, separate
from fastmma.kernels.llvm.numba_types import typeof
from fastmma.kernels.params import Element, Scaled
from fastmma.kernels.scaled import groups
from fastmma.kernels.scaled.group_micro_kernel import SLAB, GroupConfig
from fastmma.kernels.scaled.group_panels import SLAB_STEPS, Rows, Slab, pack_rows, run_macro_tile, slab_of
from fastmma.kernels.scaled.lines import NO_EXPONENT, ScaledOperands, across, along, fixed, fixed_right, nans_of, scales_of, write

_ONE = np.float32(1)
_MAGNITUDE, _SPECIAL = 7, 8  # of e2m1's codes
_ANY_SCALE = Element(8, 0, 127, 0, 1)  # the tables of all formats of scales have one type
CODES = types.Array(types.uint8, 2, "C", readonly=True)  # what `fixed` returns


class Limits(NamedTuple):
    """The limits of exponents of scales, as `fastmma.kernels.scaled.groups` explains."""

    lowest: int  # the least sum of two, at which a result has all bits
    highest: int  # the largest, at which sums do not overflow
    spread: int  # between the least and the largest sum, if nothing is to be truncated
    slack: int  # exponents up to this much above the lowest do not truncate its terms
    scale_a: int  # log2 of the factor of A's scales, of which the lowest counts as 1


class _Memory(NamedTuple):
    """A thread's memory for products of one size."""

    rows: Rows
    slab: Slab
    places: NDArray[np.int64]  # the block of k that each group is in


class _Kept(threading.local):
    """The memory of a thread's last product, kept for the next one of the size; none while it is in use."""

    size: tuple[Any, ...] = ()
    run: Callable[..., bool] | None = None
    work: _Memory | None = None


_kept = _Kept()


class _Range(NamedTuple):
    """The exponents of the scales of an operand, other than zeros."""

    low: int
    high: int
    nan: bool  # whether any is NaN


@separate
def _range_of(codes: Any, scales: Any, nans: Any) -> _Range:
    """Look at all scales, also at those of blocks whose elements are zeros."""
    seen = np.zeros(256, np.uint8)
    for line in range(codes.shape[0]):
        for place in range(codes.shape[1]):
            seen[codes[line, place]] = 1
    low, high, nan = NO_EXPONENT, -NO_EXPONENT, False
    for code in range(256):
        if seen[code] != 0:
            nan |= nans[code] != 0
            if scales.alive[code] != 0:
                low, high = min(low, scales.exponents[code]), max(high, scales.exponents[code])
    return _Range(low, high, nan)


@separate
def _fits(low: int, high: int, limits: Limits) -> bool:
    """Tell whether sums of exponents from the least to the largest are within reach."""
    return low >= limits.lowest and high <= limits.highest and high - low <= limits.spread and high >= -NO_EXPONENT // 2


@separate
def _pack_scales(values: Any, factor: float, codes: Any, places: Any, packed: Any) -> None:
    """The scale of every group of rows of A, times a power of two."""
    slabs, rows, groups = packed.shape
    for slab in range(slabs):
        for row in range(rows):
            for group in range(groups):
                code = codes[row, places[slab * groups + group]] if row < codes.shape[0] else np.uint8(0)
                packed[slab, row, group] = values[code] * factor


@compiled
def _multiply(
    tile: Any,
    kernel: int,
    a: Any,
    scale_a: Any,
    b: Any,
    scale_b: Any,
    scales_of_lines: Any,
    tables: Any,
    block: int,
    limits: Limits,
    work: Any,
    out: Any,
    factor_of_sums: Any,
) -> bool:
    """Write a product, times a float32, to `out`; False where it is out of reach, and `out` is anything.

    Where there are `scales_of_lines`, rows of `b` are the columns of B, and these are their scales.
    """
    rows, slab, places = work
    scales, nans = tables
    turned = scales_of_lines is not None
    columns = b.shape[0] if turned else b.shape[1]
    of_a, of_b = _range_of(scale_a, scales, nans), _range_of(scale_b, scales, nans)
    if of_a.nan or of_b.nan:
        return False
    lowest_a, low, high = of_a.low, of_a.low + of_b.low, of_a.high + of_b.high
    if not _fits(low, high, limits):  # scales of blocks of zeros do not count
        left, right = np.empty((3, a.shape[0]), np.int32), np.empty((3, columns), np.int32)
        along(a, scale_a, scales, block, _MAGNITUDE, _SPECIAL, 0, a.shape[0], left)
        if scales_of_lines is not None:
            along(b, scales_of_lines, scales, block, _MAGNITUDE, _SPECIAL, 0, columns, right)
        else:
            right[0], right[1], right[2] = NO_EXPONENT, -NO_EXPONENT, 0
            across(b, scale_b, scales, block, _MAGNITUDE, _SPECIAL, 0, columns, right)
        lowest_a = int(left[0].min())
        low, high = lowest_a + int(right[0].min()), int(left[1].max()) + int(right[1].max())
        if not _fits(low, high, limits):
            return False
    pack_rows(a, scale_a, scales.alive, block, 0, rows.elements.shape[1], rows.elements)
    _pack_scales(scales.values, ldexp(1.0, limits.scale_a - lowest_a), scale_a, places, rows.scales)
    power = 1024 - min(low + limits.slack + 1, 128)
    factors = ldexp(1.0, power // 2), ldexp(1.0, power - power // 2)
    factor = ldexp(1.0, power + lowest_a - limits.scale_a - 2)
    good = np.ones(a.shape[0], np.bool_)
    for column in range(0, columns, tile.columns):
        slab.state[:] = 0
        last = rows.elements.shape[1]
        run_macro_tile(tile, kernel, rows, 0, last, b, turned, scale_b, scales, block, column, factor, factors, slab)
        if not write(slab.state, good, out[:, column : column + tile.columns], factor_of_sums):
            return False
    return True


@lru_cache(64)
def _runner(tile: GroupConfig, turned: bool, work: Any) -> Callable[..., bool]:
    """`_multiply` for a tile, by whether B comes turned; `work` is the type of its memory."""
    tables = types.Tuple((typeof(scales_of(_ANY_SCALE)), typeof(nans_of(_ANY_SCALE))))
    limits = types.NamedTuple([types.int64] * len(Limits._fields), Limits)
    lines = CODES if turned else types.none
    out = types.Array(types.int32, 2, "A")
    kinds = typeof(tile), types.int64, *[CODES] * 4, lines, tables, types.int64, limits, work, out, types.float32
    return partial(entry(_multiply, *kinds), tile, SLAB.address(tile))


def _memory_of(tile: GroupConfig, rows: int, depth: int, block: int) -> _Memory:
    steps, padded = -(-depth // tile.step), -(-rows // tile.rows) * tile.rows
    in_slab = min(steps, SLAB_STEPS)
    slabs, groups = -(-steps // in_slab), in_slab * tile.terms
    unused = np.zeros((slabs, padded, 1), np.int32)
    elements = aligned_empty((slabs, padded, in_slab * tile.step), np.uint8)
    places = np.minimum(np.arange(slabs * groups) * tile.group // block, -(-depth // block) - 1)
    return _Memory(Rows(elements, aligned_empty((slabs, padded, groups), np.float64), unused, unused), slab_of(tile, steps, padded), places)


@lru_cache(1024)
def _limits(p: Scaled, depth: int) -> Limits:
    """Return where a product without alignment has all of its bits, for all rows and columns together."""
    last_bit = groups.last_bit_of(p)
    slack, highest = p.align_bits - last_bit, groups.HIGHEST - groups.growth_of(-(-depth // p.step))
    return Limits(groups.SMALLEST + last_bit, highest, slack - groups.HEADROOM, slack, groups.EXACT_SCALE_A)


def multiply(p: Scaled, operands: ScaledOperands, factor: np.float32 = _ONE) -> bool:
    """Write a product without c, times a factor, to its `out`, for `groups.supported` parameters.

    Returns False where it is out of reach, and `out` is anything.
    """
    rows, depth = operands.a.shape
    tile, limits = groups.tile_of(p, False), _limits(p, depth)
    a, scale_a = fixed(operands.a), fixed(operands.scale_a)
    b, scale_b, turned = fixed_right(operands.b, operands.scale_b)
    size = tile, rows, depth, p.block, turned
    run, work, _kept.work = _kept.run, _kept.work, None  # a signal handler may need memory meanwhile
    if run is None or work is None or _kept.size != size:
        work = _memory_of(tile, rows, depth, p.block)
        run = _runner(tile, turned, typeof(work))
    tables = scales_of(p.scale), nans_of(p.scale)
    lines, out = fixed(operands.scale_b.T) if turned else None, operands.out.view(np.int32)
    done = run(a, scale_a, b, scale_b, lines, tables, p.block, limits, work, out, factor)
    _kept.size, _kept.run, _kept.work = size, run, work
    return done
