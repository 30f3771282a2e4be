"""Conversions, extrema, remainders and comparisons have the bits of the PTX that Triton's compiler makes of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.scripts import loaded

import fastmma

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from fastmma.triton import interpret  # noqa: E402


@triton.jit
def cast(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


def converted(values: Any, dtype: Any, gpu: str = "H100") -> tuple[Any, Any]:
    y = torch.empty(len(values), dtype=dtype)
    with interpret(gpu, lowering="rules") as report:
        cast[(1,)](values, y, len(values))
    report.assert_all_emulated()
    return y, report


NUMBERS = [-1.5, 300.7, 7e4, np.nan, -7e4, 3e9, -3e9, np.inf, -np.inf, 1e19, 2e19, -1e19, 0.9, -0.9, 127.9, 255.5]


@pytest.mark.parametrize("source", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_saturate(source: str, target: str) -> None:
    values = torch.tensor(NUMBERS, dtype=torch.float64).to(getattr(torch, source))
    result, report = converted(values, getattr(torch, target))
    bits = int(target.lstrip("uint"))
    width = max(16, bits)  # what cvt.rzi has
    low, high = (0, 2**width - 1) if target[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    expected = []
    for value in values.to(torch.float64).tolist():
        if np.isnan(value):
            whole = 1 << (width - 1) if source == "float64" or width == 64 else 0
        else:
            whole = high if value > high else low if value < low else int(value)
        whole %= 1 << bits
        expected.append(whole - (1 << bits) if target[0] == "i" and whole >> (bits - 1) else whole)
    assert result.tolist() == expected
    assert sum(count for (operation, _), count in report.emulated.items() if operation == "cast") >= 1


def test_integers_are_rounded_once() -> None:
    values = [2**60 + 2**52 + 1, 2**60 + 2**52, -(2**60) - 2**52 - 1, 2**24 + 2**16 + 1, 2049, 2051, 65520, 3]
    whole = torch.tensor(values)
    for dtype, kind in ((torch.bfloat16, ml_dtypes.bfloat16), (torch.float16, np.float16), (torch.float32, np.float32)):
        exact = [
            fastmma.encode(np.longdouble(value), {2: "bf16"}[2] if kind is ml_dtypes.bfloat16 else np.dtype(kind).name) for value in values
        ]
        result, report = converted(whole, dtype)
        codes = result.view(torch.int16 if dtype.itemsize == 2 else torch.int32).numpy().view(f"u{dtype.itemsize}")
        assert codes.tolist() == [int(code) for code in exact]
        assert ("si_to_fp", "IEEE 754") in report.neutral
    # before Hopper, by way of f32
    a100, _ = converted(torch.tensor([2**24 + 2**16 + 1], dtype=torch.int32), torch.bfloat16, "A100")
    assert a100.item() == 2**24


@triton.jit
def two(x, y, z, OPERATION: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    if OPERATION == "maximum":
        r = tl.maximum(a, b)
    elif OPERATION == "minimum":
        r = tl.minimum(a, b)
    elif OPERATION == "maximum NaN":
        r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OPERATION == "minimum NaN":
        r = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OPERATION == "clamp":
        r = tl.clamp(a, b, b)
    elif OPERATION == "%":
        r = a % b
    elif OPERATION == "fma":
        r = tl.fma(a, b, a)
    elif OPERATION == "+":
        r = a + b
    elif OPERATION == "floor":
        r = tl.floor(a)
    elif OPERATION == "ceil":
        r = tl.ceil(a)
    elif OPERATION == "max":
        r = tl.max(a, 0) + tl.zeros((SIZE,), a.dtype) * b
    elif OPERATION == "div_rn":
        r = tl.div_rn(a, b)
    else:
        r = tl.sqrt_rn(a)
    tl.store(z + i, r)


def calculated(operation: str, x: Any, y: Any) -> tuple[Any, Any]:
    z = torch.empty_like(x)
    with interpret("H100", lowering="rules") as report:
        two[(1,)](x, y, z, operation, len(x))
    report.assert_all_emulated()
    return z, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_zeros_have_signs_whatever_the_length(dtype: Any, size: int) -> None:
    x = torch.tensor([0.0, -0.0] * size)[:size].to(dtype)
    for first, second in ((x, -x), (-x, x)):
        for name, negative in (("maximum", False), ("minimum", True), ("maximum NaN", False), ("minimum NaN", True)):
            assert torch.signbit(calculated(name, first, second)[0]).tolist() == [negative] * size
    assert torch.signbit(calculated("clamp", -x, x)[0]).tolist() == torch.signbit(x).tolist()


def test_nan_of_extrema() -> None:
    nan = float("nan")
    x, y = torch.tensor([nan, 1.0, nan, 2.0]), torch.tensor([1.0, nan, nan, 3.0])
    assert calculated("maximum", x, y)[0].nan_to_num(7).tolist() == [1, 1, 7, 3]
    assert calculated("minimum", x, y)[0].nan_to_num(7).tolist() == [1, 1, 7, 2]
    assert calculated("minimum NaN", x, y)[0].nan_to_num(7).tolist() == [7, 7, 7, 2]
    assert calculated("clamp", x, y)[0].nan_to_num(7).tolist() == [1, 1, 7, 3]


@triton.jit
def largest(x, value, place, TIES: tl.constexpr, SIZE: tl.constexpr):
    a = tl.load(x + tl.arange(0, SIZE))
    tl.store(value, tl.max(a, 0))
    v, p = tl.max(a, 0, return_indices=True, return_indices_tie_break_left=TIES)
    tl.store(value + 1, v)
    tl.store(place, p)


def test_extrema_of_many() -> None:
    for size in (2, 16, 256):
        x = torch.full((size,), -0.0)
        x[size // 2] = 0.0
        value, place = torch.empty(2), torch.empty(1, dtype=torch.int32)
        with interpret("H100", lowering="rules") as report:
            largest[(1,)](x, value, place, True, size)
        assert torch.signbit(value).tolist() == [False, True]  # the first of equal numbers is found
        assert place.item() == 0
        report.assert_all_emulated()
        with interpret("H100", lowering="rules") as report:
            largest[(1,)](x, value, place, False, size)
        assert [text.partition(":")[0] for _, text in report.passed] == ["tie_break_left=False"]
    x[3] = float("nan")
    with interpret("H100", lowering="rules") as report:
        largest[(1,)](x, value, place, True, size)
    assert [text for _, text in report.passed if "NaN" in text]
    assert value[0].item() == 0


def test_nan_is_canonical() -> None:
    for dtype, code in ((torch.float32, 0x7FFFFFFF), (torch.float16, 0x7FFF), (torch.bfloat16, 0x7FFF)):
        x = torch.tensor([np.inf, np.nan], dtype=dtype)
        for name in ("+", "fma", "maximum NaN"):
            z, _ = calculated(name, x, torch.tensor([-np.inf, 1], dtype=dtype) if name != "maximum NaN" else x[[1, 0]])
            assert z.view(torch.int16 if dtype.itemsize == 2 else torch.int32).tolist() == [code, code]


def test_remainders_and_whole_numbers() -> None:
    rng = np.random.default_rng(8)
    x = torch.from_numpy(rng.standard_normal(512).astype("f4") * 100)
    y = torch.from_numpy(rng.standard_normal(512).astype("f4"))
    z, report = calculated("%", x, y)
    quotient = np.trunc(x.numpy() / y.numpy())
    expected = (x.numpy().astype("f8") - quotient.astype("f8") * y.numpy()).astype("f4")  # exact in f64, then rounded
    np.testing.assert_array_equal(z.numpy(), expected)
    assert ("%", "div.rn, cvt.rzi and fma.rn") in report.emulated
    z, _ = calculated("%", torch.tensor([5.5, -5.5]), torch.tensor([np.inf, -np.inf]))
    assert z.tolist() == [5.5, -5.5]
    small = torch.tensor([-1e-40, 1e-40, -1e-30, 1e-30])
    for name, expected in (("floor", [0, 0, -1, 0]), ("ceil", [0, 0, 0, 1])):
        z, report = calculated(name, small, small)
        assert z.tolist() == expected  # what is not normal is flushed first
        assert torch.signbit(z).tolist()[:2] == [True, False]


def test_division_and_roots_that_ieee_754_fixes_are_neutral() -> None:
    rng = np.random.default_rng(9)
    x, y = (torch.from_numpy(np.abs(rng.standard_normal(256).astype("f4")) + 1e-3) for _ in range(2))
    for name, expected in (("div_rn", x.numpy() / y.numpy()), ("sqrt_rn", np.sqrt(x.numpy()))):
        z, report = calculated(name, x, y)
        np.testing.assert_array_equal(z.numpy(), expected)
        assert not report.emulated
        assert "IEEE 754" in {why for _, why in report.neutral}


def test_16_bit_fma_rounds_once() -> None:
    rng = np.random.default_rng(10)
    codes = rng.integers(0, 0x7BFF, (2, 4096)).astype("u2") ^ (rng.integers(0, 2, (2, 4096)).astype("u2") << 15)
    x, y = codes.view("f2")
    z, _ = calculated("fma", torch.from_numpy(x.copy()), torch.from_numpy(y.copy()))
    exact = x.astype(np.longdouble) * y + x  # 64 bits: enough for all but very far addends
    np.testing.assert_array_equal(z.numpy().view("u2"), fastmma.encode(exact, "f16"))


def test_arithmetic_of_8_bit_floats_is_refused() -> None:
    x = torch.ones(16).to(torch.float8_e4m3fn)
    for name in ("+", "maximum", "fma"):
        with pytest.raises(fastmma.NotEmulatedError, match="takes no 8-bit floats"):
            calculated(name, x, x)


def test_an_h200_has_the_same_bits() -> None:
    """Recorded with Triton 3.6, whose negation is a subtraction from zero; since then it is a sign."""
    path = Path(__file__).parent / "elementwise_kernels.py"
    module = loaded(path)
    recorded = json.loads(path.with_name("elementwise_h200.json").read_text())
    found: dict[str, str] = {}

    def keep(name: str, call: Any) -> None:
        found[name] = hashlib.sha256(module.as_bytes(call()).tobytes()).hexdigest()[:16]

    with interpret("H200", lowering="rules") as report:
        module.run("cpu", keep)
    assert not report.passed
    assert not report.unseen
    different = [name for name, digest in recorded.items() if found.pop(name) != digest]
    assert different == ["neg f32", "neg f16", "neg bf16", "neg f64"]
    assert len(recorded) == 118
    assert not found
