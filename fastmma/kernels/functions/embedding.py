"""The gradient of an embedding's weight: rows of gradients join those of the weight, each sum rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import bitcast


@inner
def _round(x: Any, is_bfloat: bool) -> Any:
    """Round a float32 number to nearest even to bfloat16, if that is wanted."""
    if not is_bfloat or x != x:
        return x
    bits = bitcast(x, np.uint32)
    tie = np.uint32(bits >> np.uint32(16)) & np.uint32(1)
    return bitcast(np.uint32((bits + np.uint32(0x7FFF) + tie) & np.uint32(0xFFFF0000)), np.float32)


@compiled
def add_chunks(grad: Any, indices: Any, size: int, sums: Any, weight: Any, is_bfloat: bool) -> None:
    """Add gradients of the same index in turn, rounded, to its row of the weight, for `size` indices at a time.

    All numbers are float32; those of the weight are bfloat16's where `is_bfloat`.
    """
    for start in range(0, len(indices), size):
        stop = min(start + size, len(indices))
        for first in range(start, stop):
            index, before = indices[first], start
            while indices[before] != index:
                before += 1
            if before < first:
                continue
            sums[:] = np.float32(0)
            for place in range(first, stop):
                if indices[place] == index:
                    line = grad[place]
                    for column in range(len(sums)):
                        sums[column] += line[column]
            row = weight[index]
            for column in range(len(sums)):
                row[column] = _round(row[column] + _round(sums[column], is_bfloat), is_bfloat)
