"""What runs of JAX and Pallas under emulation: a table of programs, each with the status of its products.

``python -m tests.reference.jax_programs`` prints the table of docs/jax.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas.ops.gpu import attention as triton_attention
from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu

import fastmma
import fastmma.jax
from fastmma.jax.primitives import KINDS

from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks  # isort: skip
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams, force_gpu_interpret_mode  # isort: skip
from tests.integrations.jax.mosaic_kernels import multiply, multiply_in_tensor_memory
from tests.integrations.jax.triton_kernels import in_memory
from tests.integrations.jax.triton_kernels import multiply as multiply_by_triton

_OWN = {"dot_general", "scaled_matmul", "wgmma", "tcgen05_mma", "fastmma.jax.dot_general", "fastmma.jax.scaled_matmul"}
_dot = partial(jnp.dot, preferred_element_type=jnp.float32)


def _array(*shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).astype(dtype)


def _gradients(function: Callable[..., jax.Array]) -> Any:
    return jax.jit(jax.value_and_grad(lambda *arrays: function(*arrays).astype(jnp.float32).sum(), tuple(range(2))))(X, W)


def _hopper_matmul() -> jax.Array:
    sizes = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "epi_tile_m": 64, "epi_tile_n": 64, "max_concurrent_steps": 2}
    with mock.patch.object(hopper_matmul_mgpu, "get_num_sms", return_value=2), force_gpu_interpret_mode():
        return hopper_matmul_mgpu.matmul(_array(128, 128), _array(128, 128), None, hopper_matmul_mgpu.TuningConfig(**sizes))


X, W = _array(16, 32), _array(32, 32)
QKV = _array(1, 64, 2, 32, dtype=jnp.float16)
_IN_STEPS = partial(lax.fori_loop, 0, 3)


@dataclass(frozen=True)
class Program:
    """A program of the table.

    Attributes
    ----------
    name : str
    run : callable
    target : str
    """

    name: str
    run: Callable[[], Any]
    target: str = "H100"


PROGRAMS = (
    Program("`x @ w` of bfloat16, value and gradients", lambda: _gradients(jnp.matmul)),
    Program("the same with `preferred_element_type=float32`", lambda: _gradients(_dot)),
    Program("under `vmap`", lambda: _gradients(lambda x, w: jax.vmap(_dot, (0, None))(x[None], w))),
    Program("under `checkpoint`", lambda: _gradients(jax.checkpoint(lambda x, w: jnp.tanh(_dot(x, w))))),
    Program("in `fori_loop`", lambda: _gradients(lambda x, w: _IN_STEPS(lambda _, y: (_dot(y, w) / 8).astype(x.dtype), x))),
    Program("`dot_general=fastmma.jax.dot_general`", lambda: _gradients(partial(_own, preferred_element_type=jnp.float32))),
    Program(
        "int8 with a result in int32",
        lambda: _dot(_array(8, 32, dtype=jnp.int8), _array(32, 8, dtype=jnp.int8), preferred_element_type=jnp.int32),
    ),
    Program("float32 with the default precision", lambda: jnp.matmul(_array(8, 8, dtype=jnp.float32), _array(8, 8, dtype=jnp.float32))),
    Program("a convolution of 1 x 1 filters", lambda: lax.conv(_array(1, 8, 4, 4), _array(8, 8, 1, 1), (1, 1), "SAME")),
    Program("`lax.ragged_dot`", lambda: lax.ragged_dot(X, W[None], np.int32([16]))),
    Program("`pl.pallas_call(interpret=True)`", lambda: multiply_by_triton(in_memory, X, W, jnp.float32, tile=(16, 16), block=16)),
    Program("Pallas' `ops.gpu.attention.mha(interpret=True)`", lambda: triton_attention.mha(QKV, QKV, QKV, None, interpret=True)),
    Program("Pallas' `ops.gpu.hopper_matmul_mgpu.matmul`", _hopper_matmul),
    Program("a kernel with `plgpu.wgmma`", lambda: multiply(_array(64, 64), _array(64, 64), "float32", interpret=InterpretGPUParams())),
    Program(
        "a kernel with `plgpu.tcgen05_mma`",
        lambda: multiply_in_tensor_memory(_array(128, 64), _array(64, 128), "float32", interpret=InterpretGPUParams()),
        "B200",
    ),
)
_own = partial(fastmma.jax.dot_general, dimension_numbers=(((1,), (0,)), ((), ())), target="H100")


def find_result(program: Program) -> str:
    """Run a program, and write how many of its products have which status, or the error's first words."""
    try:
        with fastmma.jax.emulate(program.target) as report:
            jax.block_until_ready(program.run())
    except fastmma.NotEmulatedError as error:
        gpu_callbacks.reset_gpu_interpret_mode_state()
        return f"refused: {str(error).split(' at ')[0]}"
    counts = Counter({line: count for line, count in report.lines() if _is_product(line.operator)})
    by_status: Counter[str] = Counter()
    for line, count in counts.items():
        by_status[line.status] += count
    return ", ".join(f"{number} {status}" for status, number in by_status.items()) + (f", {report.unseen} unseen" if report.unseen else "")


def _is_product(operator: str) -> bool:
    return operator in _OWN or (operator in KINDS and KINDS[operator].is_product)


def write_table() -> list[str]:
    """Write the table, a line for each program."""
    return [
        "| program | emulated GPU | its products |",
        "| --- | --- | --- |",
        *(f"| {each.name} | {each.target} | {find_result(each)} |" for each in PROGRAMS),
    ]


if __name__ == "__main__":
    print(f"JAX {jax.__version__}", *write_table(), sep="\n")
