"""Packing for `fastmma.kernels.fused.window_lanes`: values, exponents and signs of A's rows, and of panels of 32 columns of B.

A zero of a window is packed as a tiny positive value. Infinities and NaNs are packed as zeros, and another kernel does their lines. Where
products of even and odd k are summed apart, those of even k come first in each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.llvm.simd import bitcast

LANES, PANEL = 8, 32
VECTORS = PANEL // LANES  # lane l of vector v holds column 4 l + v
TINY = float.fromhex("0x1p-900")  # its product with any element is less than a unit
NONE, SPECIAL = -16384, 16384  # exponents of zeros, below those of products, and of infinities and NaNs
BIAS = 1023 + 52 - 24  # of the exponents of A: that of 1.5 * 2**52 units of products
_MORE = float.fromhex("0x1.00000004p+0")  # 1 + 2^-30, times which B is packed
_CHUNK = 16  # lines, or panels, of a thread at a time


@constant
@dataclass(frozen=True)
class Steps:
    """The steps for which a kernel is compiled.

    Attributes
    ----------
    terms : int
        Products of a window.
    ways : int
        Windows of a step: 2 where products of even and odd k are summed apart.
    exact : bool
        Whether nothing is aligned: a step's sum and c are rounded once.
    """

    terms: int
    ways: int = 1
    exact: bool = False

    @property
    def depth(self) -> int:
        """Products of a step."""
        return self.terms * self.ways


class Packed(NamedTuple):
    """One operand: values and exponents (rows, k) or (panels, k, 32), signs of the products of each window, and extremes of each line.

    Exponents of A are pairs of 16 bits, and moved by `BIAS`. Signs are bits of a byte. Extremes are the exponents of numbers but zeros.
    """

    values: NDArray[np.float64]
    exponents: NDArray[Any]
    signs: NDArray[np.uint8]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]


@inner
def _exponent(value: Any, emin: Any) -> Any:
    """The exponent of a number, `NONE` of a zero and `SPECIAL` of an infinity or NaN."""
    field = (bitcast(value, np.int64) >> 52) & 0x7FF
    if value == 0:
        return np.int64(NONE)
    return np.int64(SPECIAL) if field == 0x7FF else max(field - 1023, emin)


@inner
def _place(how: Any, k: int) -> Any:
    """Return the place of a k in its step: of two windows, the first one has the even ones."""
    within = k % how.depth
    return k - within + within % how.ways * how.terms + within // how.ways


@compiled
def _pack_rows(how: Any, a: Any, emin: int, packed: Any, first: int, last: int) -> None:
    for i in range(first, last):
        low, high = SPECIAL, NONE
        for k in range(packed.values.shape[1]):
            value = a[i, k] if k < a.shape[1] else 0.0
            exponent, at = _exponent(value, emin), _place(how, k)
            high = max(high, exponent)
            if exponent == SPECIAL:
                exponent = np.int64(NONE)
            if exponent != NONE:
                low = min(low, exponent)
            packed.values[i, at] = value if exponent != NONE else 0.0 if how.exact else TINY
            packed.exponents[i, at] = np.int32(((exponent + BIAS) & 0xFFFF) * 0x10001)
            packed.signs[i, at // how.terms] |= np.uint8(np.int64(exponent != NONE and value < 0) << at % how.terms)
        packed.lowest[i], packed.highest[i] = low, high


@compiled
def _pack_columns(how: Any, b: Any, emin: int, packed: Any, first: int, last: int) -> None:
    depth, columns = b.shape
    for panel in range(first, last):
        for k in range(packed.values.shape[1]):
            at = _place(how, k)
            for column in range(PANEL):
                j = panel * PANEL + column
                value = b[k, j] if k < depth and j < columns else 0.0
                exponent = _exponent(value, emin)
                packed.highest[j] = max(packed.highest[j], exponent)
                if exponent == SPECIAL:
                    exponent = np.int64(NONE)
                if exponent != NONE:
                    packed.lowest[j] = min(packed.lowest[j], exponent)
                number = value if exponent != NONE else 0.0 if how.exact else TINY
                packed.values[panel, at, column % VECTORS * LANES + column // VECTORS] = number if how.exact else number * _MORE
                packed.exponents[panel, at, column] = exponent
                packed.signs[panel, at // how.terms, column] |= np.uint8(np.int64(number < 0) << at % how.terms)


def _memory(how: Steps, shape: tuple[int, ...], lines: int, dtype: Any) -> Packed:
    count, depth, *wide = shape
    signs = np.zeros((count, depth // how.terms, *wide), np.uint8)
    return Packed(np.empty(shape), np.empty(shape, dtype), signs, np.full(lines, SPECIAL), np.full(lines, NONE))


def packed_rows(how: Steps, a: NDArray[np.float64], emin: int, threads: int) -> Packed:
    """A of (M, K), of a format whose smallest normal exponent is `emin`."""
    rows, depth = a.shape
    packed = _memory(how, (rows + 1, -(-depth // how.depth) * how.depth), rows + 1, np.int32)
    parallel_for(lambda first, last, _: _pack_rows(how, a, emin, packed, first, last), rows, threads, _CHUNK)
    return packed


def packed_columns(how: Steps, b: NDArray[np.float64], emin: int, threads: int) -> Packed:
    """B of (K, N), likewise."""
    depth, columns = b.shape
    panels = -(-columns // PANEL)
    packed = _memory(how, (panels, -(-depth // how.depth) * how.depth, PANEL), panels * PANEL, np.int16)
    parallel_for(lambda first, last, _: _pack_columns(how, b, emin, packed, first, last), panels, threads)
    return packed
