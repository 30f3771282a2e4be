"""Rows of scores that come block by block: their exponentials, with the maxima and the sums of those so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.functions.attention.operands import Array, Floats
from fastmma.functions.special import ex2
from fastmma.host.threads import parallel_for


class Running:
    """Maxima of rows, and sums of exponentials of what scores exceed these.

    Attributes
    ----------
    top : array (head, row)
        Maxima.
    sums : array (head, row), or (head, row, threads that share it)
    """

    def __init__(self, heads: int, rows: int, *lanes: int) -> None:
        self.top: Floats = np.full((heads, rows), np.float32(-np.inf))
        self.sums: Floats = np.zeros((heads, rows, *lanes), np.float32)

    def take(
        self,
        scores: Floats,
        visible: Array,
        scale: np.float32,
        adds: Any,
        threads: int,
        *,
        rows: slice = slice(None),
        apart: bool = False,
        flush: bool = False,
    ) -> tuple[Floats, Floats]:
        """Take scores of a block of columns, which are lost.

        Parameters
        ----------
        scores : array (head, row, column)
        visible : array (row,)
            How many columns each row sees.
        scale : float32
            Of scores, for exponentials to base 2.
        adds : function
            The kernel that multiplies sums by factors and adds exponentials.
        threads : int
        rows : slice
            Which rows see the block.
        apart : bool
            The old maximum and the new one are each multiplied by the scale, not their difference.
        flush : bool
            Whether exponentials below the normal numbers are zeros.

        Returns
        -------
        exponentials : array (head, row, column)
        factors : array (head, row, 1)
            What results of the blocks before are to be multiplied by.
        """
        from fastmma.kernels.functions import attention as kernels

        top, sums = self.top[:, rows].copy(), self.sums[:, rows].copy()
        exponents = np.empty(top.shape, np.float32)
        _each_head(kernels.subtract_maxima, threads, scores, visible, scale, apart, top, exponents)
        exponentials, factors = ex2(scores, flush=flush), ex2(exponents, flush=flush)
        _each_head(adds, threads, exponentials, factors, sums)
        self.top[:, rows], self.sums[:, rows] = top, sums
        return exponentials, factors[..., None]


def _each_head(kernel: Any, threads: int, *arrays: Any) -> None:
    """Run a kernel on the heads of arrays of at least two dimensions; others are passed as they are."""
    first = next(each for each in arrays if isinstance(each, np.ndarray))

    def work(start: int, stop: int, _: int) -> None:
        kernel(*(each[start:stop] if isinstance(each, np.ndarray) and each.ndim > 1 else each for each in arrays))

    parallel_for(work, len(first), threads)
