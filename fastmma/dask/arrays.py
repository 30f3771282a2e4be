"""Dask arrays as operands: checked, and cut into blocks of whole rows and columns."""

from __future__ import annotations

import math
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.gpus import keyword_hint


def dask_array(value: Any, what: str) -> Any:
    """A Dask array of known chunks; arrays of NumPy become one of a single chunk.

    Raises
    ------
    OperandError, OperandTypeError
    """
    if hint := keyword_hint(value):
        raise OperandTypeError(f"{what} must be an array, not {value!r}{hint}")
    if not isinstance(value, da.Array):
        value = da.from_array(as_array(value, what), chunks=-1)
    if any(math.isnan(extent) for extent in value.shape):
        raise OperandError(f"{what} has chunks of unknown sizes: call its compute_chunk_sizes() first")
    if value.dtype.kind in "OT":
        raise OperandTypeError(f"{what} must be an array of numbers, not of {value.dtype}")
    return value


def stands_for(array: Any) -> NDArray[Any]:
    """Zeros of the shape and the dtype of a Dask array, which take no memory."""
    return np.broadcast_to(np.zeros((), array.dtype), tuple(int(extent) for extent in array.shape))


def in_order(array: Any) -> NDArray[Any]:
    """Such an array whose rows are contiguous, as a plan is chosen from: nothing reads its elements, which are not there."""
    shape = tuple(int(extent) for extent in array.shape)
    strides = [array.dtype.itemsize * math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, array.dtype), shape, strides, writeable=False)


def rows_and_columns(a: Any, b: Any, chunks: Any) -> tuple[Any, Any]:
    """Operands whose rows, or columns, are cut as the result is to be.

    Raises
    ------
    OperandError
    """
    if chunks is None:
        return a, b
    try:
        rows, columns = da.core.normalize_chunks(chunks, (a.shape[0], b.shape[1]), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise OperandError(f"chunks must be those of the result, rows and columns: {error}") from None
    return a.rechunk({0: rows}), b.rechunk({1: columns})


def whole(array: Any, *dimensions: int) -> Any:
    """An array that is not cut along some dimensions."""
    return array.rechunk(dict.fromkeys(dimensions, -1))
