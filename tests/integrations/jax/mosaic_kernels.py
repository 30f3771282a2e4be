"""A matrix product as Pallas kernels of Mosaic GPU write it: TMA copies, barriers, wgmma from shared memory or registers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from numpy.typing import NDArray


def draw(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> jax.Array:
    """Draw operands of many magnitudes; all numbers of int8."""
    if dtype == "int8":
        return jnp.asarray(rng.integers(-128, 128, shape), jnp.int8)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    return jnp.asarray(x.astype(np.float32)).astype(dtype)


def multiply(
    a: NDArray[Any], b: NDArray[Any], sums: str, *, from_registers: bool = False, transposed: bool = False, interpret: Any = None
) -> Any:
    """Multiply a (M, K) by b (K, N), or (N, K) where it is transposed, by slices of 128 bytes of k."""
    (m, k), n = a.shape, b.shape[0 if transposed else 1]
    width = 128 // a.dtype.itemsize
    columns = width if transposed or n % width == 0 else n

    def tiled(elements: int) -> Any:
        return plgpu.TilingTransform((8, elements)), plgpu.SwizzleTransform(elements * a.dtype.itemsize)

    def kernel(a_global: Any, b_global: Any, d_global: Any, a_tile: Any, b_tile: Any, d_tile: Any, barrier: Any) -> None:
        def accumulate(total: Any) -> Any:
            for start in range(0, k, width):
                ks = pl.ds(start, width)
                plgpu.copy_gmem_to_smem(a_global.at[:, ks], a_tile, barrier)
                plgpu.copy_gmem_to_smem(b_global.at[:, ks] if transposed else b_global.at[ks, :], b_tile, barrier)
                plgpu.barrier_wait(barrier)
                left = a_tile[...] if from_registers else a_tile
                plgpu.wgmma(total, left, b_tile.transpose((1, 0)) if transposed else b_tile)
                plgpu.wgmma_wait(0)
            return total[...]

        d_tile[...] = pl.run_scoped(accumulate, plgpu.ACC((m, n), jnp.dtype(sums)))
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(d_tile, d_global)
        plgpu.wait_smem_to_gmem(0)

    scratch = [
        plgpu.SMEM((m, width), a.dtype, transforms=tiled(width)),
        plgpu.SMEM((n, width) if transposed else (width, n), a.dtype, transforms=tiled(columns)),
        plgpu.SMEM((m, n), jnp.dtype(sums)),
        plgpu.Barrier(num_arrivals=2),
    ]
    out = jax.ShapeDtypeStruct((m, n), jnp.dtype(sums))
    return plgpu.kernel(kernel, out_type=out, scratch_types=scratch, interpret=interpret)(a, b)


def multiply_in_tensor_memory(a: NDArray[Any], b: NDArray[Any], sums: str, *, interpret: Any = None, **options: Any) -> Any:
    """Multiply a (M, K) by b (K, N) by tcgen05_mma, by slices of 128 bytes of k, of which the first overwrites the accumulator."""
    (m, k), n = a.shape, b.shape[1]
    width = 128 // a.dtype.itemsize
    tiled = plgpu.TilingTransform((8, width)), plgpu.SwizzleTransform(128)

    def kernel(a_global: Any, b_global: Any, d_global: Any, a_tile: Any, b_tile: Any, *scratch: Any) -> None:
        d_tile, total, came, done = scratch
        for start in range(0, k, width):
            ks = pl.ds(start, width)
            plgpu.copy_gmem_to_smem(a_global.at[:, ks], a_tile, came)
            plgpu.copy_gmem_to_smem(b_global.at[ks, :], b_tile, came)
            plgpu.barrier_wait(came)
            plgpu.tcgen05_mma(total, a_tile, b_tile, done, accumulate=start > 0, **options)
            plgpu.barrier_wait(done)
        d_tile[...] = plgpu.async_load_tmem(total)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(d_tile, d_global)
        plgpu.wait_smem_to_gmem(0)

    scratch = [
        plgpu.SMEM((m, width), a.dtype, transforms=tiled),
        plgpu.SMEM((width, n), a.dtype, transforms=tiled),
        plgpu.SMEM((m, n), jnp.dtype(sums)),
        plgpu.TMEM((m, n), jnp.dtype(sums), packed=sums == "float16"),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((m, n), jnp.dtype(sums))
    return plgpu.kernel(kernel, out_type=out, scratch_types=scratch, interpret=interpret)(a, b)
