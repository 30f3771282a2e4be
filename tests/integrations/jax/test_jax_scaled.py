"""Block-scaled products of JAX against fastmma.scaled_matmul."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.testing import assert_bits_equal  # noqa: E402

# scheme, target, dtype of the result
CASES = [
    ("mxfp8_e4m3", "B200", np.float32),
    ("mxfp8_e5m2", "RTX 5090", ml_dtypes.bfloat16),
    ("mxfp4", "RTX 5090", np.float32),
    ("nvfp4", "B200", np.float16),
]


def quantized(scheme: str, shape: tuple[int, ...], seed: int) -> fastmma.ScaledArray:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    found = fastmma.scaling.quantize(values, scheme)
    return found if found.global_scale is None else replace(found, global_scale=np.float32(1))


@pytest.mark.parametrize(("scheme", "target", "out"), CASES)
def test_scaled_matmul(scheme: str, target: str, out: type) -> None:
    a, b = quantized(scheme, (2, 16, 128), 0), quantized(scheme, (2, 24, 128), 1)
    expected = np.stack([fastmma.scaled_matmul(x, y.T, target=target, out_dtype=out) for x, y in zip(a, b, strict=True)])
    operands = a.elements, b.elements, a.scales, b.scales
    assert_bits_equal(jax.jit(partial(fastmma.jax.scaled_matmul, preferred_element_type=out, target=target))(*operands), expected)
    with fastmma.jax.emulate(target) as report:
        assert_bits_equal(jax.nn.scaled_matmul(*map(jnp.asarray, operands), preferred_element_type=out), expected)
    ((line, count),) = report.lines("assumed")
    assert count == 1
    assert "scale" in line.how
    assert "cuDNN's order is not known" in line.how


def test_scaled_dot_general_and_its_gradient() -> None:
    """JAX quantises, and its backward products go through the same primitive."""
    x, w = (
        jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.bfloat16)
        for seed, shape in enumerate([(2, 32, 64), (2, 64, 64)])
    )
    config = [jax.nn.get_scaled_dot_general_config("mxfp8")] * 3
    dimensions = (((2,), (2,)), ((0,), (0,)))

    def loss(x, w):
        return jax.nn.scaled_dot_general(x, w, dimensions, configs=config, preferred_element_type=np.float32).sum()

    with fastmma.jax.emulate("B200", other="error") as report:
        value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(x, w)
        jax.block_until_ready(gradients)
    exact = np.einsum("bmk,bnk->", *(np.asarray(each, np.float64) for each in (x, w)))
    assert abs(float(value) - exact) < 0.2 * abs(exact) + 20
    assert [each.shape for each in gradients] == [x.shape, w.shape]
    assert report.assumed == 3
    assert {line.operator for line, _ in report.lines("assumed")} == {"scaled_matmul"}


def test_what_is_refused() -> None:
    a = quantized("mxfp8_e4m3", (1, 16, 64), 0)
    operands = [jnp.asarray(each) for each in (a.elements, a.elements, a.scales, a.scales)]
    with (
        fastmma.jax.emulate("H100"),
        pytest.raises(fastmma.NotEmulatedError, match="no instruction of sm_90a takes the scales of mxfp8_e4m3"),
    ):
        jax.nn.scaled_matmul(*operands)
    with pytest.raises(fastmma.NotEmulatedError, match="no instruction of sm_90a takes the scales"):
        fastmma.jax.scaled_matmul(*operands, target="H100")
    plan = fastmma.scaled_plan(a[0], a[0].T, target="H100")
    expected = fastmma.scaled_matmul(a[0], a[0].T, plan=plan)
    assert_bits_equal(fastmma.jax.scaled_matmul(*operands, target="H100", plan=plan)[0], expected)
    with pytest.raises(fastmma.NotEmulatedError, match="in blocks of 16 with float8_e8m0fnu is no scheme"):
        fastmma.jax.scaled_matmul(operands[0][..., :32], operands[1][..., :32], *operands[2:], target="B200")
    with pytest.raises(fastmma.OperandError, match=r"shapes must be \(B, M, K\), \(B, N, K\)"):
        fastmma.jax.scaled_matmul(operands[0][0], *operands[1:], target="B200")
