"""The fast path of block scaling for terms that are single products: FMA chains, as `fastmma.kernels.fused.packed` runs them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fused import packed
from fastmma.kernels.fused.panels import BlockScales
from fastmma.kernels.fused.reach import Spread, byte_excess, excess_of, spread_of
from fastmma.kernels.macro_tiles import FallbackMask
from fastmma.kernels.matrices.addresses import matrix
from fastmma.kernels.params import Element, Fused, Scaled, Specials
from fastmma.kernels.scaled.lines import Codes, Extremes, ScaledOperands, extremes, fixed, fixed_right, settle

_HIGHEST = 126  # sums that stay below 2**126 never overflow
SMALLEST = -149  # exponent of the last bit of float32
NAN_SCALE = 255


def fused(p: Scaled) -> Fused:
    """Return what is computed, without its scales."""
    return Fused(p.a, p.b, p.step, p.align_bits, p.emax_floor, 23, 0, 0)


def supported(p: Scaled) -> bool:
    """Tell whether this CPU has a fast path for these parameters."""
    return (
        p.group == 1
        and p.block % p.step == 0
        and p.scale.specials == Specials.POWERS_OF_TWO
        and p.align_bits == 25
        and packed.supported(fused(p))
    )


def lowest_bit(element: Element) -> int:
    """The exponent of the last bit of the smallest element."""
    return 1 - element.bias - element.mantissa_bits


def _lines(p: Scaled, operands: ScaledOperands, threads: int) -> tuple[Extremes, Extremes]:
    """Return what is known beforehand of rows of A and columns of B."""
    rows = extremes(p.a, p.scale, fixed(operands.a), fixed(operands.scale_a), p.block, False, threads)
    b, scale_b, turned = fixed_right(operands.b, operands.scale_b)
    return rows, extremes(p.b, p.scale, b, fixed(scale_b.T) if turned else scale_b, p.block, not turned, threads)


def _out_of_reach(p: Scaled, rows: Extremes, columns: Extremes, width: int, depth: int) -> NDArray[np.bool_]:
    """Return which rows of which panels (panel, row) might overflow, have bits below the smallest f32, or exponents that no byte holds."""
    panels = np.arange(0, len(columns.lowest), width)
    lowest = rows.lowest + np.minimum.reduceat(columns.lowest, panels)[:, None]
    high_a = rows.highest + p.a.highest_exponent
    high_b = np.maximum.reduceat(columns.highest, panels)[:, None] + p.b.highest_exponent
    room_a, room_b = (255 - excess for excess in byte_excess(excess_of(fused(p))))
    fallback: NDArray[np.bool_] = lowest + lowest_bit(p.a) + lowest_bit(p.b) < SMALLEST
    fallback |= high_a + high_b + 2 + depth.bit_length() > _HIGHEST
    fallback |= (high_a > room_a) | (high_b > room_b)
    return fallback


def _scales(p: Scaled, codes: Codes) -> BlockScales:
    return BlockScales(matrix(codes), p.block, p.scale.bias, NAN_SCALE)


def _spread(element: Element, lines: Extremes) -> Spread:
    """The exponents that scaled elements can have."""
    lowest, highest = int(lines.lowest.min()), int(lines.highest.max())
    if lowest > highest:
        return Spread(0, 0)
    own = spread_of(element)
    return Spread(lowest + own.lowest, highest + own.highest)


def multiply(p: Scaled, operands: ScaledOperands, threads: int) -> FallbackMask:
    """Write a product of at least one k for `supported` parameters; `out` overlaps nothing.

    What is out of reach here (infinities and NaNs, exponents near the ends of float32's range) is marked.
    """
    a, b, c, out, scale_a, scale_b = operands
    rows, columns = _lines(p, operands, threads)
    scales, spreads = (_scales(p, scale_a), _scales(p, scale_b)), (_spread(p.a, rows), _spread(p.b, columns))
    fallback = packed.multiply(fused(p), a, b, c, out, threads, scales=scales, spreads=spreads)
    fallback.parts |= _out_of_reach(p, rows, columns, fallback.width, a.shape[1])
    settle(out, rows, columns, fallback)
    return fallback
