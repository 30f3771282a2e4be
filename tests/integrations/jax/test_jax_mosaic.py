"""Pallas kernels of Mosaic GPU in JAX's interpreter: the products of wgmma and tcgen05_mma, and refusals."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("absl", reason="Pallas for Mosaic GPU needs absl-py")

from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import fastmma.jax
from fastmma.host.errors import NotEmulatedError
from fastmma.jax.mosaic import plan_product
from fastmma.testing import assert_bits_equal
from tests.integrations.jax.mosaic_kernels import draw, multiply, multiply_in_tensor_memory

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


def test_kernels_of_which_nobody_says_that_a_cpu_interprets_them_are_refused_with_advice():
    a, b = draw(np.random.default_rng(3), (64, 64), "bfloat16"), draw(np.random.default_rng(4), (64, 64), "bfloat16")
    advice = r"mosaic_kernels.py:\d+: a kernel for Mosaic GPU: .*force_gpu_interpret_mode"
    with pytest.raises(NotEmulatedError, match=advice), fastmma.jax.emulate("H100"):
        multiply(a, b, "float32", interpret=False)


knows_tensor_memory = pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="JAX interprets tcgen05_mma since 0.11")


@knows_tensor_memory
@pytest.mark.parametrize(
    ("kind", "sums", "instruction"),
    [
        ("bfloat16", "float32", None),
        ("float16", "float16", "tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400000"),
        ("float32", "float32", "tcgen05.mma.cta_group::1.kind::tf32 idesc=0x08400910"),
        ("float8_e5m2", "float32", None),
        ("int8", "int32", None),
    ],
)
def test_tcgen05_mma_is_the_instruction(kind, sums, instruction):
    a, b = draw(np.random.default_rng(5), (128, 256), kind), draw(np.random.default_rng(6), (256, 128), kind)
    with fastmma.jax.emulate("B200", other="error") as report:
        found = jax.block_until_ready(multiply_in_tensor_memory(a, b, sums, interpret=InterpretGPUParams()))
    report.assert_all_emulated()
    assert report.emulated == 2 * a.dtype.itemsize
    name = {"float32": "f32", "float16": "f16", "int32": "s32"}[sums]
    assert_bits_equal(
        np.asarray(found), fastmma.gemm(np.asarray(a), np.asarray(b), target="B200", accumulator=name, instruction=instruction)
    )


@knows_tensor_memory
def test_kernels_of_another_gpu_are_left_to_jax_or_refused():
    a, b = draw(np.random.default_rng(5), (128, 64), "bfloat16"), draw(np.random.default_rng(6), (64, 128), "bfloat16")
    with fastmma.jax.emulate("H100") as report:
        jax.block_until_ready(multiply_in_tensor_memory(a, b, "float32", interpret=InterpretGPUParams()))
    assert [line.operator for line, _ in report.lines("passed")] == ["tcgen05_mma"]
    with pytest.raises(NotEmulatedError, match="sm_90a has no tcgen05_mma"), fastmma.jax.emulate("H100", other="error"):
        multiply_in_tensor_memory(a, b, "float32", interpret=InterpretGPUParams())


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="JAX interprets tcgen05_mma since 0.11")
def test_tensor_memory_is_refused_by_name():
    a, b = draw(np.random.default_rng(5), (128, 64), "bfloat16"), draw(np.random.default_rng(6), (64, 128), "bfloat16")
    said = r"^tmem at .*mosaic_kernels.py:\d+: .* JAX 0\.10.* knows tensor memory"
    with pytest.raises(NotEmulatedError, match=said), fastmma.jax.emulate("B200"):
        multiply_in_tensor_memory(a, b, "float32", interpret=InterpretGPUParams())


# what a product asks for beside operands: its name, the memory for it, more words of the product, and those of the kernel
ASKED = [
    (
        "scaled",
        {"a_scale": ((128, 4), "float8_e8m0fnu", "SCALES_LAYOUT"), "b_scale": ((128, 4), "float8_e8m0fnu", "SCALES_LAYOUT")},
        {},
        {},
    ),
    ("sparse", {"a_sparse_metadata": ((128, 64), "uint2", "SPARSE_METADATA_LAYOUT")}, {}, {}),
    ("collective_axis", {}, {"collective_axis": "x"}, {"cluster": (2,), "cluster_names": ("x",)}),
]


@knows_tensor_memory
@pytest.mark.parametrize(("asked", "memory", "words", "launch"), ASKED, ids=[row[0] for row in ASKED])
def test_products_that_ask_for_more_are_refused_by_name(asked, memory, words, launch):
    sparse, collective = asked == "sparse", asked == "collective_axis"

    def kernel(_, a_tile, b_tile, total, done, *rest):
        plgpu.tcgen05_mma(total, a_tile, b_tile, done, accumulate=False, **dict(zip(memory, rest, strict=True)), **words)
        plgpu.barrier_wait(done)

    tiled = plgpu.TilingTransform((8, 128)), plgpu.SwizzleTransform(128)
    kind = jnp.float8_e4m3fn
    scratch = [
        plgpu.SMEM(
            (128, 64 if sparse else 128), kind, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(64)) if sparse else tiled
        ),
        plgpu.SMEM((128, 128), kind, transforms=tiled),
        plgpu.TMEM((128, 256 if collective else 128), jnp.float32, collective=collective),
        plgpu.Barrier(orders_tensor_core=True),
        *(plgpu.TMEM(shape, jnp.dtype(name), layout=getattr(plgpu.TMEMLayout, layout)) for shape, name, layout in memory.values()),
    ]
    out = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    call = plgpu.kernel(kernel, out_type=out, scratch_types=scratch, interpret=InterpretGPUParams(), **launch)
    said = rf"tcgen05_mma with {asked} at {__file__}:\d+: the interpreter of Mosaic GPU kernels of JAX"
    with pytest.raises(NotEmulatedError, match=said), fastmma.jax.emulate("B200"):
        call()


def lack_a_primitive(_, barrier):
    plgpu.barrier_test(barrier)


def lack_a_program(a_tile, _):
    pl.run_state(lambda total: plgpu.wgmma(total, a_tile, a_tile))(plgpu.ACC.init(jnp.zeros((64, 64), jnp.float32)))


@pytest.mark.parametrize(("body", "name"), [(lack_a_primitive, "barrier_test"), (lack_a_program, "run_state")])
def test_primitives_that_the_interpreter_lacks_are_named(body, name):
    def kernel(a_global, d_global, a_tile, barrier):
        plgpu.copy_gmem_to_smem(a_global, a_tile, barrier)
        plgpu.barrier_wait(barrier)
        body(a_tile, barrier)
        plgpu.copy_smem_to_gmem(a_tile, d_global)

    tiled = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)
    scratch = [plgpu.SMEM((64, 64), jnp.bfloat16, transforms=tiled), plgpu.Barrier()]
    out = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)
    call = plgpu.kernel(kernel, out_type=out, scratch_types=scratch, interpret=InterpretGPUParams())
    where = rf"{__file__}:{body.__code__.co_firstlineno + 1}"
    with (
        pytest.raises(NotEmulatedError, match=f"{name} at {where}: the interpreter of Mosaic GPU kernels of JAX"),
        fastmma.jax.emulate("H100"),
    ):
        call(jnp.zeros((64, 64), jnp.bfloat16))


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_of_an_h100(name):
    """Four rows of each of 35 kernels that JAX 0.11.2 compiled for an H100."""
    kind, sums, shape, seed, *form = name.split()
    (m, n, k), rng = map(int, shape.split("x")), np.random.default_rng([2, int(seed)])
    transposed = "transposed" in form
    a, b = draw(rng, (m, k), kind), draw(rng, (n, k) if transposed else (k, n), kind)
    x, y = np.asarray(a), np.ascontiguousarray(np.asarray(b).T) if transposed else np.asarray(b)
    plan = plan_product("sm_90a", x, y, np.zeros((m, n), sums))
    assert_bits_equal(fastmma.gemm(x, y, plan=plan)[:4], RECORDED[name].view(sums))
