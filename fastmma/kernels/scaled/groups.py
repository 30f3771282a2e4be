"""The fast path for terms that are exact sums of groups of e2m1 products: what it covers, and a product cut for threads."""

from __future__ import annotations

from functools import cached_property
from math import ldexp

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import aligned_empty
from fastmma.host.threads import parallel_for
from fastmma.kernels.macro_tiles import FallbackMask, MacroTile, OfWorkers, cut
from fastmma.kernels.params import Element, Scaled
from fastmma.kernels.scaled.group_micro_kernel import EXCESS, GROWTH, SLAB, TERMS, GroupConfig
from fastmma.kernels.scaled.group_panels import SLAB_STEPS, Rows, Slab, nonzero_rows, pack_rows, run_macro_tile, slab_of
from fastmma.kernels.scaled.lines import NAN, Codes, ScaledOperands, extremes, fixed, fixed_right, scales_of, settle, write
from fastmma.kernels.tiles import GROUPS, first_fit, tile_of_cpu

_ONE = np.float32(1)
_E2M1 = Element(2, 1, 1, 0, 0)
_CHUNK_ROWS = 2048
_PACK_ROWS = 64
_MACRO_TILES_PER_THREAD = 4
DOT_BITS = 12  # a term's significand is below 2**12
HIGHEST = 126  # sums that stay below 2**126 never overflow
SMALLEST = -149  # exponent of the last bit of float32
HEADROOM = 10  # exponents by which sums typically exceed their terms'
EXACT_SCALE_A = 500  # leaves the products of B's scales with 2**52 in range
SCALE_A, SCALE_B = -437, -436  # aligned kernels hold sums times 2 to their sum, so that float64 has the exponent field of EXCESS


def supported(p: Scaled) -> bool:
    """Tell whether this CPU has a fast path for these parameters."""
    return (
        first_fit(GROUPS) is not None
        and p.a == p.b == _E2M1
        and p.group in (16, 32)
        and p.step == TERMS * p.group
        and p.block % p.group == 0
        and p.align_bits == 35
        # a floor at which nothing is truncated that an f32 result could hold is as good as any lower one
        and p.emax_floor <= p.align_bits + SMALLEST
    )


def tile_of(p: Scaled, aligned: bool) -> GroupConfig:
    """Find the register tile of this CPU, with alignment or without."""
    row = tile_of_cpu(GROUPS)
    # groups of a scale are one term where nothing is truncated
    terms = TERMS if aligned or p.block != 2 * p.group else TERMS // 2
    size = row.aligned if aligned else row.exact
    return GroupConfig(aligned, p.step // terms, p.align_bits, row.dot, row.lanes, *size, terms)


def last_bit_of(p: Scaled) -> int:
    """Count the bits of a term below its exponent."""
    return 2 * p.scale.mantissa_bits + p.a.mantissa_bits + p.b.mantissa_bits


def growth_of(steps: int) -> int:
    """Count the exponents by which sums exceed those of scales at most."""
    return DOT_BITS + (TERMS * steps).bit_length()


class _PackedProduct:
    """One product: its packed rows, and how a macro tile of it is computed."""

    def __init__(self, p: Scaled, operands: ScaledOperands, threads: int) -> None:
        self.p, self.c, self.out = p, operands.c, operands.out
        self.exact, self.aligned = tile_of(p, False), tile_of(p, True)
        self.scales = scales_of(p.scale)
        a, scale_a = fixed(operands.a), fixed(operands.scale_a)
        self.b, self.scale_b, self.turned = fixed_right(operands.b, operands.scale_b)
        self.rows = extremes(p.a, p.scale, a, scale_a, p.block, False, threads)
        if self.turned:
            self.columns = extremes(p.b, p.scale, self.b, fixed(self.scale_b.T), p.block, False, threads)
        else:
            self.columns = extremes(p.b, p.scale, self.b, self.scale_b, p.block, True, threads)
        self.steps = -(-a.shape[1] // p.step)
        self.padded_rows = -(-len(a) // self.exact.rows) * self.exact.rows
        self.lowest_a = int(self.rows.lowest.min()) if (self.rows.highest >= self.rows.lowest).any() else 0
        self.last_bit = last_bit_of(p)
        in_slab = min(self.steps, SLAB_STEPS)
        slabs = -(-self.steps // in_slab)
        self.elements = aligned_empty((slabs, self.padded_rows, in_slab * p.step), np.uint8)

        def pack(start: int, stop: int, _worker: int) -> None:
            pack_rows(a, scale_a, self.scales.alive, p.block, start, stop, self.elements)

        parallel_for(pack, self.padded_rows, threads, _PACK_ROWS)
        blocks = np.minimum(np.arange(slabs * in_slab * TERMS) * p.group // p.block, scale_a.shape[1] - 1).reshape(slabs, -1)
        self.codes = np.zeros((slabs, self.padded_rows, in_slab * TERMS), np.uint8)  # of the scale of every group
        self.codes[:, : len(a)] = scale_a[:, blocks].swapaxes(0, 1)

    @cached_property
    def exact_rows(self) -> Rows:
        """A for exact kernels, which know no exponents."""
        values = self.scales.values * ldexp(1, EXACT_SCALE_A - self.lowest_a)
        unused = np.zeros((*self.codes.shape[:2], 1), np.int32)
        return Rows(self.elements, values.take(self.codes[:, :, :: self.exact.group // self.p.group]), unused, unused)

    @cached_property
    def aligned_rows(self) -> Rows:
        """A for aligned kernels."""
        values = self.scales.values * ldexp(1 + ldexp(1, -GROWTH), SCALE_A)
        exponents = ((self.scales.exponents + EXCESS // 2) << 20).astype(np.int32)
        nonzero = np.empty(self.codes.shape, np.int32)
        nonzero_rows(self.elements, self.p.group, 0, self.padded_rows, nonzero)
        words = exponents.take(self.codes)
        return Rows(self.elements, values.take(self.codes), words | nonzero if self.aligned.marked else words, nonzero)

    def macro_tile(self, macro_tile: MacroTile, slab: Slab) -> NDArray[np.bool_]:
        """Compute a macro tile; which of its rows have to be done another way."""
        first, last, column, last_column = macro_tile
        lines, panel = slice(first, last), slice(column, last_column)
        growth = growth_of(self.steps)
        lowest, highest = self.rows.lowest[lines], self.rows.highest[lines]
        of_columns = int(self.columns.lowest[panel].min()), int(self.columns.highest[panel].max())
        fallback: NDArray[np.bool_] = (lowest < SMALLEST + self.last_bit - of_columns[0]) | (highest > HIGHEST - growth - of_columns[1])
        start: Codes | None = None
        if self.c is not None:
            start = np.array(self.c[lines, panel], np.uint32)
            fallback |= ((start & NAN) >= (127 + HIGHEST) << 23).any(axis=1)
            start[fallback] = 0
            start[start == 1 << 31] = 0
        good, out = ~fallback, self.out[lines, panel].view(np.int32)
        if fallback.any():
            lowest, highest = lowest[good], highest[good]
            if not lowest.size:
                return fallback
        low, high = int(lowest.min()) + of_columns[0], int(highest.max()) + of_columns[1]
        if not self._exactly(first, column, low, high, start, good, out, slab):
            self._begin(start, slab)
            self._run(self.aligned, first, column, ldexp(1, SCALE_B - 2), (ldexp(1, SCALE_A), ldexp(1, SCALE_B)), slab)
            write(slab.state, good, out, _ONE)
        return fallback

    @staticmethod
    def _begin(start: Codes | None, slab: Slab) -> None:
        slab.state[...] = 0
        if start is not None:
            slab.state[: len(start), : start.shape[1]] = start.view(np.float32)

    def _run(self, tile: GroupConfig, first: int, column: int, factor: float, state_factors: tuple[float, float], slab: Slab) -> None:
        last = min(first + len(slab.state), self.padded_rows)
        where = (self.p.block, column, factor, state_factors, slab)
        rows = self.aligned_rows if tile.aligned else self.exact_rows
        run_macro_tile(tile, SLAB.address(tile), rows, first, last, self.b, self.turned, self.scale_b, self.scales, *where)

    def _exactly(
        self, first: int, column: int, low: int, high: int, start: Codes | None, good: NDArray[np.bool_], out: Codes, slab: Slab
    ) -> bool:
        """Compute a macro tile without alignment, and write it, if nothing is truncated in its good rows."""
        slack = self.p.align_bits - self.last_bit  # exponents up to this much above the lowest do not truncate its terms
        if high - low > slack - HEADROOM:
            return False
        top = min(low + slack + 1, 128)
        if start is not None:
            values = start.view(np.float32).astype(np.float64)
            units = np.ldexp(values, self.last_bit - low)
            if (units != np.trunc(units)).any() or (np.abs(values) >= ldexp(1, top)).any():
                return False
        self._begin(start, slab)
        power = 1024 - top
        factors = ldexp(1, power // 2), ldexp(1, power - power // 2)
        self._run(self.exact, first, column, ldexp(1, power + self.lowest_a - EXACT_SCALE_A - 2), factors, slab)
        return bool(write(slab.state, good, out, _ONE))


def multiply(p: Scaled, operands: ScaledOperands, threads: int) -> FallbackMask:
    """Write a product of at least one k for `supported` parameters; `out` overlaps nothing.

    What is out of reach here (exponents near the ends of float32's range, special c) is marked.
    """
    product = _PackedProduct(p, operands, threads)
    rows, columns = operands.out.shape
    macro_tiles = cut(rows, columns, (product.exact.rows, product.exact.columns), threads, _CHUNK_ROWS, _MACRO_TILES_PER_THREAD)
    fallback = FallbackMask(macro_tiles)

    def compute(macro_tile: MacroTile, slab: Slab) -> None:
        fallback.parts[macro_tile.column // macro_tiles.width, macro_tile.row : macro_tile.last_row] = product.macro_tile(macro_tile, slab)

    macro_tiles.run(threads, OfWorkers(lambda: slab_of(product.exact, product.steps, macro_tiles.height)), compute)
    settle(operands.out, product.rows, product.columns, fallback)
    return fallback
