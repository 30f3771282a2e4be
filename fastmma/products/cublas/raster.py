"""The raster of kernels that cut the k of their last tiles: along which dimension tiles follow one another, and in how wide bands."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.products.by_tile import Cuts, LastWave, Span, bands
from fastmma.products.cublas.rows import Product

_WIDTHS = (1, 2, 4, 8, 16)
_LEAST = 4  # tiles of the narrowest bands
_LONG = 9  # tiles, from which on a kernel may go along the second dimension
_EXTENT = 512  # more rows and columns than for which the library takes bands of one cluster
_ITEM = 4
_CLUSTERS = (1, 2, 3, 4, 8)  # tiles of a cluster across a band, for which widths are known


class Grid(NamedTuple):
    """The tiles of a kernel that computes a product, or the transposed one.

    Attributes
    ----------
    tile, cluster : (int, int)
        Rows and columns of a tile, and tiles of a cluster.
    extents : (int, int)
        Rows and columns of what the kernel computes.
    wave : int
        How many clusters are computed at once.
    """

    tile: tuple[int, int]
    cluster: tuple[int, int]
    extents: tuple[int, int]
    wave: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Count tiles down and across."""
        return -(-self.extents[0] // self.tile[0]), -(-self.extents[1] // self.tile[1])

    @property
    def clusters(self) -> tuple[int, int]:
        """Count clusters down and across."""
        return -(-self.tiles[0] // self.cluster[0]), -(-self.tiles[1] // self.cluster[1])

    @property
    def size(self) -> int:
        """Count the tiles of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def has_whole_waves(self) -> bool:
        """Tell whether a wave comes before the last one."""
        return self.clusters[0] * self.clusters[1] > self.wave

    @property
    def last(self) -> int:
        """Count the tiles that are left over of whole waves."""
        return self.clusters[0] * self.clusters[1] % self.wave * self.size

    def is_uneven(self, *, in_bands: bool) -> bool:
        """Tell whether the last clusters of 3 or 6 tiles are not whole, down or in bands: some such kernels take another raster."""
        sides = zip(self.cluster, self.tiles, strict=True)
        down, across = (side % 3 == 0 and tiles % side > 0 for side, tiles in sides)
        return down or (across and in_bands)

    @property
    def sizes(self) -> tuple[int, int]:
        """Count rows and columns of a cluster."""
        return self.tile[0] * self.cluster[0], self.tile[1] * self.cluster[1]


def last_wave(grid: Grid, parts: Cuts, *, is_transposed: bool, in_bands: bool) -> LastWave | None:
    """Find which tiles of a kernel are the last ones, whose k is cut; None where it is not known.

    Parameters
    ----------
    grid : Grid
    parts : tuple of (start, stop)
    is_transposed : bool
        Whether the kernel's rows are the product's columns.
    in_bands : bool
        Whether bands may be wider than one cluster: CTA_SWIZZLING.

    Examples
    --------
    >>> grid = Grid((128, 128), (1, 2), (4132, 2212), 66)
    >>> last_wave(grid, ((0, 1280), (1280, 2580)), is_transposed=False, in_bands=True)
    LastWave(tile=(128, 256), wave=66, parts=((0, 1280), (1280, 2580)), raster='m', width=8)
    """
    if grid.is_uneven(in_bands=in_bands):
        return None
    down, across = grid.tiles
    along = int(grid.sizes[0] > grid.sizes[1] and across >= _LONG and 2 * down > across)
    beside, width = 1 - along, 1
    if in_bands:
        if grid.cluster[beside] not in _CLUSTERS:
            return None
        counts, sizes = grid.clusters, grid.sizes
        width = _width((counts[along], counts[beside]), (sizes[along], sizes[beside]), grid.cluster[beside], grid.wave)
    tile = (grid.sizes[1], grid.sizes[0]) if is_transposed else grid.sizes
    return LastWave(tile, grid.wave, parts, "mn"[along != is_transposed], width)


def takes_bands(product: Product, cache: int) -> bool:
    """Tell whether the library asks for wide bands: where the operands fill a GPU's cache of so many bytes.

    Examples
    --------
    >>> product = Product("tf32", "nt", 2380, 6196, 3380, "f32")
    >>> takes_bands(product, 60 << 20), takes_bands(product._replace(m=512), 60 << 20)
    (True, False)
    """
    return (product.m + product.n) * product.k * _ITEM >= cache and min(product.m, product.n) > _EXTENT


@lru_cache(1024)
def _width(counts: tuple[int, int], sizes: tuple[int, int], cluster: int, wave: int) -> int:
    """Find the width of bands whose waves read the fewest rows and columns; the widest of several."""
    least = max(1, _LEAST // cluster)
    tried = (width for width in _WIDTHS if width <= max(counts[1], least))
    return min(tried, key=lambda width: (_read(counts, sizes, bands(counts[1], width, least), wave), -width))


def _read(counts: tuple[int, int], sizes: tuple[int, int], cut: tuple[Span, ...], wave: int) -> int:
    """Count the rows and columns of operands that all waves read."""
    forth = np.arange(counts[0])
    along = np.concatenate([np.repeat(forth[:: -1 if index % 2 else 1], stop - start) for index, (start, stop) in enumerate(cut)])
    beside = np.concatenate([np.tile(np.arange(start, stop), counts[0]) for start, stop in cut])
    return _distinct(along, wave) * sizes[0] + _distinct(beside, wave) * sizes[1]


def _distinct(places: NDArray[np.int64], wave: int) -> int:
    """Count the different numbers of each wave."""
    return sum(len(np.unique(places[start : start + wave])) for start in range(0, len(places), wave))
