"""Narrow elements packed into words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.llvm.compilation import compiled


@compiled
def expand_bits(words: NDArray[np.uint32], bits: int, codes: NDArray[np.uint8]) -> None:
    """Unpack elements of 1 or 4 bits, lowest first, into a byte each."""
    per_word = 32 // bits
    mask = np.uint32((1 << bits) - 1)
    for i in range(words.shape[0]):
        word = words[i]
        for element in range(per_word):
            codes[i * per_word + element] = (word >> np.uint32(element * bits)) & mask


@compiled
def pack_bits(codes: NDArray[np.uint8], bits: int, words: NDArray[np.uint32]) -> None:
    """Pack elements of 1 or 4 bits, a byte each, lowest first: the inverse of `expand_bits`."""
    per_word = 32 // bits
    mask = np.uint32((1 << bits) - 1)
    for i in range(words.shape[0]):
        word = np.uint32(0)
        for element in range(per_word):
            word |= (np.uint32(codes[i * per_word + element]) & mask) << np.uint32(element * bits)
        words[i] = word
