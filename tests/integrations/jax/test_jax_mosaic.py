"""Pallas kernels of Mosaic GPU in JAX's interpreter: the products of wgmma, and refusals."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("absl", reason="Pallas for Mosaic GPU needs absl-py")

from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
from jax.experimental.pallas import mosaic_gpu as plgpu

import fastmma.jax
from fastmma.host.errors import NotEmulatedError
from fastmma.jax.mosaic import plan_wgmma
from fastmma.testing import assert_bits_equal
from tests.integrations.jax.mosaic_kernels import draw, multiply

CASES = (
    *(("bfloat16", "float32", form) for form in ("", "registers", "transposed", "registers, transposed")),
    *(("float16", "float16", ""), ("float32", "float32", "transposed"), ("int8", "int32", "")),
    *(("float8_e4m3fn", "float32", "registers"), ("float8_e5m2", "float32", "transposed")),
)


with np.load(Path(__file__).with_name("h100_mosaic.npz")) as _book:
    RECORDED = {name: _book[name] for name in _book.files}


@pytest.fixture(autouse=True)
def fresh_interpreter():
    yield
    gpu_callbacks.reset_gpu_interpret_mode_state()


@pytest.mark.parametrize(("kind", "sums", "form"), CASES)
def test_wgmma_is_the_instruction(kind, sums, form):
    m, n, k = 64, 32, 256
    transposed = "transposed" in form
    a, b = draw(np.random.default_rng(1), (m, k), kind), draw(np.random.default_rng(2), (n, k) if transposed else (k, n), kind)
    with fastmma.jax.emulate("H100", other="error") as report:
        found = jax.block_until_ready(
            multiply(a, b, sums, interpret=InterpretGPUParams(), from_registers="registers" in form, transposed=transposed)
        )
    report.assert_all_emulated()
    x, y = np.asarray(a), np.asarray(b).T if transposed else np.asarray(b)
    name = {"float32": "f32", "float16": "f16", "int32": "s32"}[sums]
    instruction = f"wgmma.mma_async.sync.aligned.m64n{n}k8.f32.tf32.tf32" if kind == "float32" else None
    assert_bits_equal(np.asarray(found), fastmma.gemm(x, y, target="H100", accumulator=name, instruction=instruction))


def test_targets_without_wgmma_leave_it_to_jax_or_refuse():
    a, b = draw(np.random.default_rng(3), (64, 64), "bfloat16"), draw(np.random.default_rng(4), (64, 64), "bfloat16")
    with fastmma.jax.emulate("A100") as report:
        jax.block_until_ready(multiply(a, b, "float32", interpret=InterpretGPUParams()))
    assert [line.operator for line, _ in report.lines("passed")] == ["wgmma"]
    with pytest.raises(NotEmulatedError, match=r"A100|sm_80"), fastmma.jax.emulate("A100", other="error"):
        multiply(a, b, "float32", interpret=InterpretGPUParams())


def test_primitives_that_the_interpreter_lacks_are_named():
    def kernel(a_global, d_global, a_tile, barrier):
        plgpu.copy_gmem_to_smem(a_global, a_tile, barrier)
        plgpu.barrier_wait(barrier)
        plgpu.async_prefetch(a_global)
        plgpu.copy_smem_to_gmem(a_tile, d_global)

    scratch = [plgpu.SMEM((128, 128), jnp.float32), plgpu.Barrier()]
    out = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    call = plgpu.kernel(kernel, out_type=out, scratch_types=scratch, interpret=InterpretGPUParams())
    with pytest.raises(NotEmulatedError, match="async_prefetch: JAX's interpreter"), fastmma.jax.emulate("B200"):
        call(jnp.zeros((128, 128), jnp.float32))


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_of_an_h100(name):
    """Four rows of each of 35 kernels that JAX 0.11.2 compiled for an H100."""
    kind, sums, shape, seed, *form = name.split()
    (m, n, k), rng = map(int, shape.split("x")), np.random.default_rng([2, int(seed)])
    transposed = "transposed" in form
    a, b = draw(rng, (m, k), kind), draw(rng, (n, k) if transposed else (k, n), kind)
    x, y = np.asarray(a), np.ascontiguousarray(np.asarray(b).T) if transposed else np.asarray(b)
    plan = plan_wgmma("sm_90a", x, y, np.zeros((m, n), sums))
    assert_bits_equal(fastmma.gemm(x, y, plan=plan)[:4], RECORDED[name].view(sums))
