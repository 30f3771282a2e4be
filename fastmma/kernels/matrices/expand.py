"""Sparse rows to dense rows: stored elements put where their metadata says, zeros elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.llvm.compilation import compiled


@compiled
def expand(stored: NDArray[Any], words: NDArray[np.uint8], places: NDArray[np.int8], chunk: int, dense: NDArray[Any]) -> None:
    """`stored` (rows, k / 2) and 4-bit `words` (rows, k / chunk) to `dense` (rows, k); ``places[word]`` are the places in a chunk."""
    per_chunk = places.shape[1]
    for i in range(stored.shape[0]):
        for j in range(words.shape[1]):
            for place in range(chunk):
                dense[i, j * chunk + place] = 0
            for element in range(per_chunk):
                dense[i, j * chunk + places[words[i, j], element]] = stored[i, j * per_chunk + element]
