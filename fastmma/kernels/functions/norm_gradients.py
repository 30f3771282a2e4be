"""Loops of the gradients of layer norm and RMS norm, as threads of a GPU run them."""

from __future__ import annotations

from typing import Any

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma


@compiled
def add_along_rows(grad: Any, x: Any, weight: Any, mean: Any, rstd: Any, sums: Any, products: Any, size: int) -> None:
    """Add gradients, and their products with the normalized input, to the sums of threads, which take `size` columns at a time."""
    threads, columns = sums.shape[1], x.shape[1]
    for row in range(len(x)):
        for first in range(0, columns, threads * size):
            for thread in range(min(threads, (columns - first + size - 1) // size)):
                total, product = sums[row, thread], products[row, thread]
                start = first + thread * size
                for column in range(start, min(start + size, columns)):
                    weighted = grad[row, column] * weight[column]
                    total += weighted
                    product = fma(weighted * (x[row, column] - mean[row]), rstd[row], product)
                sums[row, thread], products[row, thread] = total, product


@compiled
def add_along_columns(grad: Any, x: Any, mean: Any, rstd: Any, products: Any, sums: Any, size: int) -> None:
    """Add gradients of weights and of biases to the sums of the threads of a column, which take `size` rows at a time."""
    height, columns = sums.shape
    for row in range(len(x)):
        thread = row // size % height
        for column in range(columns):
            scaled = grad[row, column] * (x[row, column] - mean[row])
            products[thread, column] = fma(scaled, rstd[row], products[thread, column])
            sums[thread, column] += grad[row, column]
