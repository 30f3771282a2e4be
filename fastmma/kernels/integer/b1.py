"""Exact single-bit matrix products: the number of ones of ``a xor b`` or ``a and b`` along k, added to int32 and wrapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.integer import words
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.words import Arithmetic
from fastmma.kernels.tiles import BITS, tile_of_cpu

_Bits = NDArray[np.uint8] | NDArray[np.bool_]

_COLUMNS = 256  # whose ones a thread counts at once
_OPERATIONS = {"xor": Arithmetic(0), "and": Arithmetic(1)}


def gemm(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """``out = c + popcount(a operation b)`` for a (M, K), b (K, N) of one bit a byte, int32 c and out (M, N) with any strides.

    `c` may be `out`. `operation` is "xor" or "and"; a byte that is not zero is a one.
    """
    row = tile_of_cpu(BITS)
    words.gemm(WordsConfig(row.words, *row.wide), _OPERATIONS[operation], a.view(np.uint8), b.view(np.uint8), c, out, threads)


def gemm_on_amx(
    a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int, *, plain: bool = False
) -> None:
    """Compute the same by products of bytes: ``a and b`` is a product of zeros and ones, and ``a xor b`` is ``b + a (1 - 2 b)``."""
    from fastmma.kernels.integer import amx
    from fastmma.kernels.integer.amx_lines import BITS, SIGNS

    left, right, starts, how = a.view(np.uint8), b.view(np.uint8), c, (BITS, BITS)
    if operation == "xor":
        ones = _ones(right, threads)
        starts, how = np.broadcast_to(ones, out.shape) if c is None else np.add(c, ones, out=out), (BITS, SIGNS)
    amx.gemm(left, right, starts, out, threads, how=how, plain=plain)


def _ones(b: _Bits, threads: int) -> NDArray[np.int32]:
    """Count the ones of each column."""
    row, found = np.ones((1, b.shape[0]), np.uint8), np.empty((1, b.shape[1]), np.int32)

    def count(first: int, last: int, _worker: int) -> None:
        columns = slice(first * _COLUMNS, last * _COLUMNS)
        gemm(row, b[:, columns], None, found[:, columns], "and", 1)

    parallel_for(count, -(-b.shape[1] // _COLUMNS), threads)
    return found


def tiles(a: _Bits, b: _Bits, c: NDArray[np.int32] | None, out: NDArray[np.int32], operation: str, threads: int) -> None:
    """``out = c + popcount(a operation b)`` for batches a (T, m, k), b (T, k, n) and C-contiguous c, out (T, m, n)."""
    row = tile_of_cpu(BITS)
    words.tiles(WordsConfig(row.words, *row.narrow), _OPERATIONS[operation], a.view(np.uint8), b.view(np.uint8), c, out, threads)
