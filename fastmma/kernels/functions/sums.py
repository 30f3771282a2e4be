"""Loops that add as threads of a GPU do: rows of values join the sums that threads keep, one after another.

Rows lie in the first dimension; sums of a row's threads lie in the second dimension of `sums`. Values from `start` to `stop` are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma


@compiled
def add_strided(values: Any, sums: Any, start: int, stop: int) -> None:
    """Add each value to the sum of the next thread, the first one after the last."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                kept[thread] += part[thread]


@compiled
def add_rows(values: Any, sums: Any) -> None:
    """Add rows of matrices, each to the next row of sums, the first one after the last."""
    for matrix in range(len(values)):
        kept = sums[matrix]
        for row in range(values.shape[1]):
            total, part = kept[row % len(kept)], values[matrix, row]
            for column in range(len(part)):
                total[column] += part[column]


@compiled
def add_squares(values: Any, sums: Any, start: int, stop: int) -> None:
    """Add squares as `add_strided` adds values, each by one fused multiply-add."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                kept[thread] = fma(part[thread], part[thread], kept[thread])


@compiled
def add_magnitudes(values: Any, sums: Any, start: int, stop: int) -> None:
    """Add magnitudes as `add_strided` adds values."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                kept[thread] += abs(part[thread])


@compiled
def add_products(values: Any, factors: Any, sums: Any, start: int, stop: int) -> None:
    """Add products of two arrays as `add_strided` adds values, each by one fused multiply-add."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            other = factors[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                kept[thread] = fma(part[thread], other[thread], kept[thread])


@compiled
def keep_largest(values: Any, sums: Any, start: int, stop: int) -> None:
    """Keep the larger one, or NaN, of what a thread has and its next value."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                if not (np.isnan(kept[thread]) or kept[thread] > part[thread]):
                    kept[thread] = part[thread]


@compiled
def keep_smallest(values: Any, sums: Any, start: int, stop: int) -> None:
    """Keep the smaller one, or NaN, of what a thread has and its next value."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                if not (np.isnan(kept[thread]) or kept[thread] < part[thread]):
                    kept[thread] = part[thread]


@compiled
def multiply_strided(values: Any, sums: Any, start: int, stop: int) -> None:
    """Multiply the product of the next thread by each value, the first one after the last."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                kept[thread] *= part[thread]


@compiled
def add_vectors(values: Any, sums: Any, start: int, stop: int, size: int) -> None:
    """Add a vector of `size` values, in order, to the sum of the next thread."""
    threads = sums.shape[1]
    for row in range(len(values)):
        for first in range(start, stop, threads * size):
            for thread in range(min(threads, (stop - first) // size)):
                total = sums[row, thread]
                for element in range(size):
                    total += values[row, first + thread * size + element]
                sums[row, thread] = total


@compiled
def add_square_vectors(values: Any, sums: Any, start: int, stop: int, size: int) -> None:
    """Add squares as `add_vectors` adds values, each by one fused multiply-add."""
    threads = sums.shape[1]
    for row in range(len(values)):
        for first in range(start, stop, threads * size):
            for thread in range(min(threads, (stop - first) // size)):
                total = sums[row, thread]
                for element in range(size):
                    value = values[row, first + thread * size + element]
                    total = fma(value, value, total)
                sums[row, thread] = total


@compiled
def multiply_add(a: Any, b: Any, c: Any, out: Any) -> None:
    """Compute ``a * b + c`` of each element, rounded once."""
    for index in range(out.size):
        out[index] = fma(a[index], b[index], c[index])
