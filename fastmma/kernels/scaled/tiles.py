"""Block-scaled tiles whose rows of A and columns of B have one scale each, a power of two.

Dividing all terms of a sum by one power of two changes neither what is truncated nor how the sum is rounded, as long as exponents stay in
range. So c / 2**s is accumulated onto by the kernel for tiles without scales, and its results are multiplied by 2**s: s is the sum of a
row's and a column's exponents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused import batch
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.params import ElementSpecs, Scaled, Specials
from fastmma.kernels.scaled.lines import Codes, fixed
from fastmma.kernels.scaled.products import NAN_SCALE, SMALLEST, fused, lowest_bit

AT_ONCE = 512  # tiles, whose sums stay in the cache
LARGEST_SHIFT = 126


@compiled
def _over_scales(c: Any, scale_a: Any, scale_b: Any, lowest: int, highest: int, sums: Any, bad: Any) -> None:
    """c (T, m, n) over its scales, as float32 bits; tiles with a sum or a scale that is out of range are marked."""
    for tile in range(len(sums)):
        wrong = np.uint32(0)
        for i in range(sums.shape[1]):
            row = np.int32(scale_a[tile, i])
            for j in range(sums.shape[2]):
                total = row + np.int32(scale_b[tile, j])
                bits = np.uint32(c[tile, i, j])
                field = np.int32((bits >> 23) & 255)
                moved = field + highest - total
                fine = (total >= lowest) & (total <= highest + LARGEST_SHIFT) & (row != NAN_SCALE) & (scale_b[tile, j] != NAN_SCALE)
                inside = (field > 0) & (field < 255) & (moved > 0) & (moved < 255)
                zero = (bits & 0x7FFFFFFF) == 0
                wrong |= np.uint32(not (fine & (zero | inside)))
                # the kernel notes sums of several tiles together: one that is wrong anyway is to look fine
                sums[tile, i, j] = np.uint32((bits & 0x807FFFFF) | (np.uint32(moved) << 23)) if fine & inside else np.uint32(0)
        bad[tile] = wrong


@compiled
def _times_scales(sums: Any, scale_a: Any, scale_b: Any, bias: int, out: Any, bad: Any) -> None:
    """Sums times their scales; tiles with a result that float32 does not have as a normal number are marked."""
    for tile in range(len(sums)):
        wrong = np.uint32(0)
        for i in range(sums.shape[1]):
            row = np.int32(scale_a[tile, i])
            for j in range(sums.shape[2]):
                bits = np.uint32(sums[tile, i, j])
                field = np.int32((bits >> 23) & 255)
                moved = field + row + np.int32(scale_b[tile, j]) - bias
                zero = (bits & 0x7FFFFFFF) == 0
                wrong |= np.uint32(not (zero | ((field > 0) & (field < 255) & (moved > 0) & (moved < 255))))
                out[tile, i, j] = np.uint32(0) if zero else np.uint32((bits & 0x807FFFFF) | (np.uint32(moved & 255) << 23))
        bad[tile] |= wrong


class ScaledTiles(NamedTuple):
    """A `run` that this CPU has a kernel for."""

    p: Scaled
    blocks: batch.Blocks

    def run(self, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> NDArray[np.uint8]:
        """Write tiles to `out`; a byte a tile says which ones are wrong, being out of reach."""
        p, bias = self.p, 2 * self.p.scale.bias
        count, rows, columns = out.shape
        bad = np.empty(count, np.uint8)
        lowest = max(SMALLEST - lowest_bit(p.a) - lowest_bit(p.b), -LARGEST_SHIFT) + bias
        none = None if c is not None else fixed(np.zeros((min(AT_ONCE, count), rows, columns), np.uint32))

        def multiply(start: int, stop: int, _worker: int) -> None:
            part = slice(start, stop)
            left, right = fixed(scale_a[part, :, 0]), fixed(scale_b[part, 0])
            before = fixed(c[part]) if c is not None else none
            sums, results = np.empty((2, stop - start, rows, columns), np.uint32)
            _over_scales(before, left, right, lowest, bias, sums, bad[part])
            bad[part] |= self.blocks.run(a[part], b[part], sums, results, 1)
            _times_scales(results, left, right, bias, sums, bad[part])
            out[part] = sums

        parallel_for(multiply, count, threads, AT_ONCE)
        return bad


def scaled_tiles(p: Scaled, rows: int, columns: int, depth: int) -> ScaledTiles | None:
    """Return what multiplies batches of tiles of this shape, if this CPU has a kernel for it."""
    if p.group != 1 or depth > p.block or p.scale.specials != Specials.POWERS_OF_TWO:
        return None
    blocks = batch.blocks(fused(p), ElementSpecs(p.a, p.b, ()), rows, columns, depth)
    return None if blocks is None else ScaledTiles(p, blocks)
