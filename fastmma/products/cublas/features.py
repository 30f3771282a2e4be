"""Numbers about a product that a library's choice may depend on: sizes, alignments, tiles, and waves of tiles over multiprocessors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.rows import Product

_PROCESSORS = 132  # multiprocessors of an H100 SXM and an H200
# rows and columns of a tile of the result
_TILES = (
    (64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (256, 64), (128, 256), (256, 128),
    (128, 192), (192, 128), (32, 32), (16, 64), (64, 32), (96, 128), (256, 256),
)  # fmt: skip
_WAVES = ((64, 64), (128, 128), (128, 256), (64, 128), (128, 64))
_MOST_ALIGNED = 8  # in bits


def _alignment(size: NDArray[np.int64]) -> NDArray[np.float64]:
    """Count the factors of two of a size, at most eight."""
    return np.minimum(np.log2((size & -size).astype(np.float64)), _MOST_ALIGNED)


def measure(products: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Measure products: the rows of the result are what trees ask about.

    Parameters
    ----------
    products : (N, 5) array of integers
        Whether the columns of a are contiguous (2), or those of b (1), or of both (3); M, N, K; and how many are in a stack.

    Returns
    -------
    (N, 55) array of float32
        Their order is that of the numbers in the files of trees.

    Examples
    --------
    >>> measure(np.array([[1, 16, 4096, 4096, 1]]))[0, :8]
    array([1.600e+01, 4.096e+03, 4.096e+03, 0.000e+00, 1.000e+00, 4.000e+00,
           8.000e+00, 8.000e+00], dtype=float32)
    """
    layout, m, n, k, stack = (products[:, column].astype(np.int64) for column in range(5))
    by_column, by_row = layout >> 1, layout & 1
    results = m * n
    lead_a, lead_b = np.where(by_column, _alignment(m), _alignment(k)), np.where(by_row, _alignment(k), _alignment(n))
    tiles = {sides: -(-m // sides[0]) * -(-n // sides[1]) * stack for sides in _TILES}
    found: list[NDArray[Any]] = [m, n, k, by_column, by_row, _alignment(m), _alignment(n), _alignment(k), stack]
    found += [results, m / n, np.log(results.astype(float) * k), k / m, k / n, k / results.astype(float)]
    found += [np.minimum(m, n), np.maximum(m, n), lead_a, lead_b, np.minimum(np.minimum(lead_a, lead_b), _alignment(n))]
    found += list(tiles.values())
    for sides in _WAVES:
        count = tiles[sides]
        found += [-(-count // _PROCESSORS) / (count / float(_PROCESSORS)), _PROCESSORS // np.maximum(count, 1)]
    for side in (64, 128, 256):
        found += [(m - 1) % side + 1, (n - 1) % side + 1]
    found += [k % 32, k % 64, -(-k // 64), -(-k // 128)]
    return np.stack([each.astype(np.float32) for each in found], 1)


def numbers(product: Product, stack: int) -> NDArray[np.int64]:
    """Return a product as `measure` takes it."""
    layout = 2 * (product.layout[0] == "t") + (product.layout[1] == "t")
    return np.array([[layout, product.m, product.n, product.k, stack]])
