"""Products of JAX against fastmma.gemm: eager, under jit, grad, vmap and scan, and in Pallas."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from fastmma.cublas import Choice  # noqa: E402
from reference.fake_cublaslt import FakeCublasLt, FakeDriver  # noqa: E402

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.jax.products import tf32  # noqa: E402
from fastmma.products.cublas.rows import Product  # noqa: E402
from fastmma.testing import adversarial, assert_bits_equal  # noqa: E402
from fastmma.verification.cublas_record import record_cublas  # noqa: E402
from fastmma.verification.cublas_requests import Request  # noqa: E402
from fastmma.verification.cublaslt import CublasLt  # noqa: E402
from fastmma.verification.cuda_driver import Driver  # noqa: E402

lax, Preset = jax.lax, jax.lax.DotAlgorithmPreset
PLAIN = (((1,), (0,)), ((), ()))
E4M3, E5M2, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16


def operands(dtype, other=None, m=24, n=16, k=320):
    return jnp.asarray(adversarial((m, k), dtype)), jnp.asarray(adversarial((k, n), other or dtype, seed=1))


TF32 = "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"
# dtypes of lhs and rhs, precision, preferred type, target, and what fastmma.gemm takes
CALLS = {
    "bf16": ("bf16", "bf16", None, None, "H100", {"out_dtype": BF16}),
    "bf16 to f32": ("bf16", "bf16", "highest", np.float32, "A100", {"out_dtype": np.float32}),
    "f16": ("f16", "f16", None, None, "V100", {"out_dtype": np.float16}),
    "f16 sums": ("f16", "f16", Preset.F16_F16_F16, np.float16, "H100", {"accumulator": "f16"}),
    "tf32": ("tf32", "tf32", Preset.TF32_TF32_F32, np.float32, "H100", {"instruction": TF32}),
    "tf32 by default": ("tf32", "tf32", None, None, "A100", {"instruction": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"}),
    "f32 as bf16": ("tf32", "tf32", Preset.BF16_BF16_F32, np.float32, "H100", {"cast": BF16}),
    "f32 as f16": ("tf32", "tf32", Preset.F16_F16_F32, np.float32, "H100", {"cast": np.float16}),
    "fp8": ("e4m3", "e5m2", None, np.float32, "H100", {}),
    "fp8 promoted": ("e4m3", "e4m3", Preset.ANY_F8_ANY_F8_F32, np.float32, "H100", {"promote_every": 128}),
    "fp8 fast": ("e4m3", "e4m3", Preset.ANY_F8_ANY_F8_F32_FAST_ACCUM, BF16, "H100", {"out_dtype": BF16}),
    "fp8 on Blackwell": ("e5m2", "e4m3", Preset.ANY_F8_ANY_F8_F32, np.float32, "RTX 5090", {}),
    "f32 and bf16": ("tf32", "bf16", None, np.float32, "H100", {"cast": np.float32, "instruction": TF32}),
    "bf16 and f32 to bf16": ("bf16", "tf32", None, BF16, "H100", {"cast": BF16, "out_dtype": BF16}),
    "f16 and bf16": ("f16", "bf16", None, np.float32, "H100", {"cast": np.float32, "instruction": TF32}),
    "int8": ("s8", "s8", None, np.int32, "H100", {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_dot_general_is_gemm(name: str) -> None:
    first, second, precision, preferred, target, options = CALLS[name]
    a, b = operands(first, second)
    cast = options.pop("cast", None) if "cast" in (options := dict(options)) else None
    x, y = (np.asarray(each) if cast is None else np.asarray(each).astype(cast) for each in (a, b))
    expected = fastmma.gemm(x, y, target=target, **options)
    with fastmma.jax.emulate(target, f32="tf32", other="error") as report:
        d = lax.dot_general(a, b, PLAIN, precision=precision, preferred_element_type=preferred)
        jitted = jax.jit(partial(lax.dot_general, dimension_numbers=PLAIN, precision=precision, preferred_element_type=preferred))(a, b)
        assert_bits_equal(d, expected)
        assert_bits_equal(jitted, expected)
    assert (report.emulated, report.assumed) == ((2, 0) if name == "int8" else (0, 2))
    report.assert_all_emulated(assumed=name != "int8")
    injected = fastmma.jax.dot_general(a, b, PLAIN, precision, preferred, target=target, f32="tf32")
    assert_bits_equal(injected, expected)


def test_gradients_of_bf16_with_sums_in_f32() -> None:
    """The cotangent is float32, the other operand bfloat16: JAX converts both to float32, which the GPU multiplies as tf32."""
    x, w = operands("bf16")
    g = jnp.asarray(adversarial((24, 16), "f32", seed=2))
    with fastmma.jax.emulate("H100", other="error"):
        _, pull = jax.vjp(lambda x, w: lax.dot_general(x, w, PLAIN, preferred_element_type=np.float32), x, w)
        found = pull(g)
    a, b, c = (np.asarray(each).astype(np.float32) for each in (x, w, g))
    c = tf32(c)
    for one, (left, right) in zip(found, ((c, b.T), (a.T, c)), strict=True):
        assert_bits_equal(one, fastmma.gemm(left, right, target="H100", instruction=TF32).astype(BF16))


@pytest.mark.parametrize(
    "dimensions",
    [(((0, 3), (2, 1)), ((2,), (0,))), (((3,), (1,)), ((2, 0), (0, 2))), (((), ()), ((0, 2), (2, 0))), (((0, 3), (2, 1)), ((), ()))],
)
def test_dimensions(dimensions) -> None:
    """Batches and several contracted dimensions in any order, against einsum's letters."""
    a, b = adversarial((4, 5, 3, 6), "f16"), adversarial((3, 6, 4, 7), "f16", seed=1)
    (lhs_k, rhs_k), (lhs_batch, rhs_batch) = dimensions
    letters = [list("abcd"), list("efgh")]
    for left, right in (*zip(lhs_k, rhs_k, strict=True), *zip(lhs_batch, rhs_batch, strict=True)):
        letters[1][right] = letters[0][left]
    batch, k = [letters[0][i] for i in lhs_batch], [letters[0][i] for i in lhs_k]
    rows, columns = ([each for each in side if each not in (*batch, *k)] for side in letters)
    x = np.einsum(f"{''.join(letters[0])}->{''.join([*batch, *rows, *k])}", a)
    y = np.einsum(f"{''.join(letters[1])}->{''.join([*batch, *k, *columns])}", b)
    extents = dict(zip([*letters[0], *letters[1]], (*a.shape, *b.shape), strict=True))
    size = lambda names: int(np.prod([extents[name] for name in names], dtype=int))  # noqa: E731
    lead = [extents[name] for name in batch]
    d = fastmma.matmul(x.reshape(*lead, size(rows), size(k)), y.reshape(*lead, size(k), size(columns)), target="A100", out_dtype="f16")
    expected = d.reshape([extents[name] for name in (*batch, *rows, *columns)])
    with fastmma.jax.emulate("A100", other="error"):
        assert_bits_equal(lax.dot_general(a, b, dimensions), expected)
    assert_bits_equal(fastmma.jax.dot_general(a, b, dimensions, target="A100"), expected)


def test_plans() -> None:
    a, b = operands("bf16")
    key, own = (24, 16, 320), fastmma.gemm_plan(np.asarray(a), np.asarray(b), target="A100", split_k=5)
    with fastmma.jax.emulate("H100", plans={key: 3}):
        d = lax.dot_general(a, b, PLAIN, preferred_element_type=np.float32)
        assert_bits_equal(d, fastmma.gemm(np.asarray(a), np.asarray(b), target="H100", split_k=3))
    d = fastmma.jax.dot_general(a, b, PLAIN, None, np.float32, target="H100", plans={key: own})
    assert_bits_equal(d, fastmma.gemm(np.asarray(a), np.asarray(b), plan=own))


def step(dot, x, weights):
    """A training step of two layers: the loss, and gradients of the weights."""

    def loss(weights):
        hidden = jnp.maximum(dot(x, weights[0]), 0)
        return (dot(hidden, weights[1]).astype(np.float32) ** 2).sum()

    return jax.value_and_grad(loss)(weights)


def test_training_step_of_either_kind() -> None:
    """The injected primitive has the gradients of dot_general under emulation, and those are products of gemm."""
    x = jnp.asarray(adversarial((16, 32), "bf16"))
    weights = [jnp.asarray(adversarial(shape, "bf16", seed=seed)) for seed, shape in enumerate([(32, 64), (64, 8)], 1)]
    injected = partial(fastmma.jax.dot_general, dimension_numbers=PLAIN, target="H100")
    found = jax.jit(partial(step, injected))(x, weights)
    with fastmma.jax.emulate("H100", other="error") as report:
        expected = jax.jit(partial(step, jnp.matmul))(x, weights)
        jax.block_until_ready(expected)
    assert report.assumed == 5
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_bits_equal(one, other)
    product = partial(fastmma.gemm, target="H100", out_dtype="bf16")
    hidden = np.maximum(product(np.asarray(x), np.asarray(weights[0])), 0)
    y = product(hidden, np.asarray(weights[1]))
    dy = (2 * y.astype(np.float32)).astype(BF16)
    assert_bits_equal(found[1][1], product(hidden.T, dy))
    dh = np.where(hidden > 0, product(dy, np.asarray(weights[1]).T), 0).astype(BF16)
    assert_bits_equal(found[1][0], product(np.asarray(x).T, dh))


@pytest.mark.parametrize("axes", [(0, 0), (1, None), (None, 2), (2, 1), (None, 0)])
def test_vmap_of_either_kind(axes) -> None:
    a, b = (adversarial(shape, "f16", seed=seed) for seed, shape in enumerate([(3, 8, 40), (3, 40, 8)]))
    a = a[0] if axes[0] is None else np.moveaxis(a, 0, axes[0])
    b = b[0] if axes[1] is None else np.moveaxis(b, 0, axes[1])
    both = [np.moveaxis(x, axis, 0) if axis is not None else np.stack([x] * 3) for x, axis in zip((a, b), axes, strict=True)]
    expected = fastmma.matmul(*both, target="A100", out_dtype="f16")
    injected = partial(fastmma.jax.dot_general, dimension_numbers=PLAIN, target="A100")
    assert_bits_equal(jax.jit(jax.vmap(injected, in_axes=axes))(a, b), expected)
    with fastmma.jax.emulate("A100", other="error"):
        assert_bits_equal(jax.vmap(jnp.matmul, in_axes=axes)(a, b), expected)


def test_vmap_of_a_gradient_with_batches() -> None:
    """Second derivatives and batches of batches: the primitive's rules against JAX's own of dot_general."""
    x, y = (adversarial(shape, "bf16", seed=seed) for seed, shape in enumerate([(2, 3, 4, 32), (3, 2, 32, 4)]))
    dimensions = (((2,), (1,)), ((0,), (0,)))

    def gradients(dot, x, y):
        scalar = lambda x, y: dot(x, y, dimensions).astype(np.float32).sum()  # noqa: E731
        return jax.vmap(jax.grad(scalar, (0, 1)), in_axes=(0, 1))(x, y), jax.jvp(
            partial(dot, dimension_numbers=dimensions), (x[0], y[:, 0]), (x[1], y[:, 1])
        )

    found = gradients(partial(fastmma.jax.dot_general, target="A100"), x, y)
    with fastmma.jax.emulate("A100", other="error"):
        expected = gradients(lax.dot_general, x, y)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_bits_equal(one, other)


def test_scan() -> None:
    w, x = adversarial((32, 32), "bf16"), adversarial((8, 32), "bf16", seed=1) / 64
    expected = x
    for _ in range(4):
        expected = fastmma.gemm(expected, w, target="H100", out_dtype="bf16") / BF16(64)
    scaled = lambda x, _: ((x @ w) / jnp.bfloat16(64), None)  # noqa: E731
    with fastmma.jax.emulate("H100", other="error") as report:
        found, _ = jax.jit(lambda x: lax.scan(scaled, x, None, length=4))(x)
        assert_bits_equal(found, expected)
    assert report.assumed == 4


def test_pallas_in_its_interpreter() -> None:
    pallas = pytest.importorskip("jax.experimental.pallas")
    a, b = operands("f16", m=32, n=32, k=64)

    def kernel(x, y, out):
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=np.float32)

    rows, columns = pallas.BlockSpec((16, 64), lambda i, _: (i, 0)), pallas.BlockSpec((64, 16), lambda _, j: (0, j))
    call = pallas.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((32, 32), np.float32),
        grid=(2, 2),
        in_specs=[rows, columns],
        out_specs=pallas.BlockSpec((16, 16), lambda i, j: (i, j)),
        interpret=True,
    )
    with fastmma.jax.emulate("A100") as report:
        assert_bits_equal(call(a, b), fastmma.gemm(np.asarray(a), np.asarray(b), target="A100"))
    assert report.assumed == 4


def test_a_file_of_plans_has_orders_that_are_assumed(tmp_path: Path) -> None:
    def chooses(_: Product) -> Choice:
        return Choice(66, tile=10, split_k=3, reduction=2, stages=35, cluster=4)

    requests = [Request("bf16", "nn", 6, 8, 512), Request("bf16", "nt", 6, 8, 512), Request("bf16", "nn", 6, 8, 512, stack=2)]
    asked = CublasLt(FakeCublasLt(chooses), Driver(FakeDriver("NVIDIA H20", (9, 0))))
    assert record_cublas(tmp_path / "book.npz", requests, asked).confirmed == 3
    rng = np.random.default_rng(4)
    a, b = (jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) for shape in ((6, 512), (512, 8)))
    stacked = (((2,), (1,)), ((0,), (0,)))
    with fastmma.jax.emulate("H20", plans=tmp_path / "book.npz") as report:
        found = jax.block_until_ready([a @ b, jax.lax.dot_general(a, b.T, (((1,), (1,)), ((), ()))), a[:5] @ b])
        both = jax.block_until_ready(jax.lax.dot_general(jnp.stack([a, a]), jnp.stack([b, b]), stacked))
    plan = fastmma.cublas.plan(np.asarray(a), np.asarray(b), target="H20", plans=tmp_path / "book.npz", out_dtype="bf16")
    wanted = fastmma.gemm(np.asarray(a), np.asarray(b), plan=plan)
    assert plan.split_k == 3
    for d in (*found[:2], *both):
        assert (np.asarray(d) == wanted).all()
    assert str(report).count("as cuBLAS, where XLA calls it and takes its first choice; recorded: ") == 3
    assert not report.emulated
    with (
        pytest.raises(fastmma.OperandError, match="has plans of H20, not of H100"),
        fastmma.jax.emulate("H100", plans=str(tmp_path / "book.npz")),
    ):
        pass
