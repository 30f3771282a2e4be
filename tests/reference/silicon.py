"""What was measured, recorded or reported about the arithmetic of each architecture, and that arithmetic in fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fastmma import FORMATS, Instruction


@dataclass(frozen=True)
class Step:
    """A fused dot-product-add: products, alignment bits, lowest emax of f32 and of f16 results, fraction bits of an f32 result."""

    terms: int
    align_bits: int
    floors: tuple[float, float]
    keep: int = 23


NO_FLOOR = -math.inf
AMPERE = ("sm_80", "sm_86", "sm_87", "sm_88", "sm_89")
BLACKWELL = ("sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
FP8 = ("e4m3", "e5m2")


def step(ins: Instruction, architecture: str) -> Step | None:
    """The fused step of a dense float instruction; None where it is not one (lowered forms, f64, integers)."""
    if ins.atype in ("f64", "s8", "u8", "s4", "u4", "b1"):
        return None
    if ins.shape == "m8n8k4":
        return Step(4, 23, (NO_FLOOR, -19)) if architecture == "sm_70" else Step(4, 24, (-132, -20)) if architecture == "sm_75" else None
    if ins.atype in ("f16", "bf16", "tf32"):
        if architecture == "sm_75":
            return Step(4, 24, (-132, -20))
        if architecture in AMPERE:
            return Step(4 if ins.atype == "tf32" else 8, 24, (-132, -20))
        return Step(ins.k, 25, (-133, -21))
    if architecture == "sm_89":
        return Step(16, 13, (-132, -20), keep=13)
    if ins.op == "wgmma":
        return Step(32, 13, (-133, -21), keep=13)
    if architecture in ("sm_120", "sm_121"):
        return Step(ins.k, 25, (-133, -21))
    return None


def lowered(ins: Instruction, architecture: str) -> bool:
    """8-bit floats through mma on data-centre parts since sm_90: two f16 steps of every other pair of products, then an IEEE add of c."""
    return ins.op == "mma" and ins.atype in FP8 and architecture in ("sm_90", "sm_100", "sm_103", "sm_110")


@dataclass(frozen=True)
class Term:
    """A finite value and the exponent by which it is aligned."""

    value: Fraction
    exponent: int


def term(code: int, name: str) -> Term:
    """A finite code; the exponent is that of its field, subnormals having the lowest normal one."""
    row = FORMATS[name]
    code >>= row.padding
    mantissa = code & ((1 << row.mantissa_bits) - 1)
    field = code >> row.mantissa_bits & ((1 << row.exponent_bits) - 1)
    sign = -1 if code >> (row.exponent_bits + row.mantissa_bits) else 1
    exponent = max(field, 1) - row.bias
    significand = Fraction(mantissa, 1 << row.mantissa_bits) + (field > 0)
    return Term(sign * significand * Fraction(2) ** exponent, exponent)


def truncated(value: Fraction, last: int) -> Fraction:
    """Toward zero to a multiple of 2**last."""
    quantum = Fraction(2) ** last
    return math.trunc(value / quantum) * quantum


def rounded(value: Fraction, name: str, keep: int, *, nearest: bool) -> int:
    """The code of a value, to nearest even or toward zero; zero is positive, what is too large infinite."""
    row = FORMATS[name]
    if value == 0:
        return 0
    magnitude = abs(value)
    exponent = row.emin
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    quantum = Fraction(2) ** (exponent - row.mantissa_bits)
    count = magnitude / quantum
    whole = round(count) if nearest else math.floor(count)
    code = whole + ((exponent - row.emin) << row.mantissa_bits)
    code = min(code, ((1 << row.exponent_bits) - 1) << row.mantissa_bits)
    code &= -1 << (row.mantissa_bits - keep)
    return code | (1 << (row.bits - 1) if value < 0 and code else 0)


def fused(a: Sequence[int], b: Sequence[int], c: int, ins: Instruction, how: Step) -> int:
    """The result of one instruction for a row of A and a column of B, all codes finite."""
    half = ins.dtype == "f16"
    for start in range(0, len(a), how.terms):
        factors = [
            (term(x, ins.atype), term(y, ins.btype))
            for x, y in zip(a[start : start + how.terms], b[start : start + how.terms], strict=True)
        ]
        terms = [Term(x.value * y.value, x.exponent + y.exponent) for x, y in factors] + [term(c, ins.dtype)]
        emax = max([each.exponent for each in terms if each.value], default=-math.inf)
        emax = max(emax, how.floors[half])
        if emax == -math.inf:
            c = 0
            continue
        total = sum(truncated(each.value, int(emax) - how.align_bits) for each in terms)
        c = rounded(Fraction(total), ins.dtype, 10 if half else how.keep, nearest=half)
        if FORMATS[ins.dtype].emax < term(c, ins.dtype).exponent:
            return c  # infinite: nothing finite brings it back
    return c
