"""The fused step of the kernels in Python integers, and operands that are hard for it."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.params import Element, Fused

FORMATS = {
    "f16": Element(5, 10, 15, 0, 1),
    "bf16": Element(8, 7, 127, 0, 1),
    "tf32": Element(8, 10, 127, 13, 1),
    "e4m3": Element(4, 3, 7, 0, 2),
    "e5m2": Element(5, 2, 15, 0, 1),
    "e3m2": Element(3, 2, 3, 0, 0),
    "e2m3": Element(2, 3, 1, 0, 0),
    "e2m1": Element(2, 1, 1, 0, 0),
}
CODES = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}  # the others: uint8
F32 = Element(8, 23, 127, 0, 1)
F16 = FORMATS["f16"]
NAN, INFINITE = "nan", "inf"


def decode(element: Element, code: int) -> tuple[int, Any, int]:
    """(sign, significand or NAN or INFINITE, exponent); the value is significand * 2**(exponent - mantissa_bits)."""
    code >>= element.shift
    mantissa = code & ((1 << element.mantissa_bits) - 1)
    field = (code >> element.mantissa_bits) & ((1 << element.exponent_bits) - 1)
    sign = -1 if code >> (element.mantissa_bits + element.exponent_bits) & 1 else 1
    top = field == (1 << element.exponent_bits) - 1
    if element.specials == 1 and top:
        return sign, NAN if mantissa else INFINITE, 0
    if element.specials == 2 and top and mantissa == (1 << element.mantissa_bits) - 1:
        return sign, NAN, 0
    if field == 0:
        return sign, mantissa, 1 - element.bias
    return sign, mantissa | 1 << element.mantissa_bits, field - element.bias


def shifted(magnitude: int, places: int) -> int:
    """Toward zero."""
    return magnitude << places if places >= 0 else magnitude >> -places


def nearest_even(magnitude: int, places: int) -> int:
    if places >= 0:
        return magnitude << places
    quotient, rest = divmod(magnitude, 1 << -places)
    half = 1 << (-places - 1)
    return quotient + (rest > half or (rest == half and quotient & 1))


def encode(result: Element, sign: int, magnitude: int, exponent: int, keep_bits: int, round_magnitude: Any) -> int:
    """Bits of sign * magnitude * 2**exponent (not zero) rounded to the format; a zero is +0."""
    binade = max(exponent + magnitude.bit_length() - 1, 1 - result.bias)
    quantum = binade - keep_bits
    code: int = round_magnitude(magnitude, exponent - quantum) << (result.mantissa_bits - keep_bits)
    if binade > 1 - result.bias or code >> result.mantissa_bits:
        code += (binade + result.bias - 1) << result.mantissa_bits
    code = min(code, ((1 << result.exponent_bits) - 1) << result.mantissa_bits)
    return code | ((sign < 0 and code != 0) << (result.exponent_bits + result.mantissa_bits))


def step(p: Fused, result: Element, a: list[int], b: list[int], c: int) -> int:
    canonical_nan = (1 << (result.exponent_bits + result.mantissa_bits)) - 1
    infinity = ((1 << result.exponent_bits) - 1) << result.mantissa_bits
    sign_bit = 1 << (result.exponent_bits + result.mantissa_bits)
    sign, significand, exponent = decode(result, c)
    if significand == NAN:
        return canonical_nan
    infinite = {sign} if significand == INFINITE else set()
    terms = [] if infinite else [(sign, significand, exponent, result.mantissa_bits)]
    for a_code, b_code in zip(a, b, strict=True):
        a_sign, a_significand, a_exponent = decode(p.a, a_code)
        b_sign, b_significand, b_exponent = decode(p.b, b_code)
        if NAN in (a_significand, b_significand):
            return canonical_nan
        if INFINITE in (a_significand, b_significand):
            if 0 in (a_significand, b_significand):
                return canonical_nan
            infinite.add(a_sign * b_sign)
            continue
        terms.append((a_sign * b_sign, a_significand * b_significand, a_exponent + b_exponent, p.a.mantissa_bits + p.b.mantissa_bits))
    if len(infinite) == 2:
        return canonical_nan
    if infinite:
        return infinity | (sign_bit if infinite == {-1} else 0)
    emax = max([exponent for _, significand, exponent, _ in terms if significand] + [p.emax_floor])
    last = emax - p.align_bits
    total = sum(sign * shifted(significand, exponent - bits - last) for sign, significand, exponent, bits in terms)
    if total == 0:
        return 0
    sign = -1 if total < 0 else 1
    if p.half:
        return encode(result, sign, abs(total), last, 10, nearest_even)
    # masking the low bits of the magnitude truncates it further
    return encode(result, sign, abs(total), last, 23, shifted) & ~((1 << (23 - p.keep_bits)) - 1 if p.keep_bits < 23 else 0)


def ieee_sum(p: Fused, first: int, second: int) -> int:
    bits, floating = (np.uint16, np.float16) if p.half else (np.uint32, np.float32)
    x, y = (np.array([each], bits).view(floating) for each in (first, second))
    total = x + y
    return (0x7FFF if p.half else 0x7FFFFFFF) if np.isnan(total[0]) else int(total.view(bits)[0])


def reference(p: Fused, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, order: NDArray[Any] | None = None) -> NDArray[Any]:
    result = F16 if p.half else F32
    rows, depth = a.shape
    columns = b.shape[1]
    period = p.terms * max(p.restart, 1)
    padded = -(-depth // period) * period
    wide_a = np.zeros((rows, padded), a.dtype)
    wide_a[:, :depth] = a
    wide_b = np.zeros((padded, columns), b.dtype)
    wide_b[:depth] = b
    if order is not None:
        positions = (np.arange(0, padded, period)[:, None] + order).ravel()
        wide_a, wide_b = wide_a[:, positions], wide_b[positions]
    out = np.zeros((rows, columns), np.uint16 if p.half else np.uint32)
    lists_a, lists_b = wide_a.tolist(), wide_b.T.tolist()
    with np.errstate(all="ignore"):
        for i, j in itertools.product(range(rows), range(columns)):
            d = 0 if c is None else int(c[i, j])
            for start in range(0, padded, period):
                accumulator = 0 if p.restart else d
                for k in range(start, start + period, p.terms):
                    accumulator = step(p, result, lists_a[i][k : k + p.terms], lists_b[j][k : k + p.terms], accumulator)
                d = ieee_sum(p, accumulator, d) if p.restart else accumulator
            out[i, j] = d
    return out


@functools.cache
def finite_magnitudes(name: str) -> NDArray[np.float64]:
    """The values of the finite codes without a sign, which ascend with the code."""
    element = FORMATS[name]
    decoded = [decode(element, code << element.shift) for code in range(1 << (element.exponent_bits + element.mantissa_bits))]
    return np.array([m * 2.0 ** (e - element.mantissa_bits) for _, m, e in decoded if m not in (NAN, INFINITE)])


def codes(name: str, values: NDArray[np.float64]) -> NDArray[Any]:
    """Finite codes next to values."""
    element = FORMATS[name]
    magnitudes = finite_magnitudes(name)
    index = np.minimum(np.searchsorted(magnitudes, np.abs(values)), len(magnitudes) - 1)
    sign = np.signbit(values).astype(np.int64) << (element.exponent_bits + element.mantissa_bits)
    return ((index | sign) << element.shift).astype(CODES.get(name, np.uint8))


def any_codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """All bit patterns, but for tf32 with zeros and junk in the ignored bits."""
    element = FORMATS[name]
    bits = 1 + element.exponent_bits + element.mantissa_bits + element.shift
    return rng.integers(0, 1 << bits, shape, np.uint64).astype(CODES.get(name, np.uint8))


def operand(rng: np.random.Generator, name: str, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    if kind == "bits":
        return any_codes(rng, name, shape)
    if kind == "normal":
        return codes(name, rng.standard_normal(shape))
    if kind == "spread":
        return codes(name, rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 12, shape))
    if kind == "tiny":
        return codes(name, rng.standard_normal(shape) * 2.0 ** rng.integers(-140, -50, shape))
    if kind == "large":
        return codes(name, rng.standard_normal(shape) * 2.0 ** rng.integers(0, 127, shape))
    if kind == "rare":
        return np.where(rng.random(shape) < 0.03, any_codes(rng, name, shape), codes(name, rng.standard_normal(shape)))
    if kind == "extreme":
        largest = float(finite_magnitudes(name)[-1])
        return codes(name, rng.choice([largest, largest, largest / 2, 0.0], (*shape[:-1], 1)) * rng.choice([1, 1, 1, -1], shape))
    values = rng.choice([0.0, -0.0, 1.0, -1.0, 2.0**-6, -(2.0**-9), 2.0**-12, 1.5], shape)
    return codes(name, values)


def accumulator(rng: np.random.Generator, p: Fused, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    dtype: Any = np.uint16 if p.half else np.uint32
    if kind == "bits":
        return rng.integers(0, 1 << (16 if p.half else 32), shape, np.uint64).astype(dtype)
    if kind == "rare":
        return np.where(rng.random(shape) < 0.1, accumulator(rng, p, shape, "bits"), accumulator(rng, p, shape, "normal"))
    exponents = {"normal": (-2, 3), "spread": (-28, 14), "tiny": (-150, -100), "large": (10, 127), "extreme": (28, 36)}.get(kind, (-16, 1))
    values = rng.choice([0.0, -0.0, 1.0, -1.0, 1.25, -1.0 - 2.0**-20], shape) * 2.0 ** rng.integers(*exponents, shape)
    with np.errstate(over="ignore"):
        return values.astype(np.float16 if p.half else np.float32).view(dtype)


def lowered_order(p: Fused) -> NDArray[np.int32] | None:
    """k % 4 in {0, 1} first, then {2, 3}."""
    if p.restart != 2:
        return None
    k = np.arange(p.terms * 2, dtype=np.int32)
    return np.concatenate([k[k % 4 < 2], k[k % 4 >= 2]])


def f16(values: Any) -> NDArray[np.uint16]:
    return np.array(values, np.float16).view(np.uint16)
