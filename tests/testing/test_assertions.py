"""Assertions about bits: what they let pass, and what they say."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma.testing import adversarial, assert_bits_equal, assert_product


def failure(*args: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_bits_equal(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e3m4, np.float64, np.int64, np.uint8, bool]
)
def test_every_bit_counts(dtype: type) -> None:
    x = np.array([[0, 1], [2, 3]]).astype(dtype)
    assert_bits_equal(x, x.copy())
    assert_bits_equal(x.T, np.ascontiguousarray(x.T))
    y = x.copy()
    y.view(np.uint8)[0, 0] ^= 1
    assert failure(y, x).startswith(f"1 of 4 elements differ (25 %): 2 x 2, {np.dtype(dtype)}")


def test_nans_and_zeros() -> None:
    nan = np.array([0x7E00, 0x7E01, 0xFE00], np.uint16).view(np.float16)
    assert_bits_equal(nan, nan[::-1])
    assert "2 of 3" in failure(nan, nan[::-1], nan="bits")
    zeros = np.array([0.0, -0.0], np.float32)
    assert "sign of zero   2" in failure(zeros, -zeros)
    assert_bits_equal(zeros, -zeros, zero="any")
    assert "NaN            1" in failure(nan[:1], np.ones(1, np.float16), zero="any")
    e4m3 = np.array([0x7F, 0xFF, 0x7E], np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert_bits_equal(e4m3, e4m3[[1, 0, 2]])


def test_shapes_and_dtypes() -> None:
    x = np.zeros((2, 3), np.float32)
    assert failure(x, x.T) == "shapes differ: actual is (2, 3), expected (3, 2)"
    assert failure(x, x.astype(np.float16)) == "dtypes differ: actual is float32, expected float16"
    assert_bits_equal(np.zeros((0, 3)), np.zeros((0, 3)))


def test_numbers_of_the_summary() -> None:
    y = np.array([1, -2, 4, 0.5], np.float32)
    x = np.nextafter(y, np.float32(0))
    x[3] = y[3]
    lines = failure(x, y, show=1).splitlines()
    assert lines[0].startswith("3 of 4 elements differ (75 %)")
    assert lines[1:3] == ["  ulps           median 1, largest 1", "  closer to zero actual in 100 %"]
    assert lines[3].startswith("  [0]  actual 0x3f7fffff = ")
    assert len(lines) == 4


def test_message_names_the_plan_of_a_forgotten_promotion() -> None:
    a, b = (adversarial(shape, "e4m3", seed=seed) for seed, shape in enumerate([(24, 512), (512, 40)]))
    d = fastmma.gemm(a, b, target="H100")
    assert_product(d, a, b, target="H100")
    with pytest.raises(AssertionError) as caught:
        assert_product(d, a, b, target="H100", promote_every=128)
    text = str(caught.value)
    opcode = "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 on sm_90a"
    assert f"\n  actual         {opcode}" in text
    assert f"\n  expected       {opcode}, promote_every=128\n" in text
    assert "\nexpected:\n  e4m3 x e4m3 on sm_90a\n" in text
    i, j = np.argwhere(d != fastmma.gemm(a, b, target="H100", promote_every=128))[0]
    exact = math.fsum((a[i].astype(np.float64) * b[:, j].astype(np.float64)).tolist())
    assert f"sum of products at [{i}, {j}]: {exact}" in text


def test_message_of_both_plans_without_a_target() -> None:
    a, b = (adversarial(shape, "f16", seed=seed) for seed, shape in enumerate([(16, 256), (256, 16)]))
    x, y = (fastmma.gemm(a, b, target=target) for target in ("A100", "H100"))
    text = failure(x, y, a=a, b=b)
    assert "\n  actual         mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 on sm_80" in text
    assert "\n  expected       wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 on sm_90a" in text
    noise = x + np.float32(0.125) * np.arange(16, dtype=np.float32)
    assert "of the plans tried none has these bits" in failure(noise, y, a=a, b=b, plan=fastmma.gemm_plan(a, b, target="H100"))


def test_a_batch_with_an_epilogue() -> None:
    a, b = adversarial((3, 16, 64), "bf16"), adversarial((64, 8), "bf16", seed=1)
    bias = np.linspace(-1, 1, 8, dtype=np.float32)
    d = fastmma.matmul(a, b, target="A100", bias=bias, alpha=0.5, out_dtype="bf16")
    assert_product(d, a, b, target="A100", bias=bias, alpha=0.5)
    d[2, 3, 4] = 77
    with pytest.raises(AssertionError) as caught:
        assert_product(d, a, b, target="A100", bias=bias, alpha=0.5)
    text = str(caught.value)
    assert "[2, 3, 4]  actual 0x429a = 77" in text
    assert "epilogue=('alpha+bias', 'round')" in text


def test_scaled_products() -> None:
    rng = np.random.default_rng(0)
    a, b = (fastmma.scaling.quantize(rng.standard_normal((32, 64)).astype(np.float32), "mxfp8") for _ in range(2))
    d = fastmma.scaled_matmul(a, b.T, target="sm_120a", out_dtype="bf16")
    assert_product(d, a, b.T, target="sm_120a")
    with pytest.raises(AssertionError, match=r"(?s)elements differ.*expected:\n  .*sm_90a"):
        assert_product(-d, a, b.T, target="sm_90a")


def test_bad_input() -> None:
    x = np.ones((16, 16), np.float16)
    with pytest.raises(fastmma.OperandError, match="name a target or a plan, and not both"):
        assert_product(x, x, x)
    with pytest.raises(fastmma.OperandError, match="nan must be 'any' or 'bits', not 'none'"):
        assert_bits_equal(x, x, nan="none")  # type: ignore[arg-type]
    with pytest.raises(fastmma.OperandTypeError, match="actual must be an array"):
        assert_bits_equal([None], x)
    with pytest.raises(fastmma.OperandTypeError, match="bits of complex64 are not compared"):
        assert_bits_equal(x.astype(np.complex64), x.astype(np.complex64))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int32", "bool"])
def test_tensors_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([[1.0, 2.0, 0.25], [0.5, 4.0, 8.0]])
    tensor = values.to(getattr(torch, dtype))
    expected = values.numpy().astype(getattr(ml_dtypes, dtype, dtype))
    assert_bits_equal(tensor, expected)
    assert_bits_equal(tensor.T, expected.T)
    expected.view(np.uint8)[1, -1] ^= 1
    assert "1 of 6 elements differ" in failure(tensor, expected)


def test_tensors_with_gradients_and_negated_views() -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([1.0, -2.0], requires_grad=True)
    assert_bits_equal(values, np.array([1, -2], np.float32))
    assert_bits_equal(torch.complex(values, values).conj().imag, np.array([-1, 2], np.float32))


def test_arrays_of_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    assert_bits_equal(jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3), np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16))
