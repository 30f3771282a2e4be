"""Exact integer matrix products: 8-bit and widened 4-bit operands, int32 results that wrap, or saturate once an instruction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels import cpu, word_panels
from fastmma.kernels.word_dot import Tile

_Bytes = NDArray[np.int8] | NDArray[np.uint8]


class _Row(NamedTuple):
    """Register tiles (lanes, rows, vectors) for the CPUs with some features; the first row that fits is taken."""

    features: frozenset[str]
    bytes: bool  # dot products of four bytes (VNNI), else of two int16
    wide: tuple[int, int, int]
    narrow: tuple[int, int, int]


_TILES = (
    _Row(frozenset({"avx512vnni", "avx512vl"}), True, (16, 6, 4), (8, 8, 1)),
    _Row(frozenset({"avx512bw"}), False, (16, 6, 4), (8, 8, 1)),
    _Row(frozenset({"avxvnni"}), True, (8, 6, 2), (8, 8, 1)),
    _Row(frozenset({"avx2"}), False, (8, 6, 2), (8, 8, 1)),
    _Row(frozenset(), False, (4, 4, 2), (4, 4, 2)),
)


def _row() -> _Row:
    features = frozenset() if cpu.portable() else cpu.features()
    return next(row for row in _TILES if row.features <= features)


def _configure(a: _Bytes, b: _Bytes, saturate: bool) -> tuple[Tile, tuple[int, int], bool]:
    """The tile, the bytes to xor to a and b, and whether the flip of b has to be made good from the row sums of a."""
    row = _row()
    a_signed, b_signed = a.dtype.kind == "i", b.dtype.kind == "i"
    shape = row.narrow if b.shape[-1] <= row.narrow[0] * row.narrow[2] * 2 else row.wide
    if not row.bytes:
        return Tile("pairs", *shape, saturate), (128 * a_signed, 128 * b_signed), False
    # the hardware multiplies unsigned by signed bytes: b takes the signedness that a has not
    biased = a_signed == b_signed
    return Tile("signed_bytes" if a_signed else "unsigned_bytes", *shape, saturate), (0, 128 * biased), biased


def _may_saturate(a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None) -> bool:
    """Whether the a-priori bound leaves room for a sum outside int32."""
    largest_a, largest_b = (128 if x.dtype.kind == "i" else 255 for x in (a, b))
    bound = a.shape[-1] * largest_a * largest_b
    if c is not None and c.size and bound < 2**31:
        bound += max(int(c.max()), -int(c.min()))
    return bound >= 2**31


def gemm(
    a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None, out: NDArray[np.int32], saturate: bool, period: int, threads: int
) -> None:
    """``out = c + a b`` for a (M, K), b (K, N) and int32 c, out (M, N) with any strides; `c` may be `out`.

    With `saturate` every `period` elements of k (one instruction) end in one clamp of the exact sum to int32; else sums wrap.
    """
    tile, flips, biased = _configure(a, b, saturate and _may_saturate(a, b, c))
    word_panels.gemm(tile, a.view(np.uint8), b.view(np.uint8), c, out, threads, period=period, flips=flips, biased=biased)


def tiles(a: _Bytes, b: _Bytes, c: NDArray[np.int32] | None, out: NDArray[np.int32], saturate: bool, threads: int) -> None:
    """``out = c + a b`` for batches (T, m, k), (T, k, n), (T, m, n) of C-contiguous matrices, one instruction each."""
    tile, flips, biased = _configure(a, b, saturate and _may_saturate(a, b, c))
    word_panels.tiles(tile, a.view(np.uint8), b.view(np.uint8), c, out, threads, flips=flips, biased=biased)
