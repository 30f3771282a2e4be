"""The fast path of the fused dot-product-add against the exact reference and the portable path."""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.fused import ELEMENTS, reference
from reference.narrower import narrower

from fastmma import FORMATS
from fastmma.backends.parameters import element_of
from fastmma.kernels.fused import portable, x86
from fastmma.kernels.llvm import cpu
from fastmma.kernels.params import Element, Fused

Codes = NDArray[Any]


def fused_parameters(a: str, b: str, terms: int, align_bits: int, keep_bits: int, floor: int) -> Fused:
    return Fused(ELEMENTS[a], ELEMENTS[b], terms, align_bits, floor, keep_bits, int(keep_bits == 10), 0)


SETTINGS = {
    "f16 sm_90": fused_parameters("f16", "f16", 16, 25, 23, -133),
    "f16 sm_80": fused_parameters("f16", "f16", 8, 24, 23, -132),
    "f16 sm_70": fused_parameters("f16", "f16", 4, 23, 23, -1 << 20),
    "f16 sm_90 to f16": fused_parameters("f16", "f16", 16, 25, 10, -21),
    "bf16 sm_90": fused_parameters("bf16", "bf16", 16, 25, 23, -133),
    "tf32 sm_80": fused_parameters("tf32", "tf32", 8, 24, 23, -132),
    "e4m3 wgmma": fused_parameters("e4m3", "e4m3", 32, 13, 13, -133),
    "e4m3 x e5m2 wgmma": fused_parameters("e4m3", "e5m2", 32, 13, 13, -133),
    "e5m2 x e4m3 to f16": fused_parameters("e5m2", "e4m3", 32, 13, 10, -21),
    "e5m2 x e4m3 sparse wgmma": fused_parameters("e5m2", "e4m3", 64, 13, 13, -133),
    "e4m3 sparse sm_120": fused_parameters("e4m3", "e4m3", 64, 25, 23, -133),
    "e2m1 x e5m2 sm_120": fused_parameters("e2m1", "e5m2", 16, 25, 23, -133),
    "e3m2 x e2m3 sm_120": fused_parameters("e3m2", "e2m3", 16, 25, 23, -133),
}
WIDE = ("bf16 sm_90", "tf32 sm_80")


def code_dtype(element: Element) -> type[Any]:
    bits = 1 + element.exponent_bits + element.mantissa_bits + element.shift
    return np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32


def result_dtype(p: Fused) -> type[Any]:
    return np.uint16 if p.half else np.uint32


def operand(rng: np.random.Generator, element: Element, shape: tuple[int, int], kind: str) -> Codes:
    """Finite codes."""
    width = element.exponent_bits + element.mantissa_bits
    top = element.first_special - 1
    if kind == "any":
        magnitude = rng.integers(0, top + 1, shape)
    elif kind == "small":
        magnitude = rng.integers(0, 3 << element.mantissa_bits, shape)
    elif kind == "large":
        magnitude = top - rng.integers(0, 2 << element.mantissa_bits, shape)
    else:
        middle, spread = element.bias << element.mantissa_bits, min(element.bias, 4) << element.mantissa_bits
        magnitude = np.clip(middle + rng.integers(-spread, spread + 1, shape), 0, top)
    if kind == "zeros":
        magnitude = magnitude * (rng.random(shape) < 0.3)
    codes = (magnitude + (rng.integers(0, 2, shape) << width)) << element.shift
    if element.shift:
        codes |= rng.integers(0, 1 << element.shift, shape)  # ignored
    return codes.astype(code_dtype(element))


def accumulator(rng: np.random.Generator, p: Fused, shape: tuple[int, int], kind: str) -> Codes | None:
    element = element_of(FORMATS["f16" if p.half else "f32"])
    if kind == "none":
        return None
    spread = 30 if kind == "near" else 127
    field = np.clip(element.bias + rng.integers(-spread, spread + 1, shape), 0, 2 * element.bias)
    codes = (field << element.mantissa_bits) + rng.integers(0, 1 << element.mantissa_bits, shape)
    codes *= rng.random(shape) < 0.9
    codes |= rng.integers(0, 2, shape) << (element.exponent_bits + element.mantissa_bits)
    return codes.astype(result_dtype(p))


def product(p: Fused, a: Codes, b: Codes, c: Codes | None, threads: int = 1, out: Codes | None = None) -> tuple[Codes, int]:
    """What the fast path makes, and how many results it left to the portable one, which does all where there is no fast one."""
    redone = 0

    def slow(q: Fused, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int) -> None:
        nonlocal redone
        redone += out.size
        portable.gemm(q, a, b, c, out, threads)

    if out is None:
        out = np.full((a.shape[0], b.shape[1]), 0xABCD, result_dtype(p))
    if x86.supported(p):
        x86.gemm(p, a, b, c, out, threads, slow)
    else:
        portable.gemm(p, a, b, c, out, threads)
    return out, redone


def portably(p: Fused, a: Codes, b: Codes, c: Codes | None) -> Codes:
    out = np.empty((a.shape[0], b.shape[1]), result_dtype(p))
    portable.gemm(p, a, b, c, out, 1)
    return out


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", ["near", "any", "zeros", "small", "large", "cancelling"])
def test_against_integers(setting: str, kind: str) -> None:
    p = SETTINGS[setting]
    rng = np.random.default_rng(1)
    for c_kind in ("none", "near", "any"):
        a = operand(rng, p.a, (9, 2 * p.terms + 3), kind)
        b = operand(rng, p.b, (2 * p.terms + 3, 7), kind)
        if kind == "cancelling":
            a[:, 1::2] = a[:, :-1:2]
            b[1::2] = b[:-1:2] ^ code_dtype(p.b)(1 << (p.b.exponent_bits + p.b.mantissa_bits + p.b.shift))
            b[::5] ^= code_dtype(p.b)(1 << p.b.shift)
        c = accumulator(rng, p, (9, 7), c_kind)
        np.testing.assert_array_equal(product(p, a, b, c)[0], reference(p, a, b, c))


@pytest.mark.parametrize("setting", WIDE)
def test_exponents_as_far_apart_as_sums_of_bytes_allow(setting: str) -> None:
    p, rng = SETTINGS[setting], np.random.default_rng(9)
    depth, width, sign = 4 * p.terms, 23 - p.a.mantissa_bits, 1 << 31
    for highest, added in ((33, True), (34, False)):
        spreads = (-30, highest), (-31, 33)
        found = [x86.Spread(*each) for each in spreads]
        assert x86.exponent_bytes(p, *found).added == added
        codes = []
        for (low, high), shape in zip(spreads, ((8, depth), (depth, 8)), strict=True):
            field = 127 + rng.choice([low, low + 1, high], shape)
            mantissa = rng.integers(0, 1 << p.a.mantissa_bits, shape) << width
            bits = ((field << 23) + mantissa + rng.integers(0, 2, shape) * sign) * (rng.random(shape) < 0.4)
            codes.append((bits >> (16 if p.a.shift == 0 else 0)).astype(code_dtype(p.a)))
        a, b = codes
        a[0, :], a[:, : p.terms] = 0, 0  # whole steps without products
        assert [x86._spread(p.a, each, 2) for each in codes] == found
        lowest = 127 + spreads[0][0] + spreads[1][0]
        c = ((rng.integers(lowest - 8, lowest + 8, (8, 8)) << 23) + rng.integers(0, 1 << 23, (8, 8))).astype(np.uint32)
        np.testing.assert_array_equal(product(p, a, b, c)[0], reference(p, a, b, c))


@pytest.mark.parametrize("setting", SETTINGS)
def test_against_the_portable_path(setting: str) -> None:
    p = SETTINGS[setting]
    rng = np.random.default_rng(2)
    for rows, columns, depth in ((61, 131, 67), (130, 33, 300), (5, 200, 520), (1, 1, 1), (64, 64, 256)):
        for kind in ("near", "any"):
            a, b = operand(rng, p.a, (rows, depth), kind), operand(rng, p.b, (depth, columns), kind)
            c = accumulator(rng, p, (rows, columns), "near")
            expected = portably(p, a, b, c)
            np.testing.assert_array_equal(product(p, a, b, c)[0], expected)
            np.testing.assert_array_equal(product(p, a, b, c, threads=2)[0], expected)


def test_finite_moderate_operands_never_need_the_portable_path() -> None:
    rng = np.random.default_rng(3)
    for setting, p in SETTINGS.items():
        a, b = operand(rng, p.a, (20, 100), "near"), operand(rng, p.b, (100, 30), "near")
        out, redone = product(p, a, b, None)
        assert redone == 0, setting
        np.testing.assert_array_equal(out, portably(p, a, b, None))


@pytest.mark.parametrize("setting", ["f16 sm_90", "bf16 sm_90", "e4m3 wgmma", "f16 sm_90 to f16"])
def test_a_special_value_costs_its_row_or_column(setting: str) -> None:
    p = SETTINGS[setting]
    rng = np.random.default_rng(4)
    rows, columns = 70, 150
    a, b = operand(rng, p.a, (rows, 40), "near"), operand(rng, p.b, (40, columns), "near")
    c = accumulator(rng, p, (rows, columns), "none")
    largest = (1 << (p.a.exponent_bits + p.a.mantissa_bits)) - 1
    special = a.copy()
    special[17, 5] = largest
    out, redone = product(p, special, b, c)
    np.testing.assert_array_equal(out, portably(p, special, b, c))
    assert redone <= columns
    special = b.copy()
    special[3, 99] = largest
    out, redone = product(p, a, special, c)
    np.testing.assert_array_equal(out, portably(p, a, special, c))
    assert redone <= rows
    c = np.zeros((rows, columns), result_dtype(p))
    c[8, 140] = 0x7C01 if p.half else 0x7F800001
    c[9, 2] = 0xFC00 if p.half else 0xFF800000
    out, redone = product(p, a, b, c)
    np.testing.assert_array_equal(out, portably(p, a, b, c))
    assert redone <= 2 * columns
    a[40:42, 3] = largest
    b[[7, 9], [0, 149]] = largest
    np.testing.assert_array_equal(product(p, a, b, c, threads=2)[0], portably(p, a, b, c))


def test_overflow_to_infinity() -> None:
    rng = np.random.default_rng(5)
    for setting in ("f16 sm_90 to f16", "e5m2 x e4m3 to f16", *WIDE):
        p = SETTINGS[setting]
        a, b = operand(rng, p.a, (12, 70), "large"), operand(rng, p.b, (70, 40), "large")
        a[3], b[:, 5] = operand(rng, p.a, (1, 70), "near"), operand(rng, p.b, (1, 70), "near")
        np.testing.assert_array_equal(product(p, a, b, None)[0], portably(p, a, b, None), setting)
    for p in (SETTINGS[setting] for setting in SETTINGS if not SETTINGS[setting].half):
        a, b = operand(rng, p.a, (12, 70), "near"), operand(rng, p.b, (70, 40), "near")
        c = np.full((12, 40), 0x7F7FFFFF, np.uint32)
        np.testing.assert_array_equal(product(p, a, b, c)[0], portably(p, a, b, c))


@pytest.mark.parametrize("setting", WIDE)
def test_products_below_the_smallest_f32(setting: str) -> None:
    p = SETTINGS[setting]
    rng = np.random.default_rng(6)
    for low in (-149, -140, -126, -110, -70):
        a, b = (operand(rng, element, shape, "near") for element, shape in ((p.a, (9, 40)), (p.b, (40, 70))))
        lowered = np.uint32(max(127 + low // 2, 0) << 23)
        shape = np.uint32 if p.a.shift else np.uint16
        exponent = shape(0x7F800000 if p.a.shift else 0x7F80)
        for codes in (a, b):
            codes[...] = (codes & ~exponent) | shape(lowered if p.a.shift else lowered >> 16)
            codes[rng.random(codes.shape) < 0.3] = 0
        a[4] = operand(rng, p.a, (1, 40), "near")
        c = accumulator(rng, p, (9, 70), "any")
        c_small = (c & np.uint32(0x80FFFFFF)) if c is not None else None
        for start in (None, c_small):
            np.testing.assert_array_equal(product(p, a, b, start)[0], portably(p, a, b, start))


def test_layouts() -> None:
    rng = np.random.default_rng(7)
    for setting in ("f16 sm_90", "e4m3 wgmma", "tf32 sm_80", "f16 sm_90 to f16"):
        p = SETTINGS[setting]
        a, b, c = operand(rng, p.a, (33, 75), "near"), operand(rng, p.b, (75, 41), "near"), accumulator(rng, p, (33, 41), "near")
        assert c is not None
        expected = portably(p, a, b, c)
        a.flags.writeable = b.flags.writeable = c.flags.writeable = False
        spread = np.zeros((66, 225), a.dtype)
        spread[::2, ::3] = a
        for left in (a, np.asfortranarray(a), spread[::2, ::3], a[::-1].copy()[::-1]):
            for right in (b, np.asfortranarray(b), b[:, ::-1].copy()[:, ::-1]):
                np.testing.assert_array_equal(product(p, left, right, np.asfortranarray(c))[0], expected)
        for out in (np.zeros((41, 33), c.dtype).T, np.zeros((33, 82), c.dtype)[:, ::2], np.zeros((34, 50), c.dtype)[1:, 9:]):
            np.testing.assert_array_equal(product(p, a, b, c, out=out)[0], expected)
        both = c.copy()
        np.testing.assert_array_equal(product(p, a, b, both, out=both)[0], expected)
        # nothing outside the view is written
        around = np.full((35, 43), 0x5A5A, c.dtype)
        product(p, a, b, c, out=around[1:-1, 1:-1])
        np.testing.assert_array_equal(around[1:-1, 1:-1], expected)
        around[1:-1, 1:-1] = 0x5A5A
        assert (around == 0x5A5A).all()


def test_empty_and_depth_zero() -> None:
    rng = np.random.default_rng(8)
    p = SETTINGS["f16 sm_90"]
    for rows, columns, depth in ((0, 5, 3), (5, 0, 3), (0, 0, 0), (3, 4, 0)):
        a, b = np.zeros((rows, depth), np.uint16), np.zeros((depth, columns), np.uint16)
        c = rng.integers(0, 1 << 32, (rows, columns), np.uint32)
        np.testing.assert_array_equal(product(p, a, b, c)[0], c)
        assert not product(p, a, b, None)[0].any()


def test_zero_results_are_positive() -> None:
    for p in SETTINGS.values():
        minus_zero = 1 << (p.a.exponent_bits + p.a.mantissa_bits + p.a.shift)
        a, b = np.full((5, 40), minus_zero, code_dtype(p.a)), np.zeros((40, 9), code_dtype(p.b))
        c = np.full((5, 9), 0x8000 if p.half else 0x80000000, result_dtype(p))
        assert not product(p, a, b, c)[0].any()


@cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def test_the_rounding_mode_is_the_callers() -> None:
    rng = np.random.default_rng(9)
    p = SETTINGS["f16 sm_90"]
    a, b = operand(rng, p.a, (20, 50), "near"), operand(rng, p.b, (50, 70), "near")
    expected = portably(p, a, b, None)
    one, three = np.ones(64), np.full(64, 3.0)
    nearest = (one / three).tobytes()
    upward = 0x800 if platform.machine().lower() in ("x86_64", "amd64") else 0x400000
    before = _libm().fegetround()
    product(p, a, b, None)
    assert _libm().fegetround() == before
    assert (one / three).tobytes() == nearest
    try:
        _libm().fesetround(upward)
        out, _ = product(p, a, b, None)
        mode, quotients = _libm().fegetround(), (one / three).tobytes()
    finally:
        _libm().fesetround(before)
    np.testing.assert_array_equal(out, expected)
    assert mode == upward
    assert quotients != nearest

    def failing(*_arguments: Any) -> None:
        raise RuntimeError("as told")

    a[3, 3] = 0x7C00
    if x86.supported(p):
        with pytest.raises(RuntimeError, match="as told"):
            x86.gemm(p, a, b, None, out, 2, failing)
    assert _libm().fegetround() == before
    assert (one / three).tobytes() == nearest


def test_what_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTMMA_PORTABLE", raising=False)
    able = {"avx2", "fma", "f16c"} <= cpu.features() or "neon" in cpu.features()
    for setting, p in SETTINGS.items():
        assert x86.supported(p) == able, setting
        assert not x86.supported(p._replace(restart=1))
        assert not x86.supported(p._replace(terms=3))
        assert not x86.supported(p._replace(align_bits=35))
        assert not x86.supported(p._replace(emax_floor=61))
    assert x86.supported(SETTINGS["e4m3 wgmma"]._replace(keep_bits=23)) == able
    assert x86.supported(SETTINGS["f16 sm_90"]._replace(align_bits=13, keep_bits=13, emax_floor=0)) == able
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    assert not any(x86.supported(p) for p in SETTINGS.values())


def test_narrower_vectors() -> None:
    """The AVX2 tiles on a CPU that has more, in a process that is told so."""
    program = """
import numpy as np
import test_fused_x86 as t
rng = np.random.default_rng(10)
for setting in ("f16 sm_90", "e4m3 wgmma"):
    p = t.SETTINGS[setting]
    for kind in ("near", "any", "zeros"):
        a, b = t.operand(rng, p.a, (13, 77), kind), t.operand(rng, p.b, (77, 35), kind)
        for c in (None, t.accumulator(rng, p, (13, 35), "near")):
            np.testing.assert_array_equal(t.product(p, a, b, c, 2)[0], t.reference(p, a, b, c))
    print(t.x86.supported(p))
"""
    assert narrower(program).split() == [str(x86.supported(SETTINGS["f16 sm_90"]))] * 2


@pytest.mark.parametrize("name", ["f16 sm_80", "e4m3 x e5m2 wgmma", "e2m1 x e5m2 sm_120", "f16 sm_90 to f16", "tf32 sm_80"])
def test_tall_products_are_turned(name: str) -> None:
    """Products of many rows and few columns; with specials, and with c in place."""
    p, rng = SETTINGS[name], np.random.default_rng(5)
    for shape in ((67, 100, 1), (130, 33, 7), (50, 300, 12)):
        rows, depth, columns = shape
        a, b = operand(rng, p.a, (rows, depth), "any"), operand(rng, p.b, (depth, columns), "small")
        a[rng.random(rows) < 0.1, 0] = np.iinfo(a.dtype).max >> 1
        for kind in ("none", "near", "any"):
            c = accumulator(rng, p, (rows, columns), kind)
            expected = portably(p, a, b, c)
            np.testing.assert_array_equal(product(p, np.asfortranarray(a), b, c, 3)[0], expected)
            if c is not None:
                np.testing.assert_array_equal(product(p, a, b, c, 1, c)[0], expected)
