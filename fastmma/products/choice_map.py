"""The map of a library's choices: in how many parts it takes k, as a GPU answered for each product without running it."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FOLDER = Path(__file__).parent / "books"
OTHER, NOT_ASKED = 0, 255  # a kernel that adds otherwise; no answer
# rows that were asked of each layer: all, multiples of 8, of 64
ASKED = ((1024, 1), (4096, 8), (16384, 64))
_GRID_STEP, _GRID_N, _GRID_K, _GRID_ROWS = 64, (64, 16384), (2624, 16384), 128


class Runs(NamedTuple):
    """Layers of some type and layout: each has runs of rows of which the library answered alike."""

    keys: NDArray[np.int64]  # of layers, in ascending order: N * 2**32 + K
    layer: NDArray[np.int64]  # the number of the layer of each key
    first: NDArray[np.int32]  # run of each layer, and the number of all
    row: NDArray[np.uint16]  # first row of each run
    answer: NDArray[np.uint8] | NDArray[np.uint16]
    asked: tuple[tuple[int, int], ...] = ASKED  # up to how many rows multiples of a number were asked

    @property
    def sizes(self) -> NDArray[np.int64]:
        """N and K of the layers, a row each, by their numbers."""
        return np.stack([self.keys >> 32, self.keys & 0xFFFFFFFF], 1)[np.argsort(self.layer)]

    def find(self, m: int, n: int, k: int) -> int | None:
        """Find the answer for a product; None where nobody asked."""
        key = (n << 32) + k
        place = int(self.keys.searchsorted(key))
        if place == len(self.keys) or self.keys[place] != key or m < 1 or not any(m <= most and m % step == 0 for most, step in self.asked):
            return None
        layer = self.layer[place]
        begin, end = self.first[layer], self.first[layer + 1]
        run = begin + np.searchsorted(self.row[begin:end], m, "right") - 1
        return int(self.answer[run])


def read_runs(archive: Any, name: str, answer: str, asked: tuple[tuple[int, int], ...] = ASKED) -> Runs | None:
    """Read the runs of some type and layout from an archive; None where it has none."""
    if f"{name}_nk" not in archive:
        return None
    nk, first, row, answers = (archive[f"{name}_{part}"] for part in ("nk", "first", "row", answer))
    keys = (nk[:, 0].astype(np.int64) << 32) + nk[:, 1]
    layer = np.argsort(keys, kind="stable")
    return Runs(keys[layer], layer, first, row, answers, asked)


class Grid(NamedTuple):
    """Layers of all N and K that are multiples of 64, for up to 128 rows."""

    ids: NDArray[np.uint16]  # sequence, by N and K
    sequences: NDArray[np.uint8]  # parts, by the number of rows

    def find(self, m: int, n: int, k: int) -> int:
        """Find the parts of a product; `NOT_ASKED` where nobody asked."""
        inside = 1 <= m <= _GRID_ROWS and _GRID_N[0] <= n <= _GRID_N[1] and _GRID_K[0] <= k <= _GRID_K[1]
        if not inside or n % _GRID_STEP or k % _GRID_STEP:
            return NOT_ASKED
        return int(self.sequences[self.ids[(n - _GRID_N[0]) // _GRID_STEP, (k - _GRID_K[0]) // _GRID_STEP], m - 1])


class ChoiceMap:
    """What a GPU's library answered, read from a file part by part."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _archive(self) -> Any:
        return np.load(self._path, allow_pickle=False)

    @lru_cache(256)  # noqa: B019 - there is one map a file
    def _runs(self, name: str) -> Runs | None:
        return read_runs(self._archive, name, "parts")

    @lru_cache(256)  # noqa: B019
    def _grid(self, name: str) -> Grid | None:
        if f"grid_{name}_ids" not in self._archive:
            return None
        return Grid(self._archive[f"grid_{name}_ids"], self._archive[f"grid_{name}_sequences"])

    def find(self, fmt: str, layout: str, m: int, n: int, k: int, *, biased: bool = False) -> int | None:
        """Find in how many parts the library takes k.

        Parameters
        ----------
        fmt : str
            Of the multiplicands: ``"bf16"``, ``"f16"``, ``"e4m3"``, or ``"e4m3fast"`` with fast accumulation.
        layout : str
            Of a and b: n where rows are contiguous, t where columns are.
        m, n, k : int
        biased : bool

        Returns
        -------
        int or None
            None where nobody asked, or the library takes a kernel that adds otherwise.

        Examples
        --------
        >>> choice_map("cublas_choices_h200_13_1.npz").find("bf16", "nt", 16, 4096, 4096)
        2
        >>> choice_map("cublas_choices_h200_13_1.npz").find("bf16", "nt", 16, 4096, 4097)
        """
        runs = self._runs(f"{fmt}_{layout}{'_bias' if biased else ''}")
        found = None if runs is None else runs.find(m, n, k)
        if found in (None, NOT_ASKED) and layout == "nt" and not biased:
            grid = self._grid(fmt)
            found = None if grid is None else grid.find(m, n, k)
        return None if found in (OTHER, NOT_ASKED) else found


@lru_cache(8)
def choice_map(file: str) -> ChoiceMap:
    """Return the map of a file that ships with fastmma."""
    return ChoiceMap(_FOLDER / file)
