"""What a GPU's library answered for the layers of usual models, where its algorithm is another than the one of the map of parts."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.choice_map import Runs, read_runs
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import Product

_FOLDER = Path(__file__).parents[1] / "books"
_IN_MAP = 66  # choices of this algorithm are in the map of parts


class Answers:
    """Choices by type, layout and sizes, read from a file part by part."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _archive(self) -> Any:
        return np.load(self._path, allow_pickle=False)

    @cached_property
    def _choices(self) -> NDArray[np.int16]:
        choices: NDArray[np.int16] = self._archive["choices"]
        return choices

    @lru_cache(64)  # noqa: B019 - there is one object a file
    def _runs(self, name: str) -> Runs | None:
        return read_runs(self._archive, name, "id")

    def find(self, product: Product) -> Choice | None:
        """Find what the library chose; None where nobody asked, or the choice is in the map of parts.

        Examples
        --------
        >>> print(answers("cublas_algorithms_h200_13_1.npz").find(Product("f32", "nt", 16, 4096, 4096, "f32")))
        algo 55, split_k 8, reduction 2, stages 31
        """
        if product.out != ("f32" if product.fmt == "tf32" else product.fmt):
            return None
        runs = self._runs(f"{product.fmt}_{product.layout}")
        place = None if runs is None else runs.find(product.m, product.n, product.k)
        row = None if place is None else self._choices[place].tolist()
        return None if row is None or row[0] == _IN_MAP else Choice.of_row(tuple(row))


@lru_cache(8)
def answers(file: str) -> Answers:
    """Return the answers of a file that ships with fastmma."""
    return Answers(_FOLDER / file)
