"""Pallas kernels in JAX's plain interpreter: products as Triton compiles them, and what an H200 computed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu, triton  # noqa: E402

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.jax.products import order_of_neighbours  # noqa: E402
from fastmma.testing import adversarial, assert_bits_equal  # noqa: E402
from tests.integrations.jax.triton_kernels import in_a_loop, in_memory, multiply  # noqa: E402

TF32 = "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"
with np.load(Path(__file__).with_name("h200_pallas.npz")) as _book:
    RECORDED = {name: _book[name] for name in _book.files}


@pytest.mark.parametrize("kernel", [in_a_loop, in_memory])
@pytest.mark.parametrize("kind", ["bf16", "f16", "tf32"])
def test_products_go_on_from_the_accumulator(kernel, kind):
    a, b = (jnp.asarray(adversarial(shape, kind, seed=seed)) for seed, shape in enumerate([(32, 96), (96, 32)]))
    with fastmma.jax.emulate("H100", other="error") as report:
        found = jax.block_until_ready(multiply(kernel, a, b, jnp.float32, tile=(16, 16), block=32))
    instruction = TF32 if kind == "tf32" else None
    x, y = (fastmma.jax.products.tf32(np.asarray(each)) if kind == "tf32" else np.asarray(each) for each in (a, b))
    assert_bits_equal(found, fastmma.gemm(x, y, target="H100", instruction=instruction))
    apart = sum(fastmma.gemm(x[:, i : i + 32], y[i : i + 32], target="H100", instruction=instruction) for i in range(0, 96, 32))
    assert (np.asarray(found) != apart).any()
    (line,) = {line for line, _ in report.lines("assumed")}
    assert line.how.endswith("; from the accumulator on; k ascending, as Triton compiles kernels of Pallas")
    assert not [line for line, _ in report.lines("passed") if line.operator == "add"]


def test_sums_of_float16_stay_in_it():
    a, b = (jnp.asarray(adversarial(shape, "f16", seed=seed)) for seed, shape in enumerate([(16, 64), (64, 16)]))

    def kernel(x, y, out):
        out[...] = jnp.dot(x[...], y[...])

    with fastmma.jax.emulate("H100", other="error"):
        found = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((16, 16), jnp.float16), interpret=True)(a, b)
    assert_bits_equal(found, fastmma.gemm(np.asarray(a), np.asarray(b), target="H100", accumulator="f16"))


def test_what_is_no_sum_of_a_product_is_left():
    """A product that is rounded, or that something else takes too, is added after it is complete."""
    a, b = (jnp.asarray(adversarial(shape, "bf16", seed=seed)) for seed, shape in enumerate([(16, 64), (64, 16)]))
    c = jnp.asarray(adversarial((16, 16), "f32", seed=3))

    def rounded(x, y, z, out):
        out[...] = z[...] + jnp.dot(x[...], y[...]).astype(jnp.float32)

    def taken_twice(x, y, z, out):
        d = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
        out[...] = jnp.where(d > 0, z[...] + d, d)

    shape = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    with fastmma.jax.emulate("H100", other="error") as report:
        found = [pl.pallas_call(kernel, out_shape=shape, interpret=True)(a, b, c) for kernel in (rounded, taken_twice)]
    assert "add" in {line.operator for line, _ in report.lines("passed")}
    d = fastmma.gemm(np.asarray(a), np.asarray(b), target="H100")
    assert_bits_equal(found[0], np.asarray(c) + d.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert_bits_equal(found[1], np.where(d > 0, np.asarray(c) + d, d))


def test_what_triton_does_not_multiply_is_refused():
    a, b = jnp.ones((16, 16), jnp.bfloat16), jnp.ones((16, 16), jnp.float32)
    with (
        pytest.raises(fastmma.NotEmulatedError, match="Triton multiplies no bfloat16 with float32"),
        fastmma.jax.emulate("H100", other="error"),
    ):
        multiply(in_memory, a, b, jnp.float32, tile=(16, 16), block=16)
    with fastmma.jax.emulate("H100") as report:
        multiply(in_memory, jnp.ones((16, 16), jnp.float8_e5m2), jnp.ones((16, 16), jnp.float8_e5m2), jnp.float32, tile=(16, 16), block=16)
    assert "k is no multiple of 32" in report.lines("passed")[0][0].how


@pytest.mark.parametrize("options", [None, triton.CompilerParams(num_warps=4)], ids=["without options", "with options"])
def test_kernels_of_which_nobody_says_that_a_cpu_interprets_them(options):
    a, b = (jnp.asarray(adversarial(shape, "bf16", seed=seed)) for seed, shape in enumerate([(2, 16, 64), (2, 64, 16)]))

    def kernel(x, y, out):
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    product = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((16, 16), jnp.float32), compiler_params=options)
    with fastmma.jax.emulate("H100", other="error") as report:
        found = [product(a[0], b[0]), *jax.block_until_ready(jax.jit(jax.vmap(product))(a, b))]
    assert (report.assumed, report.passed, report.unseen) == (3, 0, 0)
    for each, which in zip(found, (0, 0, 1), strict=True):
        assert_bits_equal(each, fastmma.gemm(np.asarray(a[which]), np.asarray(b[which]), target="H100"))
    with pytest.raises(ValueError, match="interpret mode"):
        product(a[0], b[0])


def test_kernels_for_a_tpu_are_refused():
    def copy(x, out):
        out[...] = x[...]

    product = pl.pallas_call(copy, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32), compiler_params=tpu.CompilerParams())
    with pytest.raises(fastmma.NotEmulatedError, match=r"test_jax_kernels.py:\d+: a kernel for a TPU"), fastmma.jax.emulate("H100"):
        product(jnp.ones((8, 128), jnp.float32))


def test_order_of_neighbours() -> None:
    """Float8 in 16 bits: of the four k of a thread, the first two are in one instruction and the other two in the next."""
    assert order_of_neighbours(32, 4, 2)[:16].tolist() == [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29]
    assert sorted(order_of_neighbours(96, 4, 2)) == list(range(96))


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_of_an_h200(name):
    """A row in each tile of kernels that JAX 0.11.2 compiled by Triton, with 1 to 8 warps."""
    kind, tile, block, index = name.split()
    (m, n), width = map(int, tile.split("x")), int(block)
    rng = np.random.default_rng([72, 1000 + int(index)])
    if kind == "int8":
        a, b = (jnp.asarray(rng.integers(-128, 128, shape), jnp.int8) for shape in ((2 * m, 8 * width), (8 * width, 2 * n)))
    else:
        a, b = (draw_widely(rng, shape, kind) for shape in ((2 * m, 8 * width), (8 * width, 2 * n)))
    with fastmma.jax.emulate("H200", other="error") as report:
        found = np.asarray(multiply(in_a_loop, a, b, jnp.int32 if kind == "int8" else jnp.float32, tile=(m, n), block=width))
    report_of_products = {line.status for line, _ in report.lines() if line.operator == "dot_general"}
    assert report_of_products == {"emulated" if kind == "int8" else "assumed"}
    assert_bits_equal(found[[0, m]], RECORDED[name].view(found.dtype))


def draw_widely(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> jax.Array:
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 5, shape))
    return jnp.asarray(x.astype(np.float32)).astype(dtype)
