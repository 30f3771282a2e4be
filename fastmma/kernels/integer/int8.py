"""Exact integer matrix products: 8-bit and widened 4-bit operands, int32 results that wrap, or saturate once an instruction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.integer import words
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.words import Arithmetic, FixedWords
from fastmma.kernels.tiles import BYTES, WordsTile, tile_of_cpu

_Bytes = NDArray[np.int8] | NDArray[np.uint8]


def _arithmetic(row: WordsTile, a: str, b: str, period: int) -> Arithmetic:
    """Return how bytes of dtypes of these kinds are read; a `period` of 0 wraps."""
    a_signed, b_signed = a == "i", b == "i"
    if row.words == "pairs":
        return Arithmetic(0, 128 * a_signed, 128 * b_signed, 0, period)
    # vpdpbusd multiplies unsigned by signed bytes, so b takes the signedness that a has not; sdot and udot want that of a
    biased = int((a_signed == b_signed) == (row.words == "bytes"))
    return Arithmetic(int(not a_signed), 0, 128 * biased, biased, period)


def _may_saturate(a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None) -> bool:
    """Tell whether the a-priori bound leaves room for a sum outside int32."""
    largest_a, largest_b = (128 if x.dtype.kind == "i" else 255 for x in (a, b))
    bound = a.shape[-1] * largest_a * largest_b
    if c is not None and c.size and bound < 2**31:
        bound += max(int(c.max()), -int(c.min()))
    return bool(bound >= 2**31)


def gemm(a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None, out: NDArray[np.int32], saturate: bool, period: int, threads: int) -> None:
    """``out = c + a b`` for a (M, K), b (K, N) and int32 c, out (M, N) with any strides; `c` may be `out`.

    With `saturate` every `period` elements of k (one instruction) end in one clamp of the exact sum to int32; else sums wrap.
    """
    row = tile_of_cpu(BYTES)
    arithmetic = _arithmetic(row, a.dtype.kind, b.dtype.kind, period if saturate and _may_saturate(a, b, c) else 0)
    words.gemm(WordsConfig(row.words, *row.wide), arithmetic, a.view(np.uint8), b.view(np.uint8), c, out, threads)


def tiles(a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None, out: NDArray[np.int32], saturate: bool, threads: int) -> None:
    """``out = c + a b`` for batches a (T, m, k), b (T, k, n) and C-contiguous int32 c, out (T, m, n): one instruction each."""
    row = tile_of_cpu(BYTES)
    arithmetic = _arithmetic(row, a.dtype.kind, b.dtype.kind, a.shape[2] if saturate and _may_saturate(a, b, c) else 0)
    words.tiles(WordsConfig(row.words, *row.narrow), arithmetic, a.view(np.uint8), b.view(np.uint8), c, out, threads)


def fixed(kinds: tuple[str, str], shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], start: bool) -> FixedWords:
    """A product of bytes of these kinds ("i" or "u"), whose sums wrap, as `FixedWords` has them."""
    row = tile_of_cpu(BYTES)
    return FixedWords(WordsConfig(row.words, *row.wide), _arithmetic(row, *kinds, 0), shape, a, b, start=start)
