"""Exact single-bit matrix products: the number of ones of ``a xor b`` or ``a and b`` along k, added to int32 and wrapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels import cpu, word_panels
from fastmma.kernels.word_dot import Tile

_Bits = NDArray[np.uint8] | NDArray[np.bool_]

# register tiles (lanes, rows, vectors), wide and narrow, of the first row whose feature the CPU has
_TILES = (
    ("avx512vpopcntdq", (16, 3, 8), (8, 8, 1)),
    ("avx2", (8, 3, 3), (8, 8, 1)),
    ("", (4, 3, 3), (4, 4, 2)),
)


def _tile(operation: str, columns: int) -> Tile:
    features = frozenset() if cpu.portable() else cpu.features()
    _, wide, narrow = next(row for row in _TILES if not row[0] or row[0] in features)
    return Tile(operation, *(narrow if columns <= 2 * narrow[0] * narrow[2] else wide))


def gemm(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """``out = c + popcount(a operation b)`` for a (M, K) and b (K, N), one bit a byte, int32 c and out (M, N); any strides, `c` may be `out`.

    `operation` is "xor" or "and"; a byte that is not zero is a one.
    """
    word_panels.gemm(_tile(operation, b.shape[1]), a.view(np.uint8), b.view(np.uint8), c, out, threads)


def tiles(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """The same for batches (T, m, k), (T, k, n), (T, m, n) of C-contiguous matrices."""
    word_panels.tiles(_tile(operation, b.shape[2]), a.view(np.uint8), b.view(np.uint8), c, out, threads)
