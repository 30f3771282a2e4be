"""Block-scaled products: whole matrices, and batches of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fused import portable
from fastmma.kernels.params import Scaled
from fastmma.kernels.pieces import finish_empty
from fastmma.kernels.scaled import groups, products
from fastmma.kernels.scaled.group_tiles import group_tiles
from fastmma.kernels.scaled.lines import Operands
from fastmma.kernels.scaled.tiles import scaled_tiles

Codes = NDArray[Any]


def tiles(p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> None:
    """Write ``a @ b`` with block scaling, accumulated onto `c` (None: +0), to `out`, for every tile of a batch.

    a (T, m, k), b (T, k, n) and their scales (T, m, blocks) and (T, blocks, n) are codes; c and out (T, m, n) are f32 bits; all are
    C-contiguous.
    """
    if finish_empty(a.shape[2], c, out):
        return
    shape = (*out.shape[1:], a.shape[2])
    fast = scaled_tiles(p, *shape) or group_tiles(p, *shape)
    if fast is None:
        portable.tiles(products.fused(p), a, b, c, out, threads, scaling=_scaling(p, scale_a, scale_b))
        return
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()
    redo = np.flatnonzero(fast.run(a, b, c, out, scale_a, scale_b, threads))
    if redo.size:
        results = np.empty((redo.size, *out.shape[1:]), out.dtype)
        before, scaling = None if c is None else c[redo], _scaling(p, scale_a[redo], scale_b[redo])
        portable.tiles(products.fused(p), a[redo], b[redo], before, results, threads, scaling=scaling)
        out[redo] = results


def _scaling(p: Scaled, scale_a: Codes, scale_b: Codes) -> portable.Scaling:
    return portable.Scaling(p.scale, p.block, p.group, scale_a, scale_b)


def _portable_gemm(p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> None:
    """A product of at least one k, on any CPU."""
    portable.gemm(products.fused(p), a, b, c, out, threads, scaling=_scaling(p, scale_a, scale_b))


def gemm(
    p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int, small: bool = True
) -> None:
    """Write ``a @ b`` with block scaling, accumulated onto `c` (None: +0) in steps of ascending k, to `out`.

    a (M, K), b (K, N) and their scales (M, blocks) and (blocks, N) are codes, c and out (M, N) f32 bits, of any strides; `out` may be `c`.
    Groups without c are tried in one go where the product is `small`.
    """
    if finish_empty(a.shape[1], c, out):
        return
    if c is not None and np.may_share_memory(c, out):
        c = c.copy()
    operands = Operands(a, b, c, out, scale_a, scale_b)
    if groups.supported(p):
        groups.gemm(p, operands, threads, _portable_gemm, small)
    elif products.supported(p):
        products.gemm(p, operands, threads, _portable_gemm)
    else:
        _portable_gemm(p, *operands, threads)
