"""Segments of k: kernels that cut the k of their last tiles, so that all multiprocessors work, into parts that their choices do not say."""

from __future__ import annotations

from itertools import pairwise

from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import Product, Segments
from fastmma.products.order import Cuts

# rows and columns of a tile of the result, column-major as cuBLASLt has it, by their numbers in cublasLtMatmulTile_t
TILES = {15: (64, 64), 17: (64, 128), 18: (128, 64), 19: (64, 256), 20: (128, 128), 21: (256, 64), 23: (128, 256), 24: (256, 128)}
# tiles of a cluster, by their numbers in cublasLtClusterShape_t
CLUSTERS = (
    {2: (1, 1), 3: (2, 1), 4: (4, 1), 5: (1, 2), 6: (2, 2), 7: (4, 2), 8: (1, 4), 9: (2, 4), 10: (4, 4), 11: (8, 1), 12: (1, 8)}
    | {13: (8, 2), 14: (2, 8), 15: (16, 1), 16: (1, 16), 17: (3, 1), 18: (5, 1), 19: (6, 1), 20: (7, 1), 28: (2, 3), 32: (1, 3)}
    | {38: (1, 5), 41: (1, 6), 43: (1, 7)}
)
_K, _MOST = 32, 64  # k of a tile; parts that are tried
_ITEM = 4  # bytes of a sum


def cut_segments(segments: Segments, choice: Choice, product: Product) -> Cuts | None:
    """Cut k as such a kernel does; None where it is not known, or not alike for all elements.

    Examples
    --------
    >>> every = Segments({2: 132}, {}, (50, 450), (50, 190))
    >>> choice = Choice(43, tile=20, split_k=-1, reduction=2, stages=34, cluster=3)
    >>> cut_segments(every, choice, Product("tf32", "nt", 128, 8192, 4096, "f32"))
    ((0, 2048), (2048, 4096))
    >>> cut_segments(every, choice, Product("tf32", "nt", 256, 8192, 4096, "f32"))
    ((0, 4096),)
    """
    tile, cluster = TILES.get(choice.tile), CLUSTERS.get(choice.cluster)
    if tile is None or cluster is None or product.stacked:
        return None
    if product.layout == "nn":  # such kernels compute the transposed product
        tile, cluster = (tile[1], tile[0]), (cluster[1], cluster[0])
    sides = (min(tile), max(tile))
    size = cluster[0] * cluster[1]
    filled = segments.filled.get(size)
    if filled is None or (size, sides) in segments.unlike:
        return None
    tiles = _padded(product.n, tile[0], cluster[0]) * _padded(product.m, tile[1], cluster[1])
    last = tiles % filled
    most = min(filled // last, _MOST) if last else 1
    costs = segments.costs_after_waves if tiles > filled else segments.costs.get(sides, segments.other_costs)
    depth = -(-product.k // _K)
    few, many = (_fastest(depth, most, cost) for cost in costs)
    if few != many or (tiles > filled and few > 1) or few >= segments.most_parts + (choice.workspace is not None):
        return None
    # the parts of all tiles wait in the workspace, in float32
    if choice.workspace is not None and max(choice.workspace // (_ITEM * tile[0] * tile[1] * tiles), 1) != few:
        return None
    each, longer = divmod(depth, few)  # the last parts are longer by a tile of k
    places = [(part * each + max(part - (few - longer), 0)) * _K for part in range(few)]
    return tuple(pairwise([*places, product.k]))


def _padded(extent: int, tile: int, cluster: int) -> int:
    """Count the tiles along an extent, of which clusters have whole numbers."""
    return -(-extent // (tile * cluster)) * cluster


def _fastest(depth: int, most: int, cost: int) -> int:
    """Find how many parts take the least time."""
    return min(range(1, most + 1), key=lambda parts: (10 * depth + cost * parts * (parts - 1).bit_length()) / parts)
