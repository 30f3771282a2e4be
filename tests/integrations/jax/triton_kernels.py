"""Products as Pallas kernels for Triton write them: a loop over k in registers, sums in memory, a bias."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton


def in_a_loop(x: Any, y: Any, out: Any, *, block: int) -> None:
    """Add products of blocks of k to what a loop carries."""

    def add(step: Any, total: Any) -> Any:
        ks = pl.ds(step * block, block)
        return total + triton.dot(x[:, ks], y[ks, :])

    out[...] = lax.fori_loop(0, x.shape[1] // block, add, jnp.zeros(out.shape, out.dtype))


def in_memory(x: Any, y: Any, out: Any, *, block: int) -> None:
    """Add products of blocks of k, of a function under jit, to the result in memory."""
    out[...] = jnp.zeros(out.shape, out.dtype)
    for start in range(0, x.shape[1], block):
        ks = pl.ds(start, block)
        out[...] += jnp.dot(x[:, ks], y[ks, :], preferred_element_type=out.dtype)


def multiply(kernel: Any, x: jax.Array, y: jax.Array, dtype: Any, *, tile: tuple[int, int], block: int) -> jax.Array:
    """Multiply x (M, K) by y (K, N), a tile of the result in each program."""
    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        partial(kernel, block=block),
        out_shape=jax.ShapeDtypeStruct((m, n), dtype),
        grid=(m // tile[0], n // tile[1]),
        in_specs=[pl.BlockSpec((tile[0], k), lambda i, _: (i, 0)), pl.BlockSpec((k, tile[1]), lambda _, j: (0, j))],
        out_specs=pl.BlockSpec(tile, lambda i, j: (i, j)),
        interpret=True,
    )(x, y)
