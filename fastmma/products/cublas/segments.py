"""Segments of k: kernels that cut the k of their last tiles, so that all multiprocessors work, into parts that choices do not say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from fastmma.products.by_tile import Cuts, LastWave
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.raster import Grid, last_wave
from fastmma.products.cublas.rows import Product, Segments

# rows and columns of a tile of the result, column-major as cuBLASLt has it, by their numbers in cublasLtMatmulTile_t
TILES = {15: (64, 64), 17: (64, 128), 18: (128, 64), 19: (64, 256), 20: (128, 128), 21: (256, 64), 23: (128, 256), 24: (256, 128)}
# tiles of a cluster, by their numbers in cublasLtClusterShape_t
CLUSTERS = (
    {2: (1, 1), 3: (2, 1), 4: (4, 1), 5: (1, 2), 6: (2, 2), 7: (4, 2), 8: (1, 4), 9: (2, 4), 10: (4, 4), 11: (8, 1), 12: (1, 8)}
    | {13: (8, 2), 14: (2, 8), 15: (16, 1), 16: (1, 16), 17: (3, 1), 18: (5, 1), 19: (6, 1), 20: (7, 1), 28: (2, 3), 32: (1, 3)}
    | {38: (1, 5), 41: (1, 6), 43: (1, 7)}
)
_MOST = 64  # parts that are tried
_ITEM = 4  # bytes of a sum
_JOINED = 8  # parts of the only wave, of which more were not recorded; as many were where the workspace says them


def cut_segments(segments: Segments, choice: Choice, product: Product) -> Cuts | LastWave | None:
    """Cut k as such a kernel does; None where it is not known.

    Examples
    --------
    >>> every = Segments({2: 132}, {}, (50, 450), (10, 150))
    >>> choice = Choice(43, tile=20, split_k=-1, reduction=2, stages=34, cluster=3)
    >>> cut_segments(every, choice, Product("tf32", "nt", 128, 8192, 4096, "f32"))
    ((0, 2048), (2048, 4096))
    >>> cut_segments(every, choice, Product("tf32", "nt", 256, 8192, 4096, "f32"))
    ((0, 4096),)
    >>> print(cut_segments(every, choice, Product("tf32", "nt", 640, 8192, 8192, "f32")))
    the last tiles of 128 x 256 along n, back and forth, which are left over of waves of 66: cut at 4096 of 8192 k
    """
    grid = _grid(segments, choice, product)
    if grid is None:
        return None
    depth = -(-product.k // segments.depth)
    few = _parts(segments, choice, grid, depth)
    if few is None or (not grid.has_whole_waves and few >= _JOINED + (choice.workspace is not None)):
        return None
    each, longer = divmod(depth, few)  # the last parts are longer by a tile of k
    places = [(part * each + max(part - (few - longer), 0)) * segments.depth for part in range(few)]
    cuts = tuple(pairwise([*places, product.k]))
    if few == 1 or not grid.has_whole_waves:
        return cuts
    return last_wave(grid, cuts, is_transposed=product.layout not in segments.as_is, in_bands=bool(choice.swizzle))


def expect_workspace(segments: Segments, choice: Choice, product: Product) -> Choice:
    """Give a choice the workspace of as many parts as kernels mostly take, where it is not known how many they are.

    Examples
    --------
    >>> every = Segments({2: 132}, {}, (50, 450), (10, 150), usual_cost=60)
    >>> choice = Choice(43, tile=20, split_k=-1, reduction=2, stages=34, cluster=3)
    >>> expect_workspace(every, choice, Product("tf32", "nt", 640, 8192, 512, "f32")).workspace
    7340032
    """
    grid = _grid(segments, choice, product)
    depth = -(-product.k // segments.depth)
    if grid is None or choice.workspace is not None or choice.split_k > 0 or _parts(segments, choice, grid, depth) is not None:
        return choice
    few = _fastest(depth, min(grid.wave * grid.size // grid.last, _MOST), segments.usual_cost, whole=True)
    return replace(choice, workspace=_ITEM * grid.tile[0] * grid.tile[1] * grid.last * few if few > 1 else 0)


def _grid(segments: Segments, choice: Choice, product: Product) -> Grid | None:
    """Find the tiles of a kernel, which computes most products transposed."""
    tile, cluster = TILES.get(choice.tile), CLUSTERS.get(choice.cluster)
    if tile is None or cluster is None or product.stacked:
        return None
    size = cluster[0] * cluster[1]
    extents = (product.m, product.n) if product.layout in segments.as_is else (product.n, product.m)
    return Grid(tile, cluster, extents, segments.filled[size] // size) if size in segments.filled else None


def _parts(segments: Segments, choice: Choice, grid: Grid, depth: int) -> int | None:
    """Find in how many parts the k of the last tiles are cut, of so many tiles of k; None where it is not known."""
    tile, last = grid.tile, grid.last
    if not last:
        return 1
    if choice.workspace is not None:  # the parts of the last tiles wait there, in float32
        found = max(choice.workspace // (_ITEM * tile[0] * tile[1] * last), 1)
        return found if found * last <= grid.wave * grid.size else None
    sides, whole = (min(tile), max(tile)), grid.has_whole_waves
    if (grid.size, sides) in segments.unlike and not whole:
        return None
    most = min(grid.wave * grid.size // last, _MOST)
    costs = segments.costs_after_waves if whole else segments.costs.get(sides, segments.other_costs)
    few, many = (_fastest(depth, most, cost, whole=whole) for cost in costs)
    return few if few == many else None


def _fastest(depth: int, most: int, cost: int, *, whole: bool) -> int:
    """Find how many parts take the least time: in whole tiles of k, or on average."""
    return min(
        range(1, most + 1),
        key=lambda parts: (-(-depth // parts) if whole else depth / parts) * 10 + cost * (parts - 1).bit_length(),
    )
