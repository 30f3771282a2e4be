"""Exact single-bit matrix products: the number of ones of ``a xor b`` or ``a and b`` along k, added to int32 and wrapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.integer import words
from fastmma.kernels.integer.tile import Tile
from fastmma.kernels.integer.words import Arithmetic
from fastmma.kernels.llvm import cpu

_Bits = NDArray[np.uint8] | NDArray[np.bool_]

# register tiles (lanes, rows, vectors) for large matrices and for single instructions, of the first row whose feature the CPU has
_TILES = (
    ("avx512vpopcntdq", Tile("bits", 16, 2, 8), Tile("bits", 8, 8, 1)),
    ("avx512bw", Tile("bits_by_bytes", 16, 2, 4), Tile("bits_by_bytes", 8, 8, 1)),
    ("avx2", Tile("bits_by_bytes", 8, 2, 4), Tile("bits_by_bytes", 8, 8, 1)),
    ("", Tile("bits_by_bytes", 4, 2, 4), Tile("bits_by_bytes", 4, 4, 2)),
)
_OPERATIONS = {"xor": Arithmetic(0), "and": Arithmetic(1)}


def _row() -> tuple[str, Tile, Tile]:
    features = frozenset() if cpu.portable() else cpu.features()
    return next(row for row in _TILES if not row[0] or row[0] in features)


def gemm(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """``out = c + popcount(a operation b)`` for a (M, K), b (K, N) of one bit a byte, int32 c and out (M, N) with any strides.

    `c` may be `out`. `operation` is "xor" or "and"; a byte that is not zero is a one.
    """
    words.gemm(_row()[1], _OPERATIONS[operation], a.view(np.uint8), b.view(np.uint8), c, out, threads)


def tiles(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """The same for batches a (T, m, k), b (T, k, n) and C-contiguous c, out (T, m, n)."""
    words.tiles(_row()[2], _OPERATIONS[operation], a.view(np.uint8), b.view(np.uint8), c, out, threads)
