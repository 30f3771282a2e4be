"""Products by plans that cut k by the tile of the result, of which some rows and columns are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.by_tile import ByTile
from reference.cancelling import kept


def of_kept(plan: Any, shape: tuple[int, int, int], multiply: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
    """The rows and columns that are kept of a product of a shape (M, N, K), each as the plan adds it at its place."""
    if not isinstance(getattr(plan, "split_k", None), ByTile):
        return multiply(plan)
    rows, columns = kept(shape[0]), kept(shape[1])
    blocks = list(plan.split_k.blocks(*shape))
    found = {cuts: multiply(replace(plan, split_k=cuts if len(cuts) > 1 else 1)) for cuts in {cuts for *_, cuts in blocks}}
    result = np.empty_like(next(iter(found.values())))
    for down, across, cuts in blocks:
        inside = np.ix_(*((places >= where.start) & (places < where.stop) for places, where in ((rows, down), (columns, across))))
        result[inside] = found[cuts][inside]
    return result
