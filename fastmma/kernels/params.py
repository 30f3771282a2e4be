"""What a kernel needs to know, as NamedTuples: they are derived from the tables, and one compiled kernel serves every value."""

from __future__ import annotations

from typing import NamedTuple


class Element(NamedTuple):
    """How the bits of a multiplicand are read; a row of `fastmma.formats` in kernel form.

    The code of an element sits in an unsigned integer of 8, 16 or 32 bits, its lowest significant bit at `shift`
    (13 for tf32, whose low 13 bits are ignored; else 0): sign, exponent field, mantissa field, from the top down.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    shift: int
    specials: int  # 0: all codes finite; 1: IEEE infinities and NaNs; 2: only the all-ones magnitude is NaN (e4m3)


class Fused(NamedTuple):
    """A fused dot-product-add: `terms` products and an accumulator, aligned, truncated, summed exactly, rounded once.

    Products are taken in steps of `terms`, in the order in which the operands were packed; the result of one step is the
    accumulator of the next.
    """

    a: Element
    b: Element
    terms: int  # products per step
    align_bits: int  # every term is truncated toward zero to a multiple of 2**(emax - align_bits)
    emax_floor: int  # emax is never lower than this
    keep_bits: int  # fraction bits of the f32 result (23 or 13); 10 for f16
    half: int  # 0: f32 result, rounded toward zero; 1: f16 result, rounded to nearest even
    restart: int  # 0: the accumulator runs through all steps; s: it restarts at zero every s steps, then one IEEE add of c


class Scaled(NamedTuple):
    """A fused dot-product-add with block scaling; f32 accumulator, rounded toward zero.

    With ``group == 1`` a term is one product, and its exponent is the sum of its factors' exponents and of their scales'. Else a term is
    the exact sum of `group` consecutive products times the significands of their scales, and its exponent is that of the scales' product.
    """

    a: Element
    b: Element
    scale: Element  # specials 3: ue8m0 (no sign, no mantissa, no zero; 0xff is NaN); else ue4m3
    block: int  # consecutive k that share one scale
    group: int  # consecutive products a term sums exactly
    step: int  # consecutive k whose terms are fused with the accumulator in one step
    align_bits: int
    emax_floor: int
