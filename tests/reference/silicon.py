"""The arithmetic of fused steps in integers, with the parameters of each architecture from the reviewed file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

from fastmma import FORMATS, Instruction

ARITHMETIC = Path(__file__).parents[1] / "numerics" / "arithmetic.md"
_METHOD = 6  # the first column of what is computed; those before say by what


@dataclass(frozen=True)
class Step:
    """A fused dot-product-add: products, alignment bits, lowest emax, fraction bits of the result."""

    terms: int
    align_bits: int
    floor: float
    keep: int


@cache
def _reviewed() -> dict[tuple[str, ...], dict[str, str]]:
    """The reviewed file, by the instructions' name, k, A, B, the format of sums and the architecture."""
    headings, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in ARITHMETIC.read_text().splitlines())
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        for key in product(*(cell.split(", ") for cell in row[:_METHOD])):
            if key in found:
                raise ValueError(f"two lines of {ARITHMETIC.name} are about {key}")
            found[key] = dict(zip(headings[_METHOD:], row[_METHOD:], strict=True))
    return found


def step(ins: Instruction, architecture: str) -> Step | None:
    """The fused step of a dense float instruction; None where it is not one (lowered forms, f64, integers)."""
    name = f"{ins.op} kind::{ins.kind}" if ins.kind else ins.op
    line = _reviewed()[name, str(ins.k), ins.atype, ins.btype, ins.dtype, architecture]
    if line["method"] != "fused" or line["split"]:
        return None
    return Step(int(line["L"]), int(line["F"]), float(line["emax >="] or -math.inf), int(line["keep"]))


class Term(NamedTuple):
    """A finite value, as an integer of ``2**last``, and the exponent by which it is aligned."""

    significand: int
    last: int
    exponent: int


@cache
def term(code: int, name: str) -> Term:
    """A finite code; the exponent is that of its field, subnormals having the lowest normal one."""
    row = FORMATS[name]
    code >>= row.padding
    mantissa = code & ((1 << row.mantissa_bits) - 1)
    field = code >> row.mantissa_bits & ((1 << row.exponent_bits) - 1)
    sign = -1 if code >> (row.exponent_bits + row.mantissa_bits) else 1
    exponent = max(field, 1) - row.bias
    significand = mantissa + ((field > 0) << row.mantissa_bits)
    return Term(sign * significand, exponent - row.mantissa_bits, exponent)


def truncated(each: Term, last: int) -> int:
    """Toward zero to a multiple of 2**last: how many of these."""
    shift = last - each.last
    if shift <= 0:
        return each.significand << -shift
    return each.significand >> shift if each.significand >= 0 else -(-each.significand >> shift)


def rounded(total: int, last: int, name: str, keep: int, *, nearest: bool) -> int:
    """The code of total * 2**last, to nearest even or toward zero; zero is positive, what is too large infinite."""
    row = FORMATS[name]
    if total == 0:
        return 0
    magnitude = abs(total)
    exponent = max(magnitude.bit_length() - 1 + last, row.emin)
    count = magnitude * Fraction(2) ** (last - exponent + row.mantissa_bits)
    whole = round(count) if nearest else math.floor(count)
    code = whole + ((exponent - row.emin) << row.mantissa_bits)
    code = min(code, ((1 << row.exponent_bits) - 1) << row.mantissa_bits)
    code &= -1 << (row.mantissa_bits - keep)
    return code | (1 << (row.bits - 1) if total < 0 and code else 0)


def fused(a: Sequence[int], b: Sequence[int], c: int, ins: Instruction, how: Step) -> int:
    """The result of one instruction for a row of A and a column of B, all codes finite."""
    half = ins.dtype == "f16"
    for start in range(0, len(a), how.terms):
        factors = [
            (term(x, ins.atype), term(y, ins.btype))
            for x, y in zip(a[start : start + how.terms], b[start : start + how.terms], strict=True)
        ]
        terms = [Term(x.significand * y.significand, x.last + y.last, x.exponent + y.exponent) for x, y in factors]
        terms.append(term(c, ins.dtype))
        emax = max([each.exponent for each in terms if each.significand], default=-math.inf)
        emax = max(emax, how.floor)
        if emax == -math.inf:
            c = 0
            continue
        last = int(emax) - how.align_bits
        c = rounded(sum(truncated(each, last) for each in terms), last, ins.dtype, how.keep, nearest=half)
        if FORMATS[ins.dtype].emax < term(c, ins.dtype).exponent:
            return c  # infinite: nothing finite brings it back
    return c
