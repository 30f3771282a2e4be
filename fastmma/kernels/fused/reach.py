"""The reach of vectors: the exponents for which their lanes are exact."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fastmma.kernels.fused.lanes import HALF_LOWEST
from fastmma.kernels.params import Element, Fused

SINGLE_FLOOR = -90  # of emax in f32 lanes: tiny products of zeros stay below the last place of every sum
SINGLE_SMALLEST_C = -77  # sums that start from here keep clear of that floor
SINGLE_LARGEST_C = 100
F32_LOWEST = -126  # the exponent of f32's subnormals
HIGHEST_FLOOR = 60  # of emax in f64 lanes
TERMS = {False: (4, 8, 16, 32, 64), True: (8, 16, 32, 64)}  # of a step, in f32 lanes or not


def _lowest_exponent(element: Element) -> int:
    return 1 - element.bias


def single_lanes(p: Fused) -> bool:
    """Tell whether f32 lanes are exact: sums and products of few bits and moderate exponents."""
    return (
        p.align_bits <= 13
        and (bool(p.half) or (p.keep_bits <= 13 and p.emax_floor <= SINGLE_FLOOR))
        and p.a.mantissa_bits + p.b.mantissa_bits + 2 <= 12
        and _lowest_exponent(p.a) - p.a.mantissa_bits + _lowest_exponent(p.b) - p.b.mantissa_bits >= -60
        and max(p.a.highest_exponent, p.b.highest_exponent) <= 20
    )


def exact_in_lanes(p: Fused) -> bool:
    """Tell whether f32 or f64 lanes are exact for a step of these parameters."""
    if p.terms not in TERMS[single_lanes(p)] or max(p.a.mantissa_bits, p.b.mantissa_bits) > 10:
        return False
    if not (p.a.in_magnitudes and p.b.in_magnitudes):
        return False
    if p.half:
        return 1 <= p.align_bits <= 25 and p.keep_bits == 10 and -60 <= p.emax_floor <= HALF_LOWEST
    # sums that keep fewer bits than terms are aligned to, and than f32 has, are rounded by the portable kernels
    return 1 <= p.align_bits <= 25 and p.emax_floor <= HIGHEST_FLOOR and (p.keep_bits == 23 or p.keep_bits >= p.align_bits)


def lowest_emax(p: Fused) -> int:
    """The emax from which on sums are multiples of the last place that an f32 result keeps at its smallest exponent."""
    return F32_LOWEST + max(p.align_bits - p.keep_bits, 0)


def lowest_product(p: Fused) -> int:
    """The exponent of factors from which on emax may be any, as no product has a bit that could be lost."""
    if loses_subnormals(p):
        return lowest_emax(p)
    return p.a.mantissa_bits + p.b.mantissa_bits + F32_LOWEST - p.keep_bits


def smallest_c(p: Fused) -> int:
    """The exponent from which on the lanes hold a c of f32 that is not zero; -149 is that of its smallest subnormal."""
    if single_lanes(p):
        return SINGLE_SMALLEST_C
    return F32_LOWEST if loses_subnormals(p) else F32_LOWEST - 23


def mask_c(p: Fused) -> int:
    """The bits of an f32 accumulator of which a step takes notice: what emax of c itself truncates is left out."""
    return -(1 << (23 - min(p.align_bits, 23)))


def loses_subnormals(p: Fused) -> bool:
    """Tell whether bits of f32's subnormals are truncated, whose exponents are their own in f64 lanes."""
    return min(p.align_bits, p.keep_bits) < 23


def excess_of(p: Fused) -> int:
    """Return what an exponent byte of a product holds above the exponent."""
    return 127 if single_lanes(p) else 150


def floor_byte(p: Fused) -> int:
    """The exponent byte below which emax does not fall."""
    excess = excess_of(p)
    if single_lanes(p) and not p.half:
        return SINGLE_FLOOR + excess
    # a floor at which nothing is truncated that an f32 result could hold is as good as any lower one
    return p.emax_floor + excess if p.half or p.emax_floor > p.align_bits - 149 else 0


def byte_excess(excess: int) -> tuple[int, int]:
    """Return what exponent bytes of A and B exceed their exponents by; a saturating difference takes 255 off their sum."""
    total = 255 + excess
    return total // 2, total - total // 2


def sum_excess(excess: int, a: Spread, b: Spread) -> tuple[int, int] | None:
    """The same where bytes are added; None where a product of a zero, whose byte is 0, may have more than another's."""
    found = excess // 2, excess - excess // 2
    lowest, highest = ([exponent + above for exponent, above in zip(pair, found, strict=True)] for pair in zip(a, b, strict=True))
    return found if min(lowest) > 0 and sum(lowest) > max(highest) and sum(highest) <= 255 else None


class Spread(NamedTuple):
    """Exponents of a matrix's elements that are not zero."""

    lowest: int
    highest: int


class ExponentBytes(NamedTuple):
    """Exponents as bytes: what is added to those of A and B, how high bytes are, and how two of them become a byte of emax."""

    added: bool  # bytes are added; else B's are complements, and a saturating difference is taken
    offsets: tuple[int, int]
    highest: tuple[int, int]
    surplus: int
    deficit: int
    zeros: int  # as what exponent a product of a zero counts, at most


@lru_cache(64)
def spread_of(element: Element) -> Spread:
    """The exponents that an element can have."""
    return Spread(_lowest_exponent(element), element.highest_exponent)


def exponent_bytes(p: Fused, a: Spread, b: Spread) -> ExponentBytes:
    """The bytes for exponents of these spreads.

    They are added where a product of a zero, whose byte is 0, then has no more than the smallest of all other products.
    """
    excess, room = excess_of(p), 127
    zeros = a.highest + b.highest - room
    fits = a.highest - a.lowest + b.highest - b.lowest <= room and not (p.half and zeros > p.align_bits - 24)
    if not fits:
        return ExponentBytes(False, byte_excess(excess), (255, 255), 0, 0, -(1 << 15))
    surplus = room + 128 - a.highest - b.highest - excess
    return ExponentBytes(True, (room - a.highest, 128 - b.highest), (room, 128), min(max(surplus, 0), 255), max(-surplus, 0), zeros)


def first_bad(element: Element, excess: int, depth: int) -> int:
    """The first magnitude that is special, or too large for an exponent byte of this excess, or whose sums might overflow."""
    highest = min(255 - excess, (124 - depth.bit_length()) // 2)
    field = min(highest + 1 + element.bias, 1 << element.exponent_bits)
    return min(max(field, 0) << element.mantissa_bits, element.first_special)
