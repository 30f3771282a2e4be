"""Answers of a GPU's library for the linear layers of usual models, and a grid of others, by the number of rows and by any algorithm."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.choice_map import Runs, read_runs
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import Product

_FOLDER = Path(__file__).parents[1] / "books"
FILES = {("H200", "13.1"): "cublas_layers_h200_13_1.npz"}  # by GPU and version
NO_ANSWER = 65535
# rows that were asked of each layer: all, multiples of 8, of 64
ROWS = ((640, 1), (1024, 8), (4096, 64))
_OUTS = {"tf32": "f32", "e4m3": "bf16"}  # formats of results where they are not those of operands


class Layers:
    """Choices by type and sizes, read from a file part by part."""

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
        return read_runs(self._archive, name, "id", ROWS)

    def find(self, kind: str, product: Product, *, biased: bool = False) -> Choice | None:
        """Find what the library chose; None where nobody asked.

        Parameters
        ----------
        kind : str
            The type of the product, as books name it: ``"e4m3fast"`` with fast accumulation.
        product : Product
        biased : bool

        Examples
        --------
        >>> print(layers("cublas_layers_h200_13_1.npz").find("bf16", Product("bf16", "nt", 200, 7168, 16384, "bf16")))
        algo 66, stages 35
        """
        if product.out != _OUTS.get(product.fmt, product.fmt):
            return None
        runs = self._runs(f"{kind}_{product.layout}{'_bias' if biased else ''}")
        place = None if runs is None else runs.find(product.m, product.n, product.k)
        if place is None or place == NO_ANSWER:
            return None
        *row, workspace = self._choices[place].tolist()
        choice = Choice.of_row(tuple(row))
        return choice if workspace < 0 else replace(choice, workspace=workspace)


@lru_cache(8)
def layers(file: str) -> Layers:
    """Return the layers of a file that ships with fastmma."""
    return Layers(_FOLDER / file)
