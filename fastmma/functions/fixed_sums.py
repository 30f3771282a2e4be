"""Sums and means of one form, of rows that lie one after another, each of which a block of a GPU adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions.arithmetic import F32
from fastmma.functions.reduce_threads import RowSums, row_sums
from fastmma.host.addresses import address_of


class FixedSum:
    """A sum of each row, or its mean, where only the addresses of arrays change.

    Parameters
    ----------
    form : RowSums
    dtype : dtype
        Of arrays and of results.
    mean : bool
    """

    def __init__(self, form: RowSums, dtype: np.dtype[Any], mean: bool) -> None:
        self._form, self._is_wide = form, dtype == F32
        self._share = np.float32(form.rows) / np.float32(form.rows * form.columns) if mean else None
        self._widen = kernels.functions.apply.applied("rounded", (), ((dtype, (form.rows * form.columns,)),), F32)
        self._round = kernels.functions.apply.applied("rounded", (), ((F32, (form.rows,)),), dtype)

    def __call__(self, x: NDArray[Any], out: int) -> None:
        """Write the results of an array to an address."""
        rows, columns, shifts, block = self._form
        values, sums = x.reshape(rows, columns), np.empty(rows, np.float32)
        if not self._is_wide:
            values = np.empty((rows, columns), np.float32)
            self._widen.run((address_of(x),), address_of(values), 1)
        kernels.functions.sums.add_block_rows(values, shifts, *block, sums)
        if self._share is not None:
            sums *= self._share
        self._round.run((address_of(sums),), out, 1)


def fixed_sum(x: NDArray[Any], axes: Sequence[int] | None, offset: int, *, mean: bool) -> FixedSum | None:
    """Return what sums arrays that lie as `x` does, `offset` elements after an aligned address; None where these are no such rows."""
    form = row_sums(x, axes, offset)
    return None if form is None else FixedSum(form, x.dtype, mean)
