"""What publications say that AMD's matrix cores compute, in integers, for many elements at a time: the prose of `matrix_cores` again.

Elements are ``(..., terms)``, and results float32. Only MI250X, whose operations are those of float32, is computed in floats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.isa.formats import Format

_F32 = -126  # its smallest normal exponent
_LIMB = 30
_FAR = 62  # of shifts
_NONE = -4000  # the exponent of a zero

Integers = NDArray[np.int64]


class Numbers(NamedTuple):
    """Whole numbers of units ``2**(exponents - bits)``, where exponents are those of the fields: subnormal ones have the smallest."""

    significands: Integers
    exponents: Integers
    bits: int

    def part(self, first: int, count: int, by: int = 1) -> Numbers:
        """Some of the last axis."""
        some = slice(first, first + count, by)
        return Numbers(self.significands[..., some], self.exponents[..., some], self.bits)


def numbers(values: NDArray[Any], fmt: Format) -> Numbers:
    """Finite elements of a format."""
    wide = np.asarray(values).astype(np.float64)
    exponents = np.maximum(np.frexp(wide)[1].astype(np.int64) - 1, fmt.emin)
    significands = np.ldexp(wide, fmt.mantissa_bits - exponents).astype(np.int64)
    return Numbers(significands, np.where(significands == 0, fmt.emin, exponents), fmt.mantissa_bits)


def _shifted(value: Integers, left: Integers) -> Integers:
    """Left where `left` is positive, else right, rounded down."""
    return np.where(left >= 0, value << np.clip(left, 0, _FAR), value >> np.clip(-left, 0, _FAR))


def _leading(value: Integers) -> Integers:
    """The place of the leading bit of numbers below 2**62, which float64 may round up to the next one."""
    found = np.frexp(value.astype(np.float64))[1].astype(np.int64) - 1
    return np.where(value < np.int64(1) << np.clip(found, 0, _FAR), found - 1, found)


def _nearest(magnitude: Integers, unit: Integers, more: Any = False) -> NDArray[np.float32]:
    """Whole numbers of ``2**unit`` as float32; `more` where they are a little larger than that."""
    exponent = np.where(magnitude == 0, _F32, _leading(magnitude) + unit)
    dropped = np.maximum(exponent, _F32) - 23 - unit
    within = np.clip(dropped, 0, _FAR)
    kept = magnitude >> within
    rest, half = magnitude - (kept << within), np.int64(1) << np.clip(within - 1, 0, _FAR)
    up = (within > 0) & (dropped <= _FAR) & ((rest > half) | (rest == half) & (np.asarray(more) | (kept & 1 == 1)))
    with np.errstate(over="ignore"):
        return np.ldexp((np.where(dropped <= _FAR, kept, 0) + up).astype(np.float64), unit + within).astype(np.float32)


def exact(a: Numbers, b: Numbers, c: NDArray[np.float32]) -> NDArray[np.float32]:
    """One step of MI100: products of the last axis and c, rounded once."""
    of_c = numbers(c, fastmma.FORMATS["f32"])
    significands = np.concatenate([a.significands * b.significands, of_c.significands[..., None]], -1)
    units = np.concatenate([a.exponents + b.exponents - a.bits - b.bits, (of_c.exponents - of_c.bits)[..., None]], -1)
    present = significands != 0
    lowest = int(units[present].min(initial=0))
    highest = int(units[present].max(initial=0)) + 48 + significands.shape[-1].bit_length()
    places = np.where(present, units - lowest, 0)
    limbs = []
    for first in range(0, highest - lowest + 1, _LIMB):
        parts = _shifted(np.abs(significands), places - first)
        parts = np.where(places - first >= _LIMB, 0, parts) & ((1 << _LIMB) - 1)
        limbs.append((np.sign(significands) * parts).sum(-1))
    limbs.append(np.zeros_like(limbs[0]))
    negative = _carried(limbs)
    magnitude = _of_limbs(limbs, lowest)
    return np.where(negative, -magnitude, magnitude)


def _carried(limbs: list[Integers]) -> NDArray[np.bool_]:
    """Let limbs be those of magnitudes; where sums were negative."""

    def carry() -> None:
        for place in range(len(limbs) - 1):
            limbs[place + 1] = limbs[place + 1] + (limbs[place] >> _LIMB)
            limbs[place] = limbs[place] & ((1 << _LIMB) - 1)

    carry()
    negative = limbs[-1] < 0
    limbs[:] = [np.where(negative, -each, each) for each in limbs]
    carry()
    return negative


def _of_limbs(limbs: list[Integers], lowest: int) -> NDArray[np.float32]:
    """Magnitudes as float32: from the first limb that is not zero and the next one; of others matters whether there is anything."""
    seen, taken = np.zeros_like(limbs[0]), np.zeros_like(limbs[0])
    last, more = np.zeros_like(limbs[0]), np.zeros(limbs[0].shape, bool)
    for place in reversed(range(len(limbs))):
        wanted = taken < 2
        more |= ~wanted & (limbs[place] != 0)
        seen = np.where(wanted, seen << _LIMB | limbs[place], seen)
        last = np.where(wanted, place, last)
        taken = taken + (seen != 0)
    return _nearest(seen, lowest + _LIMB * last, more)


def _without_subnormals(values: Numbers) -> NDArray[np.float32]:
    """As float32, +0 in place of subnormal elements."""
    normal = np.abs(values.significands) >= 1 << values.bits
    return np.where(normal, np.ldexp(values.significands.astype(np.float32), values.exponents - values.bits), np.float32(0))


def flushed(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Results of MI250X: a subnormal one is a zero of its sign."""
    return np.where(np.abs(values) < np.float32(2.0**_F32), np.copysign(np.float32(0), values), values)


def operands_of_sums(c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums of MI250X as an instruction takes them: +0 in place of subnormal ones and of -0."""
    return _without_subnormals(numbers(c, fastmma.FORMATS["f32"]))


def paired(a: Numbers, b: Numbers, c: NDArray[np.float32]) -> NDArray[np.float32]:
    """One step of MI250X: products and sums of pairs in float32."""
    x, y = (_without_subnormals(each) for each in (a, b))
    sums = flushed(x * y)
    while sums.shape[-1] > 1:
        sums = flushed(sums[..., ::2] + sums[..., 1::2])
    return flushed(c + sums[..., 0])


def _truncated(a: Numbers, b: Numbers) -> tuple[Integers, Integers]:
    """Sums of products in units of 2**(top - 24), and top: the largest exponent of products that are not zero."""
    products, exponents = a.significands * b.significands, a.exponents + b.exponents
    exponents = np.where(products == 0, _NONE, exponents)
    top = exponents.max(-1)
    kept = _shifted(np.abs(products), exponents - top[..., None] + 24 - a.bits - b.bits)
    return (np.sign(products) * kept).sum(-1), top


def windowed(a: Numbers, b: Numbers, c: NDArray[np.float32], *, apart: bool) -> NDArray[np.float32]:
    """One step of MI300X; of 8-bit floats products of even and odd k are summed `apart`."""
    if apart:
        terms = a.significands.shape[-1]
        (even, first), (odd, second) = (_truncated(a.part(start, terms, 2), b.part(start, terms, 2)) for start in (0, 1))
        top = np.maximum(first, second)
        total = _shifted(even, first - top) + _shifted(odd, second - top)
    else:
        total, top = _truncated(a, b)
    of_c = numbers(c, fastmma.FORMATS["f32"])
    own = of_c.exponents
    larger = np.maximum(top, own)
    kept = _shifted(of_c.significands, own - larger + 1)
    if apart:
        kept = np.where(own >= larger - 25, kept, 0)
    both = _shifted(total, top - larger + 8) + (kept << 8)
    unit = larger - 32
    cut = np.maximum(np.maximum(_leading(np.abs(both)) + unit, _F32) - 31 - unit, 0)
    floored = both >> cut << cut
    return np.copysign(_nearest(np.abs(floored), unit), np.where(floored < 0, np.float32(-1), np.float32(1)))
