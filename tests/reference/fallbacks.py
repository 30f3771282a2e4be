"""What a kernel leaves out, computed by something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from fastmma.kernels.macro_tiles import FallbackMask


def fall_back(mask: FallbackMask, out: NDArray[Any], compute: Callable[[Any, Any, NDArray[Any]], None]) -> None:
    """Call ``compute(rows, columns, results)`` for all that is marked."""
    for rows, columns in mask.places():
        results = out[rows, columns]  # a copy where rows or columns lie apart
        compute(rows, columns, results)
        out[rows, columns] = results
