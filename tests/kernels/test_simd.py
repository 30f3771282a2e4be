"""The SIMD vectors of the kernels against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from fastmma.kernels.llvm import simd

LANES = 16
INTEGERS = (np.int16, np.int32, np.uint32, np.int64)
FLOATS = (np.float32, np.float64)


def address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def values(dtype: Any, seed: int, lanes: int = LANES) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.floating):
        return rng.choice([0.0, -0.0, 1.0, -1.5, 3.25, np.inf, -np.inf, np.nan, 1e-40, 7.0], lanes).astype(dtype)
    limits = np.iinfo(dtype)
    return np.where(
        rng.random(lanes) < 0.3, rng.integers(-3 if limits.min else 0, 4, lanes), rng.integers(limits.min, limits.max, lanes)
    ).astype(dtype)


def bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


@njit
def arithmetic(x: Any, y: Any, out: Any, dtype: Any) -> None:
    a, b = simd.load(x, dtype, LANES), simd.load(y, dtype, LANES)
    size = LANES * simd.itemsize_of(dtype)
    simd.store(a + b, out)
    simd.store(a - b, out + size)
    simd.store(a * b, out + 2 * size)
    total = a
    total += 3
    total -= b
    total *= a
    simd.store(total, out + 3 * size)
    simd.store(2 - b, out + 4 * size)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_arithmetic(dtype: Any) -> None:
    a, b = values(dtype, 1), values(dtype, 2)
    out = np.zeros((5, LANES), dtype)
    arithmetic(address(a), address(b), address(out), dtype)
    with np.errstate(all="ignore"):
        expected = np.stack([a + b, a - b, a * b, (a + dtype(3) - b) * a, dtype(2) - b])
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(out), nan)
    np.testing.assert_array_equal(bits(out)[~nan], bits(expected)[~nan])


@njit
def logic(x: Any, y: Any, out: Any, dtype: Any, count: int) -> None:
    a, b = simd.load(x, dtype, LANES), simd.load(y, dtype, LANES)
    size = LANES * simd.itemsize_of(dtype)
    simd.store(a & b, out)
    simd.store(a | b, out + size)
    simd.store(a ^ 5, out + 2 * size)
    simd.store(a << 3, out + 3 * size)
    simd.store(a >> count, out + 4 * size)
    simd.store(simd.minimum(a, b), out + 5 * size)
    simd.store(simd.maximum(a, 1), out + 6 * size)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations(dtype: Any) -> None:
    a, b = values(dtype, 3), values(dtype, 4)
    out = np.zeros((7, LANES), dtype)
    logic(address(a), address(b), address(out), dtype, 5)
    expected = [a & b, a | b, a ^ dtype(5), a << dtype(3), a >> dtype(5), np.minimum(a, b), np.maximum(a, dtype(1))]
    np.testing.assert_array_equal(out, np.stack(expected))


@njit
def comparisons(x: Any, y: Any, out: Any, dtype: Any) -> None:
    a, b = simd.load(x, dtype, LANES), simd.load(y, dtype, LANES)
    one, zero = simd.splat(np.int32(1), LANES), simd.zeros(np.int32, LANES)
    size = 4 * LANES
    simd.store(simd.select(a < b, one, zero), out)
    simd.store(simd.select(a <= b, one, zero), out + size)
    simd.store(simd.select(a > b, one, zero), out + 2 * size)
    simd.store(simd.select(a >= b, one, zero), out + 3 * size)
    simd.store(simd.select(a == b, one, 0), out + 4 * size)
    simd.store(simd.select(a != b, 1, zero), out + 5 * size)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_comparisons(dtype: Any) -> None:
    a, b = values(dtype, 5), values(dtype, 6)
    b[::3] = a[::3]
    out = np.zeros((6, LANES), np.int32)
    comparisons(address(a), address(b), address(out), dtype)
    functions = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
    np.testing.assert_array_equal(out, np.stack([function(a, b) for function in functions]))


@njit
def conversions(x: Any, out: Any, source: Any, target: Any) -> None:
    simd.store(simd.convert(simd.load(x, source, LANES), target), out)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.uint8, np.int32), (np.int8, np.int32), (np.int32, np.int16), (np.int32, np.int32), (np.int64, np.int32), (np.uint32, np.int64),
        (np.int32, np.float32), (np.uint32, np.float32), (np.int32, np.float64), (np.float32, np.float64), (np.float64, np.float32),
    ],
)  # fmt: skip
def test_conversions(source: Any, target: Any) -> None:
    x = values(source, 7)
    out = np.zeros(LANES, target)
    conversions(address(x), address(out), source, target)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, x.astype(target))


@njit
def to_integers(x: Any, out: Any, wide: Any, y: Any) -> None:
    simd.store(simd.integer_part(simd.load(x, np.float32, LANES)), out)
    simd.store(simd.convert(simd.load(x, np.float32, LANES), np.int32), out + 4 * LANES)
    simd.store(simd.integer_part(simd.load(y, np.float64, LANES)), wide)
    simd.store(simd.truncated(simd.load(y, np.float64, LANES)), wide + 8 * LANES)


def test_truncation() -> None:
    x = np.array(
        [0.0, -0.0, 0.99, -0.99, 1.5, -1.5, 2.0**30, -(2.0**30), 2147483520.0, -2147483648.0, 5e-39, 7.9, 8.0, -8.1, 3.0, -3.0], np.float32
    )
    y = np.concatenate([x[:12].astype(np.float64), [np.inf, -np.inf, 1e300, 0.5 - 2**-54]])
    out, wide = np.zeros((2, LANES), np.int32), np.zeros((2, LANES))
    to_integers(address(x), address(out), address(wide), address(y))
    np.testing.assert_array_equal(out, np.stack([x.astype(np.int32)] * 2))
    np.testing.assert_array_equal(bits(wide), bits(np.stack([np.trunc(y)] * 2)))


@njit
def lanes(x: Any, out: Any, dtype: Any) -> Any:
    a = simd.load(x, dtype, 8)
    size = simd.itemsize_of(dtype)
    b = simd.load(x + 8 * size, dtype, 8)
    both = simd.interleave(a, b)
    simd.store(both, out)
    simd.store(simd.even_lanes(both), out + 16 * size)
    simd.store(simd.odd_lanes(both), out + 24 * size)
    simd.store(simd.load_pair(x + size, dtype, 8), out + 32 * size)
    simd.store(simd.load_twice(x + size, dtype, 8), out + 40 * size)
    simd.store(simd.insert(a, 3, simd.extract(b, 5)), out + 48 * size)
    return simd.load_scalar(x + 9 * size, dtype)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_lanes_move(dtype: Any) -> None:
    x = np.arange(1, 17).astype(dtype)
    out = np.zeros(56, dtype)
    assert lanes(address(x), address(out), dtype) == 10
    mixed = np.stack([x[:8], x[8:]], -1).ravel()
    inserted = x[:8].copy()
    inserted[3] = x[13]
    expected = [mixed, mixed[::2], mixed[1::2], np.tile(x[1:3], 4), np.repeat(x[1:5], 2), inserted]
    np.testing.assert_array_equal(out, np.concatenate(expected))


@njit
def reductions(x: Any, dtype: Any) -> Any:
    a = simd.load(x, dtype, LANES)
    return simd.lowest_lane(a), simd.highest_lane(a), simd.any_lane(a == 77), simd.any_lane(a == a)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_reductions(dtype: Any) -> None:
    x = values(dtype, 8)
    x[x == 77] = 1
    assert reductions(address(x), dtype) == (x.min(), x.max(), False, True)


@njit
def reinterpreted(x: Any, out: Any) -> Any:
    simd.store(simd.bitcast(simd.load(x, np.float64, 4), np.int32), out)
    return simd.bitcast(simd.load_scalar(x, np.float64), np.uint64)


def test_bitcast() -> None:
    x = np.array([1.0, -2.5, np.inf, 5e-324])
    out = np.zeros(8, np.int32)
    assert reinterpreted(address(x), address(out)) == x.view(np.uint64)[0]
    np.testing.assert_array_equal(out, x.view(np.int32))


@njit
def powers(x: Any, single: Any, double: Any) -> None:
    exponent = simd.load(x, np.int32, 8)
    simd.store(simd.power_of_two(exponent, np.float32), single)
    simd.store(simd.power_of_two(exponent * 8, np.float64), double)


def test_power_of_two() -> None:
    x = np.array([-126, -1, 0, 1, 24, 100, 126, 127], np.int32)
    single, double = np.zeros(8, np.float32), np.zeros(8)
    powers(address(x), address(single), address(double))
    np.testing.assert_array_equal(single, np.ldexp(np.float32(1), x))
    np.testing.assert_array_equal(double, np.ldexp(1.0, 8 * x))


@njit
def multiply_add(x: Any, out: Any, a: float, b: float, c: float) -> float:
    v = simd.load(x, np.float64, 8)
    simd.store(simd.fma(v, v, -1.0), out)
    return simd.fma(a, b, c)


def test_fma_rounds_once() -> None:
    x = 1 + np.arange(8) * 2.0**-30
    out = np.zeros(8)
    assert multiply_add(address(x), address(out), 1 + 2.0**-30, 1 - 2.0**-30, -1.0) == -(2.0**-60)
    np.testing.assert_array_equal(out, np.arange(8) * 2.0**-29 + np.arange(8) ** 2 * 2.0**-60)


@njit
def picked(start: Any, stride: int, itemsize: int, count: int) -> Any:
    if itemsize == 2:
        total = np.int64(simd.load_scalar(start, np.uint16))
        total += np.int64(simd.load_scalar(start + (stride if count > 1 else 0), np.uint16))
        return total + np.int64(simd.load_scalar(start + (2 * stride if count > 2 else 0), np.uint16))
    total = np.int64(simd.load_scalar(start, np.uint8))
    total += np.int64(simd.load_scalar(start + (stride if count > 1 else 0), np.uint8))
    return total + np.int64(simd.load_scalar(start + (2 * stride if count > 2 else 0), np.uint8))


@njit
def two_picked(start: Any, stride: int, itemsize: int, count: int) -> Any:
    return picked(start, stride, itemsize, min(count, 2))


@pytest.mark.parametrize("itemsize", [1, 2])
def test_an_offset_that_becomes_zero_keeps_the_access(itemsize: int) -> None:
    x = np.arange(5, 15)
    # compiled first, so that it is inlined in the form in which it went to the code generator
    assert picked(address(x), 8, itemsize, 3) == 18
    assert two_picked(address(x), 8, itemsize, 9) == 16


@njit
def copied(source: Any, target: Any) -> None:
    simd.store(simd.load(source, np.float32, LANES), target)


@pytest.mark.parametrize("offset", [1, 4, 7])
def test_addresses_need_no_alignment(offset: int) -> None:
    memory = np.arange(200, dtype=np.uint8)
    copied(address(memory) + offset, address(memory) + 101 + offset)
    np.testing.assert_array_equal(memory[101 + offset : 165 + offset], np.arange(offset, 64 + offset))
    assert memory[100 + offset] == 100 + offset
    assert memory[165 + offset] == 165 + offset
