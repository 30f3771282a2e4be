"""Cuts of k that depend on the tile of the result: stream-K, and kernels that cut the tiles of their last wave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from fastmma.host.calls import named_fields
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import integer

Cuts = tuple[tuple[int, int], ...]

RASTERS = ("m", "n")
_LEAST = 4  # tiles, to which the width of a band is halved where fewer are left


class ByTile(ABC):
    """Cuts of k that are not those of all elements of a result."""

    @abstractmethod
    def blocks(self, rows: int, columns: int, depth: int) -> Iterator[tuple[slice, slice, Cuts]]:
        """Rows and columns of the result with the parts of k in which they are summed."""


@named_fields
@dataclass(frozen=True)
class StreamK(ByTile):
    """Stream-K: the k-tiles of all output tiles in a row, cut into one run of equal length for each CTA.

    An output tile whose k-tiles lie in several runs is the sum of the runs' parts, added in ascending order; each starts from zero.

    Attributes
    ----------
    tile : (int, int, int)
        M, N and K of a tile.
    ctas : int
        How many CTAs there are. If the k-tiles do not divide evenly, the first CTAs have one more.
    tiles : int, optional
        How many output tiles are streamed, from the first on; the others are computed whole. By default, all are streamed.
    raster : {"m", "n"}
        The dimension along which the next output tile lies.

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> for rows, columns, cuts in StreamK((128, 128, 32), 2).blocks(384, 128, 64):
    ...     print(rows, columns, cuts)
    slice(0, 128, None) slice(0, 128, None) ((0, 64),)
    slice(128, 256, None) slice(0, 128, None) ((0, 32), (32, 64))
    slice(256, 384, None) slice(0, 128, None) ((0, 64),)
    """

    tile: tuple[int, int, int]
    ctas: int
    tiles: int | None = None
    raster: str = "m"

    def __post_init__(self) -> None:
        if not isinstance(self.tile, list | tuple) or len(self.tile) != 3:
            raise OperandTypeError(f"StreamK: tile must be a tuple (m, n, k), not {self.tile!r:.200}")
        sizes = tuple(integer(size, f"StreamK: {name} of a tile", 1) for size, name in zip(self.tile, "mnk", strict=True))
        object.__setattr__(self, "tile", sizes)
        object.__setattr__(self, "ctas", integer(self.ctas, "StreamK: ctas", 1))
        if self.tiles is not None:
            object.__setattr__(self, "tiles", integer(self.tiles, "StreamK: tiles", 0))
        if not isinstance(self.raster, str) or self.raster not in RASTERS:
            raise OperandError(f"StreamK: raster must be {' or '.join(RASTERS)}, not {self.raster!r}")

    def __str__(self) -> str:
        m, n, k = self.tile
        streamed = "" if self.tiles is None else f", the first {self.tiles} of them"
        return f"stream-K: tiles of {m} x {n} x {k} along {self.raster}{streamed}, on {self.ctas} CTAs"

    def blocks(self, rows: int, columns: int, depth: int) -> Iterator[tuple[slice, slice, Cuts]]:
        """Rows and columns of the result with the parts of k in which they are summed; neighbours that are cut alike are one block."""
        m, n, k = self.tile
        waiting: dict[tuple[int, int, Cuts], int] = {}
        high, wide, deep = -(-rows // m), -(-columns // n), -(-depth // k)
        for column in range(wide):
            row, found = 0, dict[tuple[int, int, Cuts], int]()
            while row < high:
                first, cuts = row, self._cuts(row, column, (high, wide, deep), depth)
                while row < high and self._cuts(row, column, (high, wide, deep), depth) == cuts:
                    row += 1
                found[first, row, cuts] = waiting.pop((first, row, cuts), column)
            for (first, last, cuts), start in waiting.items():
                yield slice(first * m, min(last * m, rows)), slice(start * n, column * n), cuts
            waiting = found
        for (first, last, cuts), start in waiting.items():
            yield slice(first * m, min(last * m, rows)), slice(start * n, columns), cuts

    def _cuts(self, row: int, column: int, counts: tuple[int, int, int], depth: int) -> Cuts:
        """The parts of one output tile."""
        high, wide, deep = counts
        index = column * high + row if self.raster == "m" else row * wide + column
        streamed = high * wide if self.tiles is None else min(self.tiles, high * wide)
        if index >= streamed or not depth:
            return ((0, depth),)
        run, longer = divmod(streamed * deep, self.ctas)
        first, last = index * deep, (index + 1) * deep
        if not run:
            run, longer = 1, 0
        starts = {0}
        # runs begin every run + 1 k-tiles, and after the longer ones every run
        turn = longer * (run + 1)
        starts |= {place - first for place in range(-(-first // (run + 1)) * (run + 1), min(last, turn), run + 1)}
        later = max(first, turn)
        starts |= {place - first for place in range(turn + -(-(later - turn) // run) * run, last, run)}
        places = [start * self.tile[2] for start in sorted(starts)]
        return tuple(zip(places, [*places[1:], depth], strict=True))


@named_fields
@dataclass(frozen=True)
class LastWave(ByTile):
    """Kernels that cut the k of the tiles of their last wave, so that all multiprocessors work; all other tiles have one sum.

    Tiles follow one another along a dimension, in bands of so many side by side; every second band runs backwards.

    Attributes
    ----------
    tile : (int, int)
        Rows and columns of a tile, or of a cluster of tiles.
    wave : int
        How many tiles are computed at once. The tiles after the last whole wave are the last wave.
    parts : tuple of (start, stop)
        The parts into which tiles of the last wave cut k.
    raster : {"m", "n"}
        The dimension along which bands run.
    width : int
        How many tiles a band has side by side. If fewer are left, it is halved, down to 4.

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> for rows, columns, cuts in LastWave((128, 128), 4, ((0, 32), (32, 64))).blocks(384, 256, 64):
    ...     print(rows, columns, cuts)
    slice(0, 384, None) slice(0, 128, None) ((0, 64),)
    slice(256, 384, None) slice(128, 256, None) ((0, 64),)
    slice(0, 256, None) slice(128, 256, None) ((0, 32), (32, 64))
    """

    tile: tuple[int, int]
    wave: int
    parts: Cuts
    raster: str = "m"
    width: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.tile, list | tuple) or len(self.tile) != 2:
            raise OperandTypeError(f"LastWave: tile must be a tuple (m, n), not {self.tile!r:.200}")
        sizes = tuple(integer(size, f"LastWave: {name} of a tile", 1) for size, name in zip(self.tile, "mn", strict=True))
        object.__setattr__(self, "tile", sizes)
        object.__setattr__(self, "wave", integer(self.wave, "LastWave: wave", 1))
        object.__setattr__(self, "width", integer(self.width, "LastWave: width", 1))
        if not isinstance(self.parts, list | tuple) or not all(isinstance(part, list | tuple) and len(part) == 2 for part in self.parts):
            raise OperandTypeError(f"LastWave: parts must be a sequence of (start, stop), not {self.parts!r:.200}")
        plain = tuple((integer(start, "LastWave: start", 0), integer(stop, "LastWave: stop", 0)) for start, stop in self.parts)
        object.__setattr__(self, "parts", checked_cuts(plain, "LastWave"))
        if not isinstance(self.raster, str) or self.raster not in RASTERS:
            raise OperandError(f"LastWave: raster must be {' or '.join(RASTERS)}, not {self.raster!r}")

    def __str__(self) -> str:
        m, n = self.tile
        bands = f", in bands of {self.width} that run back and forth" if self.width > 1 else ", back and forth"
        cut = f"cut at {', '.join(str(start) for start, _ in self.parts[1:])} of {self.parts[-1][1]} k"
        return f"the last tiles of {m} x {n} along {self.raster}{bands}, which are left over of waves of {self.wave}: {cut}"

    def blocks(self, rows: int, columns: int, depth: int) -> Iterator[tuple[slice, slice, Cuts]]:
        """Rows and columns of the result with the parts of k in which they are summed.

        Raises
        ------
        OperandError
            If the parts do not end at this k.
        """
        if self.parts[-1][1] != depth:
            raise OperandError(f"split_k: the parts end at k = {self.parts[-1][1]}, but K is {depth}")
        turned = self.raster == "n"
        sizes, extents = (self.tile[::-1], (columns, rows)) if turned else (self.tile, (rows, columns))
        along, across = (-(-extent // size) for extent, size in zip(extents, sizes, strict=True))
        whole = along * across - along * across % self.wave
        for first, second, is_last in _regions(along, across, self.width, whole):
            places = [slice(a * size, min(b * size, extent)) for (a, b), size, extent in zip((first, second), sizes, extents, strict=True)]
            yield places[turned], places[not turned], self.parts if is_last else ((0, depth),)


Span = tuple[int, int]


def bands(across: int, width: int, least: int = _LEAST) -> tuple[Span, ...]:
    """Cut an extent into bands of a width, which is halved, down to `least`, where less is left.

    Examples
    --------
    >>> bands(15, 8), bands(15, 8, 1)
    (((0, 8), (8, 12), (12, 15)), ((0, 8), (8, 12), (12, 14), (14, 15)))
    """
    start, found = 0, list[Span]()
    while start < across:
        while width > least and across - start < width:
            width //= 2
        found.append((start, min(start + width, across)))
        start += width
    return tuple(found)


def _regions(along: int, across: int, width: int, whole: int) -> Iterator[tuple[Span, Span, bool]]:
    """Yield rectangles of tiles, along and across, and whether they come after so many."""
    cut = (*bands(across, width), (across, across))
    index = bisect_right([along * stop for _, stop in cut[:-1]], whole)
    start, stop = cut[index]
    first, rest = divmod(whole - along * start, max(stop - start, 1))
    others = first + (rest > 0)
    inside = [((0, first), (start, stop), False), ((others, along), (start, stop), True)]
    inside += [((first, others), (start, start + rest), False), ((first, others), (start + rest, stop), True)]
    found = [((0, along), (0, start), False), ((0, along), (stop, across), True)]
    found += [((along - high, along - low) if index % 2 else (low, high), beside, is_last) for (low, high), beside, is_last in inside]
    yield from (region for region in found if region[0][0] < region[0][1] and region[1][0] < region[1][1])


def checked_cuts(cuts: Cuts, what: str) -> Cuts:
    """Return parts of k.

    Raises
    ------
    OperandError
        Unless they lie side by side from 0 on, and all have k.
    """
    joined = all(one[1] == following[0] for one, following in pairwise(cuts))
    if not cuts or cuts[0][0] or not joined or any(start >= stop for start, stop in cuts):
        raise OperandError(f"{what}: parts must begin at 0, each where the one before ends, and have at least one k, unlike {cuts!s:.200}")
    return cuts
