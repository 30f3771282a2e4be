"""Chains of fused multiply-adds against exact arithmetic of integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases

from fastmma.kernels.fma import f64, m8n8k4

ROUNDINGS = ("rn", "rz", "rm", "rp")
INVALID = 0xFFF8000000000000
MIN_EXPONENT = {"f64": -1022, "f32": -126, "f16": -14}
MANTISSA = {"f64": 52, "f32": 23, "f16": 10}
MAX_EXPONENT = {"f64": 1023, "f32": 127, "f16": 15}


def rounded(numerator: int, denominator: int, fmt: str, rounding: str) -> float:
    """A fraction that is not zero, and whose denominator is positive, in a format."""
    size, sign = abs(numerator), 1.0 if numerator > 0 else -1.0
    binade = size.bit_length() - denominator.bit_length()
    if size << max(-binade, 0) < denominator << max(binade, 0):
        binade -= 1
    last = max(binade, MIN_EXPONENT[fmt]) - MANTISSA[fmt]
    quantum = denominator << max(last, 0)
    steps, rest = divmod(size << max(-last, 0), quantum)
    upward = {"rz": False, "rm": sign < 0, "rp": sign > 0}.get(rounding)
    if upward is None:
        upward = 2 * rest > quantum or (2 * rest == quantum and steps % 2 == 1)
        infinite = True
    else:
        infinite = upward
    steps += 1 if upward and rest else 0
    if steps.bit_length() + last > MAX_EXPONENT[fmt] + 1:
        largest = math.ldexp((2 << MANTISSA[fmt]) - 1, MAX_EXPONENT[fmt] - MANTISSA[fmt])
        return sign * (math.inf if infinite else largest)
    return sign * math.ldexp(steps, last)


def exact_fma(a: float, b: float, c: float, fmt: str, rounding: str) -> float:
    """``a * b + c`` of any floats but NaN."""
    if any(map(math.isinf, (a, b, c))):
        if (math.isinf(a) and b == 0) or (math.isinf(b) and a == 0):
            return math.nan
        product = math.copysign(1, a) * math.copysign(1, b) * math.inf if math.isinf(a) or math.isinf(b) else 0.0
        if math.isinf(product) and math.isinf(c) and product != c:
            return math.nan
        return product if math.isinf(product) else c
    (x, below_x), (y, below_y), (z, below_z) = (each.as_integer_ratio() for each in (a, b, c))
    total = x * y * below_z + z * below_x * below_y
    if total != 0:
        return rounded(total, below_x * below_y * below_z, fmt, rounding)
    if a == 0 or b == 0 or c == 0:
        signs = {math.copysign(1, a) * math.copysign(1, b), math.copysign(1, c)}
        if len(signs) == 1:
            return math.copysign(0.0, signs.pop())
    return -0.0 if rounding == "rm" else 0.0


def f64_bits(value: float) -> int:
    return int(np.array(value, np.float64).view(np.uint64))


def f64_reference(rounding: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None) -> NDArray[np.uint64]:
    out = np.zeros((a.shape[0], b.shape[1]), np.uint64)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0 if c is None else int(np.ascontiguousarray(c).view(np.uint64)[i, j])
            for k in range(a.shape[1]):
                bits = [f64_bits(a[i, k]), f64_bits(b[k, j]), total]
                x, y, z = (float(np.array(each, np.uint64).view(np.float64)) for each in bits)
                nans = [bits[which] for which, value in ((1, y), (2, z), (0, x)) if math.isnan(value)]
                if nans:
                    total = nans[0] | 1 << 51
                    continue
                result = exact_fma(x, y, z, "f64", rounding)
                total = INVALID if math.isnan(result) else f64_bits(result)
            out[i, j] = total
    return out


def f64_operand(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> NDArray[np.float64]:
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "cancelling":
        return rng.choice([1.0, -1.0, 1 + 2.0**-52, -1 - 2.0**-52, 1 - 2.0**-53, 2.0**-53, -(2.0**-106), 3.0, 0.0, -0.0], shape)
    if kind == "subnormal":
        return rng.choice([-1, 1], shape) * rng.integers(0, 1 << 53, shape) * 2.0 ** rng.integers(-600, -520, shape)
    if kind == "large":
        return rng.standard_normal(shape) * 2.0 ** rng.integers(480, 515, shape)
    if kind == "wide":
        return np.ldexp(rng.standard_normal(shape), rng.integers(-1100, 1020, shape))
    bits = rng.integers(0, 1 << 64, shape, np.uint64)
    special = rng.choice(
        np.array([0, 1 << 63, 0x7FF << 52, 0xFFF << 52, 1, (1 << 52) - 1, 1 << 52, 0x7FF0000000000001, 0xFFFC0000DEADBEEF], np.uint64),
        shape,
    )
    return np.where(rng.random(shape) < 0.3, special, bits).view(np.float64)


KINDS = ("normal", "cancelling", "subnormal", "large", "wide", "bits")


@cases("kind", KINDS)
@cases("rounding", ROUNDINGS)
def test_f64_gemm_is_exact(rounding: str, kind: str) -> None:
    rng = np.random.default_rng([KINDS.index(kind), ROUNDINGS.index(rounding)])
    for rows, depth, columns in ((9, 5, 17), (4, 3, 8), (13, 1, 7)):
        a, b, c = (f64_operand(rng, shape, kind) for shape in ((rows, depth), (depth, columns), (rows, columns)))
        if kind == "subnormal":
            c = c * 2.0**-480
        out = np.full((rows, columns), 7.0)
        f64.gemm(rounding, a, b, c, out, 2)
        np.testing.assert_array_equal(out.view(np.uint64), f64_reference(rounding, a, b, c))
        f64.gemm(rounding, a, b, None, out, 1)
        np.testing.assert_array_equal(out.view(np.uint64), f64_reference(rounding, a, b, None))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_tiles_are_exact(rounding: str) -> None:
    rng = np.random.default_rng(3)
    a, b, c = (np.concatenate([f64_operand(rng, (1, *shape), kind) for kind in KINDS]) for shape in ((8, 4), (4, 8), (8, 8)))
    out = np.empty((len(KINDS), 8, 8))
    f64.tiles(rounding, a, b, c, out, 2)
    for t in range(len(KINDS)):
        np.testing.assert_array_equal(out[t].view(np.uint64), f64_reference(rounding, a[t], b[t], c[t]))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_directed_rounding_of_hard_cases(rounding: str) -> None:
    tiny, huge = 5e-324, 1.7976931348623157e308
    cases = [
        (huge, 2.0, 0.0), (-huge, 2.0, 0.0), (huge, 1.0, huge), (huge, 1.0, tiny), (huge, 1.0, -tiny), (-huge, 1.0, -tiny),
        (tiny, tiny, 0.0), (-tiny, tiny, 0.0), (tiny, tiny, tiny), (tiny, -tiny, tiny), (tiny, 0.5, 0.0), (tiny, 0.5, -tiny),
        (1.0, 1.0, tiny), (1.0, 1.0, -tiny), (1.0, -1.0, 1.0), (0.0, 1.0, -0.0), (-0.0, 1.0, -0.0), (-0.0, 1.0, 0.0),
        (1 + 2.0**-52, 1 - 2.0**-53, -1.0), (2.0**-537, 2.0**-537, 2.0**-1022), (2.0**-511, 2.0**-511, -(2.0**-1074)),
        (2.0**-537, -(2.0**-537), 2.0**-1022), (2.0**60, 1.0, 2.0**-60), (2.0**-60, 1.0, -(2.0**60)), (1 + 2.0**-52, 1 + 2.0**-52, 2.0**54),
        (1 + 2.0**-52, 1 + 2.0**-52, -(2.0**107)), (2.0**-1022, 1 - 2.0**-53, 0.0), (2.0**1023, 2.0, -(2.0**1023)),
    ]  # fmt: skip
    a, b, c = (np.array(column).reshape(-1, 1, 1) for column in zip(*cases, strict=True))
    out = np.empty_like(c)
    f64.tiles(rounding, a, b, c, out, 1)
    expected = [f64_bits(exact_fma(*case, "f64", rounding)) for case in cases]
    np.testing.assert_array_equal(out.view(np.uint64).ravel(), np.array(expected, np.uint64))


@pytest.mark.parametrize("rounding", ["rn", "rm"])
def test_f64_layouts(rounding: str) -> None:
    rng = np.random.default_rng(5)
    a, b, c = rng.standard_normal((19, 6)), rng.standard_normal((6, 21)), rng.standard_normal((19, 21))
    expected = f64_reference(rounding, a, b, c)
    wide = np.zeros((38, 63))
    out = wide[::2, ::3]
    for x, y, z in ((np.asfortranarray(a), b, c), (a, np.asfortranarray(b), c), (a, b, np.asfortranarray(c)), (a[::-1][::-1], b, c)):
        for operand in (x, y, z):
            operand.flags.writeable = False
        f64.gemm(rounding, x, y, z, out, 2)
        np.testing.assert_array_equal(np.ascontiguousarray(out).view(np.uint64), expected)
    assert not np.delete(wide, np.s_[::2], 0).any()
    inplace = c.copy()
    f64.gemm(rounding, a, b, inplace, inplace, 2)
    np.testing.assert_array_equal(inplace.view(np.uint64), expected)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_nan_in_place(rounding: str) -> None:
    a, b = np.ones((4, 2)), np.ones((2, 8))
    c = np.full((4, 8), 1.0)
    c[1, 3] = np.array(0xFFF0000000000123, np.uint64).view(np.float64)
    b[1, 5] = np.inf
    c[2, 5] = -np.inf
    expected = f64_reference(rounding, a, b, c)
    f64.gemm(rounding, a, b, c, c, 1)
    np.testing.assert_array_equal(c.view(np.uint64), expected)


def test_f64_without_k_leaves_c() -> None:
    c = np.array([[-0.0, np.nan, 1.0]])
    c.view(np.uint64)[0, 1] = 0x7FF0000000000001
    out = np.empty_like(c)
    for rounding in ROUNDINGS:
        f64.gemm(rounding, np.empty((1, 0)), np.empty((0, 3)), c, out, 1)
        np.testing.assert_array_equal(out.view(np.uint64), c.view(np.uint64))


def test_f64_empty() -> None:
    for rows, columns in ((0, 3), (3, 0)):
        f64.gemm("rz", np.empty((rows, 2)), np.empty((2, columns)), None, np.empty((rows, columns)), 2)
    f64.tiles("rn", np.empty((0, 8, 4)), np.empty((0, 4, 8)), None, np.empty((0, 8, 8)), 2)


# --- the lowered m8n8k4 ---


def f32_add(x: float, y: float) -> float:
    return exact_fma(x, 1.0, y, "f32", "rn") if not (math.isnan(x) or math.isnan(y)) else math.nan


def chain(a: list[float], b: list[float], start: float) -> float:
    for x, y in zip(a, b, strict=True):
        start = math.nan if any(map(math.isnan, (x, y, start))) else exact_fma(x, y, start, "f32", "rn")
    return start


def f32_reference(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, dtype: Any, pairs: bool) -> NDArray[Any]:
    rows, depth = a.shape
    columns = b.shape[1]
    padding = -depth % 4
    with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
        a = np.pad(a.view(np.float16), ((0, 0), (0, padding))).astype(float)
        b = np.pad(b.view(np.float16), ((0, padding), (0, 0))).astype(float)
    out = np.zeros((rows, columns), dtype)
    for i in range(rows):
        for j in range(columns):
            total = 0.0 if c is None else float(c.view(np.float16 if c.dtype == np.uint16 else np.float32)[i, j])
            for k in range(0, depth, 4):
                x, y = a[i, k : k + 4].tolist(), b[k : k + 4, j].tolist()
                if pairs:
                    total = f32_add(total, chain(x[:2], y[:2], -0.0))
                    total = f32_add(total, chain(x[2:], y[2:], -0.0))
                else:
                    total = f32_add(chain(x, y, 0.0), total)
                if dtype == np.uint16 and total != 0 and math.isfinite(total):
                    total = rounded(*total.as_integer_ratio(), "f16", "rn")
            if math.isnan(total):
                out[i, j] = 0x7FFF if dtype == np.uint16 else 0x7FFFFFFF
            else:
                out[i, j] = np.array(total, np.float16 if dtype == np.uint16 else np.float32).view(dtype)
    return out


def f16_operand(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> NDArray[np.uint16]:
    if kind == "bits":
        return rng.integers(0, 1 << 16, shape).astype(np.uint16)
    if kind == "normal":
        return rng.standard_normal(shape).astype(np.float16).view(np.uint16)
    if kind == "large":
        return (rng.standard_normal(shape) * 200).astype(np.float16).view(np.uint16)
    if kind == "tiny":
        return (rng.standard_normal(shape) * 2.0 ** rng.integers(-24, -6, shape)).astype(np.float16).view(np.uint16)
    return rng.choice([0.0, -0.0, 1.0, -1.0, 2.0**-12, 1 + 2.0**-10], shape).astype(np.float16).view(np.uint16)


@cases("kind", ["bits", "normal", "large", "tiny", "exact"])
@cases("pairs", [False, True])
@cases("out_dtype", [np.uint16, np.uint32])
@cases("c_dtype", [None, np.uint16, np.uint32])
def test_f32_chains_are_exact(c_dtype: Any, out_dtype: Any, pairs: bool, kind: str) -> None:
    rng = np.random.default_rng([len(kind), pairs])
    for rows, depth, columns in ((9, 8, 10), (3, 13, 8)):
        a, b = f16_operand(rng, (rows, depth), kind), f16_operand(rng, (depth, columns), kind)
        c: NDArray[Any] | None = None
        if c_dtype is not None:
            c = f16_operand(rng, (rows, columns), kind)
        if c is not None and c_dtype == np.uint32:
            with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
                wide = c.view(np.float16).astype(np.float32)
            c = wide.view(np.uint32) ^ rng.integers(0, 1 << 14, c.shape).astype(np.uint32)
        out = np.full((rows, columns), 77, out_dtype)
        m8n8k4.gemm(a, b, c, out, pairs, 2)
        np.testing.assert_array_equal(out, f32_reference(a, b, c, out_dtype, pairs))
    a, b = f16_operand(rng, (3, 8, 4), kind), f16_operand(rng, (3, 4, 8), kind)
    out = np.full((3, 8, 8), 77, out_dtype)
    m8n8k4.tiles(a, b, None, out, pairs, 2)
    for t in range(3):
        np.testing.assert_array_equal(out[t], f32_reference(a[t], b[t], None, out_dtype, pairs))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("pairs", [False, True])
def test_f32_chains_without_k_leave_c_as_it_is(dtype: Any, pairs: bool) -> None:
    c = np.random.default_rng(0).integers(0, 1 << 8 * np.dtype(dtype).itemsize, (3, 40, 9), dtype=dtype)
    c[0, 0, :3] = (0xFC01, 0x7C01, 0xFFFF) if dtype == np.uint16 else (0xFF800001, 0x7F800001, 0xFFFFFFFF)  # NaNs with payloads
    a, b, out = np.zeros((3, 40, 0), np.uint16), np.zeros((3, 0, 9), np.uint16), np.empty_like(c)
    m8n8k4.tiles(a, b, c, out, pairs, 2)
    np.testing.assert_array_equal(out, c)
    out = np.empty_like(c)
    m8n8k4.gemm(a[0], b[0], c[0], out[0], pairs, 2)
    np.testing.assert_array_equal(out[0], c[0])
    m8n8k4.gemm(a[0], b[0], None, out[0], pairs, 2)
    assert not out[0].any()
