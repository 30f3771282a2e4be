"""Loops of Welford's recurrence, as threads of a GPU run it: mean, sum of squared differences and count of what each has seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma


@compiled
def join_values(values: Any, mean: Any, squares: Any, count: Any, start: int, stop: int) -> None:
    """Have each value join the moments of the next thread, the first one after the last; differences are divided by the count."""
    threads = mean.shape[1]
    for row in range(len(values)):
        for first in range(start, stop, threads):
            for thread in range(min(threads, stop - first)):
                value = values[row, first + thread]
                difference = value - mean[row, thread]
                count[row, thread] += np.float32(1)
                mean[row, thread] += difference / count[row, thread]
                squares[row, thread] = fma(difference, value - mean[row, thread], squares[row, thread])


@compiled
def join_vectors(values: Any, mean: Any, squares: Any, count: Any, size: int) -> None:
    """Have a vector of `size` values join the moments of the next thread; differences are multiplied by the count's reciprocal."""
    threads = mean.shape[1]
    for row in range(len(values)):
        for first in range(0, values.shape[1], threads * size):
            for thread in range(min(threads, (values.shape[1] - first) // size)):
                m, s, n = mean[row, thread], squares[row, thread], count[row, thread]
                for element in range(size):
                    value = values[row, first + thread * size + element]
                    difference = value - m
                    n += np.float32(1)
                    m = fma(difference, np.float32(1) / n, m)
                    s = fma(difference, value - m, s)
                mean[row, thread], squares[row, thread], count[row, thread] = m, s, n
