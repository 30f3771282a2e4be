"""Limits of the fused dot-product-adds that the portable kernels compute exactly; the general kernel computes all others."""

from __future__ import annotations

from typing import NamedTuple

from fastmma.kernels.params import Fused, Scaled

NO_FLOOR = -1000


class Envelope(NamedTuple):
    """Values of the parameters of a kernel."""

    terms: tuple[int, ...]
    align_bits: range
    keep_bits: range
    emax_floor: range

    def holds(self, terms: int, align_bits: int, keep_bits: int, emax_floor: int) -> bool:
        """Tell whether all parameters are inside."""
        return terms in self.terms and align_bits in self.align_bits and keep_bits in self.keep_bits and emax_floor in self.emax_floor


_POWERS = tuple(1 << power for power in range(10))  # steps that fill panels
_F32 = Envelope(_POWERS, range(1, 26), range(24), range(NO_FLOOR, 61))  # 16 products of 27 bits sum up in 32
_F16 = Envelope(_POWERS, range(1, 26), range(10, 11), range(-60, 61))
_FLOORS = range(-500, 61)  # powers of two down from there are finite
_SCALED = Envelope((32, 64), range(1, 26), range(23, 24), _FLOORS)
_GROUPED = Envelope((1, 2, 4, 6, 8), range(1, 36), range(23, 24), _FLOORS)


def holds_fused(p: Fused) -> bool:
    """Tell whether `fastmma.kernels.fused.portable` computes it."""
    return (_F16 if p.half else _F32).holds(p.terms, p.align_bits, p.keep_bits, p.emax_floor)


def holds_scaled(p: Scaled, keep_bits: int) -> bool:
    """Tell whether `fastmma.kernels.fused.portable` computes it with scales."""
    return (_GROUPED if p.group > 1 else _SCALED).holds(p.step // p.group, p.align_bits, keep_bits, p.emax_floor)
