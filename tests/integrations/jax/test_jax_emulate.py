"""The emulation as a context: what it changes and restores, what it passes on, and what it refuses."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.jax.internals import cpu_lowerings, dot_general_p, scaled_matmul_p  # noqa: E402
from fastmma.testing import adversarial, assert_bits_equal  # noqa: E402

PLAIN = (((1,), (0,)), ((), ()))
A, B = adversarial((16, 256), "f16"), adversarial((256, 16), "f16", seed=1)


def rules() -> tuple:
    return cpu_lowerings.get(dot_general_p), cpu_lowerings.get(scaled_matmul_p)


def test_state_is_restored_and_the_innermost_wins() -> None:
    before = rules()
    product = jax.jit(partial(jax.lax.dot_general, dimension_numbers=PLAIN, preferred_element_type=np.float32))
    native = np.asarray(product(A, B))
    expected = {target: fastmma.gemm(A, B, target=target) for target in ("V100", "A100", "H100")}
    assert len({native.tobytes(), *(each.tobytes() for each in expected.values())}) == 4
    with fastmma.jax.emulate("A100") as outer:
        assert_bits_equal(product(A, B), expected["A100"])
        with suppress(ZeroDivisionError), fastmma.jax.emulate("H100") as inner:
            assert_bits_equal(product(A, B), expected["H100"])
            1 / 0  # noqa: B018
        assert_bits_equal(product(A, B), expected["A100"])
        assert (outer.assumed, inner.assumed, outer.emulated, inner.emulated) == (2, 1, 0, 0)
        assert_bits_equal(fastmma.jax.dot_general(A, B, PLAIN, None, np.float32, target="V100"), expected["V100"])
    assert rules() == before
    assert_bits_equal(product(A, B), native)


UNKNOWN = {
    "float32": (np.float32, np.float32, None, "as tf32 only: name f32='tf32' or an algorithm"),
    "highest": (np.float32, np.float32, "highest", "no single product of tensor cores"),
    "x3": (np.float32, np.float32, jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3, "BF16_BF16_F32_X3"),
    "mixed, highest": (ml_dtypes.bfloat16, np.float32, "highest", "no single product of tensor cores"),
    "complex": (np.complex64, np.complex64, None, "complex64"),
    "int32": (np.int32, np.int32, None, "int32 times int32"),
    "int8 in 8 bits": (np.int8, np.int8, None, "a result in int8 is not known"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_passed_on(name: str) -> None:
    first, second, precision, why = UNKNOWN[name]
    x, y = (jnp.asarray(np.arange(12) % 3).reshape(shape).astype(dtype) for shape, dtype in (((3, 4), first), ((4, 3), second)))
    call = partial(jax.lax.dot_general, dimension_numbers=PLAIN, precision=precision)
    native = np.asarray(call(x, y))
    with fastmma.jax.emulate("A100") as report:
        assert np.asarray(call(x, y)).tobytes() == native.tobytes()
        ((line, count),) = report.lines("passed")
        assert why in line.how
        assert count == report.passed == 1
        with pytest.raises(fastmma.NotEmulatedError, match=r"not emulated:\n  passed"):
            report.assert_all_emulated(assumed=True)
    with fastmma.jax.emulate("A100", other="error"), pytest.raises(fastmma.NotEmulatedError, match=why.replace("(", r"\(")):
        call(x, y)
    with fastmma.jax.emulate("A100", other="warn"), pytest.warns(UserWarning, match="XLA computes, not an emulated GPU: dot_general of"):
        call(x, y)
    injected = partial(fastmma.jax.dot_general, dimension_numbers=PLAIN, precision=precision, target="A100")
    with pytest.raises(fastmma.NotEmulatedError):
        injected(x, y)
    with pytest.raises(fastmma.NotEmulatedError):
        jax.jit(injected)(x, y)
    assert np.asarray(jax.jit(partial(injected, other="pass"))(x, y)).tobytes() == native.tobytes()


def test_what_a_target_does_not_have() -> None:
    x = jnp.ones((4, 32), jnp.float8_e4m3fn)
    with (
        fastmma.jax.emulate("A100", other="error"),
        pytest.raises(fastmma.NotEmulatedError, match="float8_e4m3fn times float8_e4m3fn on sm_80"),
    ):
        jnp.dot(x, x.T, preferred_element_type=np.float32)


def test_nothing_ran() -> None:
    with fastmma.jax.emulate("H100") as report, pytest.raises(fastmma.NotEmulatedError, match="nothing was emulated: there was no product"):
        report.assert_all_emulated()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"target": "H1000"}, fastmma.TargetError, "unknown target 'H1000'"),
        ({"f32": "bf16"}, fastmma.OperandError, "f32 must be 'tf32' or None, not 'bf16'"),
        ({"other": "ignore"}, fastmma.OperandError, "other must be one of pass, warn, error, not 'ignore'"),
        ({"plans": {3: 4}}, fastmma.OperandError, "plans must map"),
    ],
)
def test_bad_options(options, error, match) -> None:
    before = rules()
    with pytest.raises(error, match=match), fastmma.jax.emulate(**options):
        pass
    assert rules() == before
    with pytest.raises(error, match=match):
        fastmma.jax.dot_general(A, B, PLAIN, **options)


def test_sharding_is_refused() -> None:
    with pytest.raises(fastmma.OperandError, match="out_sharding must be None"):
        fastmma.jax.dot_general(A, B, PLAIN, out_sharding="x")


def test_products_at_once() -> None:
    """Callbacks that run on XLA's threads at the same time end, also asynchronously."""
    x = jnp.asarray(adversarial((256, 256), "bf16"))
    with fastmma.jax.emulate("H100") as report:
        several = jax.jit(lambda x: [(x[i:] @ x[:, i:].T).astype(np.float32).sum() if i % 2 else x @ (x + i) for i in (0, 2, 4, 6)])
        jax.block_until_ready([several(x) for _ in range(3)])
    assert report.assumed == 12
    how = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16; one accumulator, k ascending: XLA tunes tiles and parts of k by time"
    assert {line.how for line, _ in report.lines("assumed")} == {how}


def test_empty_products() -> None:
    with fastmma.jax.emulate("H100", other="error"):
        assert (jnp.zeros((3, 0), jnp.float16) @ jnp.zeros((0, 4), jnp.float16)).tolist() == [[0.0] * 4] * 3
        assert (jnp.zeros((0, 5), jnp.float16) @ jnp.zeros((5, 4), jnp.float16)).shape == (0, 4)
