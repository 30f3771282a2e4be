"""Exact single-bit matrix products: the number of ones of ``a xor b`` or ``a and b`` along k, added to int32 and wrapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.integer import words
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.words import Arithmetic
from fastmma.kernels.tiles import BITS, tile_of_cpu

_Bits = NDArray[np.uint8] | NDArray[np.bool_]

_OPERATIONS = {"xor": Arithmetic(0), "and": Arithmetic(1)}


def gemm(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """``out = c + popcount(a operation b)`` for a (M, K), b (K, N) of one bit a byte, int32 c and out (M, N) with any strides.

    `c` may be `out`. `operation` is "xor" or "and"; a byte that is not zero is a one.
    """
    row = tile_of_cpu(BITS)
    words.gemm(WordsConfig(row.words, *row.wide), _OPERATIONS[operation], a.view(np.uint8), b.view(np.uint8), c, out, threads)


def tiles(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """``out = c + popcount(a operation b)`` for batches a (T, m, k), b (T, k, n) and C-contiguous c, out (T, m, n)."""
    row = tile_of_cpu(BITS)
    words.tiles(WordsConfig(row.words, *row.narrow), _OPERATIONS[operation], a.view(np.uint8), b.view(np.uint8), c, out, threads)
