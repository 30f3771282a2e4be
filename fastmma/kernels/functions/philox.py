"""Loops that draw numbers as CUDA's generator does: Philox 4x32 with 10 rounds, whose key is a seed.

The counter has the number of a thread's call, and the thread's own. Words are kept in 64 bits, in which vectors multiply.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma

_ROUNDS = 10
_FIRST, _SECOND = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # multipliers
_STEP, _OTHER_STEP = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # of the key
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@compiled
def draw(seed: Any, call: Any, words: Any, start: int, stop: int) -> None:
    """Draw `words` (call, word, thread) of the threads from `start` to `stop`; the first call has the number `call`."""
    for index in range(len(words)):
        first, second = words[index, 0, start:stop], words[index, 1, start:stop]
        third, fourth = words[index, 2, start:stop], words[index, 3, start:stop]
        number = np.uint64(call + np.uint64(index))
        for lane in range(stop - start):
            thread = np.uint64(start + lane)
            x, y, z, w = number & _LOW, number >> _HALF, thread & _LOW, thread >> _HALF
            key, other = seed & _LOW, seed >> _HALF
            for _ in range(_ROUNDS):
                low, high = x * _FIRST, z * _SECOND
                x, y = (high >> _HALF) ^ y ^ key, high & _LOW
                z, w = (low >> _HALF) ^ w ^ other, low & _LOW
                key, other = (key + _STEP) & _LOW, (other + _OTHER_STEP) & _LOW
            first[lane], second[lane], third[lane], fourth[lane] = np.uint32(x), np.uint32(y), np.uint32(z), np.uint32(w)


@compiled
def spread(values: Any, span: float, low: float) -> None:
    """Multiply each float64 number by a span, and add where it begins, rounded once."""
    for index in range(values.size):
        values[index] = fma(values[index], span, low)
