"""Sums of the gradients of layer norm and RMS norm, as threads of a GPU add them."""

from __future__ import annotations

from typing import Any

from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma


@compiled
def add_along_rows(grad: Any, x: Any, weight: Any, mean: Any, rstd: Any, sums: Any, products: Any) -> None:
    """Add gradients, and their products with the normalized input, to the sums of threads, which take 4 columns at a time."""
    size = 4  # of which a compiler takes several threads at once
    threads, columns = sums.shape[1], x.shape[1]
    for row in range(len(x)):
        total, product = sums[row], products[row]
        center, scale = mean[row], rstd[row]
        for first in range(0, columns, threads * size):
            stop = min(first + threads * size, columns)
            dy, given, factor = grad[row, first:stop], x[row, first:stop], weight[first:stop]
            for element in range(size):
                for thread in range((stop - first - element + size - 1) // size):
                    column = thread * size + element
                    weighted = dy[column] * factor[column]
                    total[thread] += weighted
                    product[thread] = fma(weighted * (given[column] - center), scale, product[thread])


@compiled
def add_along_columns(grad: Any, x: Any, mean: Any, rstd: Any, products: Any, sums: Any, size: int) -> None:
    """Add gradients of weights and of biases to the sums of the threads of a column, which take `size` rows at a time."""
    height = len(sums)
    for row in range(len(x)):
        thread = row // size % height
        product, total, dy, given = products[thread], sums[thread], grad[row], x[row]
        center, scale = mean[row], rstd[row]
        for column in range(len(dy)):
            product[column] = fma(dy[column] * (given[column] - center), scale, product[column])
            total[column] += dy[column]
