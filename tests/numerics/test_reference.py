"""The reference backend: against integers and fractions, and in its own terms."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.products import bits, elements, random_codes
from reference.silicon import fused, step

import fastmma
from fastmma import FORMATS, Instruction, decode
from fastmma.isa.codes import all_codes
from fastmma.numerics.lookup import arithmetic
from fastmma.numerics.reference_steps import fma, number, product, round_to

DENSE = [ins for ins in (*fastmma.instructions(op="mma"), *fastmma.instructions(op="wgmma")) if not ins.sparse and not ins.scale_vec_size]


def fused_cases() -> list[tuple[Instruction, str]]:
    """One opcode of every fused arithmetic."""
    found = {}
    for ins in DENSE:
        for target in ins.targets:
            if step(ins, target.rstrip("af")) is not None and ins.atype == ins.btype and ins.ctype == ins.dtype and ins.n == 8:
                row = arithmetic(ins, target)
                found.setdefault((ins.types, row.terms, row.align_bits, row.emax_floor, row.keep_bits, ins.op), (ins, target))
    return list(found.values())


@pytest.mark.parametrize(("ins", "target"), fused_cases(), ids=str)
def test_fused_steps_in_integers(ins: Instruction, target: str) -> None:
    how = step(ins, target.rstrip("af"))
    assert how is not None
    generator = np.random.default_rng(1)
    for distribution in ("finite", "near", "tiny", "cancel", "huge"):
        a, b, c = (
            random_codes(generator, fmt, shape, distribution)
            for fmt, shape in ((ins.atype, (ins.m, ins.k)), (ins.btype, (ins.k, ins.n)), (ins.ctype, (ins.m, ins.n)))
        )
        for codes, fmt in ((a, ins.atype), (b, ins.btype), (c, ins.ctype)):
            codes[~np.isfinite(decode(codes, fmt))] = 0
        inputs = elements(a, ins.atype), elements(b, ins.btype), elements(c, ins.ctype)
        result = bits(fastmma.mma(ins, *inputs, target=target, backend="reference"))
        for i in range(0, ins.m, max(1, ins.m // 8)):
            for j in range(i % 3, ins.n, 3):
                expected = fused([int(x) for x in a[i]], [int(x) for x in b[:, j]], int(c[i, j]), ins, how)
                assert result[i, j] == expected, (distribution, i, j)


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
def test_numbers_are_their_values(name: str) -> None:
    codes = all_codes(name)
    for code, value in zip(codes.tolist(), decode(codes, name).tolist(), strict=True):
        read = number(code, FORMATS[name])
        if read.special:
            assert read.special == ("nan" if np.isnan(value) else "inf")
        else:
            assert math.ldexp(read.significand, read.last) == value
        assert np.isnan(value) or read.negative == np.signbit(value)


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_rounding_in_fractions(name: str, mode: str) -> None:
    """Of the two neighbours of a number, the one that the mode asks for."""
    fmt = FORMATS[name]

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(st.integers(-(2**60), 2**60), st.integers(fmt.emin - fmt.mantissa_bits - 62, fmt.emax - 61))
    def check(value: int, last: int) -> None:
        exact = value * Fraction(2) ** last
        code = round_to(value, last, fmt, mode)
        magnitude = code & ~(1 << (fmt.bits - 1))

        def at(offset: int) -> Fraction:
            read = number(max(magnitude + offset, 0), fmt)
            return Fraction(2) ** (fmt.emax + 1) if read.special else read.significand * Fraction(2) ** read.last

        here, below, above = at(0), at(-1), at(1)
        size = abs(exact)
        assert (code != magnitude) == (exact < 0 and code != 0)
        toward_zero = mode == "rz" or (mode == "rm" and exact > 0) or (mode == "rp" and exact < 0)
        if mode == "rn":
            assert abs(here - size) <= min(abs(above - size), abs(below - size))
            if 2 * size in (here + above, here + below) and size != here:
                assert magnitude % 2 == 0
        elif toward_zero:
            assert here <= size < above
        else:
            assert here == size == 0 or below < size <= here

    check()


def doubles() -> st.SearchStrategy[float]:
    return st.floats(allow_nan=False, width=64)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(doubles(), doubles())
def test_f64_products_and_sums_are_ieees(x: float, y: float) -> None:
    f64 = FORMATS["f64"]

    def code(value: float) -> int:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])

    one, zero = number(code(1.0), f64), number(code(-0.0), f64)
    with np.errstate(all="ignore"):
        total, times = np.float64(x) + np.float64(y), np.float64(x) * np.float64(y)
    nan = 0xFFF8 << 48
    assert fma(number(code(x), f64), one, number(code(y), f64), f64) == (nan if np.isnan(total) else code(total))
    assert fma(number(code(x), f64), number(code(y), f64), zero, f64) == (nan if np.isnan(times) else code(times + -0.0))


def test_products_are_not_renormalised() -> None:
    f16 = FORMATS["f16"]
    x = product(number(0x3E00, f16), number(0x3E00, f16))  # 1.5 * 1.5
    assert (x.exponent, x.significand * Fraction(2) ** x.last) == (0, Fraction(9, 4))
    subnormal = product(number(0x0001, f16), number(0x3C00, f16))
    assert (subnormal.exponent, subnormal.significand * Fraction(2) ** subnormal.last) == (-14, Fraction(1, 2**24))
    assert product(number(0x7C00, f16), number(0x0000, f16)).special == "nan"
    assert product(number(0x7C00, f16), number(0x8001, f16)).special == "inf"
