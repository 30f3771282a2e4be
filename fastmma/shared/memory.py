"""Shared memory as an array of bytes, and the elements that are put there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.formats import Format


def memory_bytes(memory: Any, what: str) -> NDArray[np.uint8]:
    """Memory as an array (..., bytes) of uint8.

    Raises
    ------
    OperandTypeError, OperandError
    """
    array = as_array(memory, f"{what}: memory")
    if array.dtype != np.uint8:
        raise OperandTypeError(f"{what}: memory must have dtype uint8, not {array.dtype}")
    if array.ndim < 1:
        raise OperandError(f"{what}: memory must have shape (..., bytes), not ()")
    return array


def elements_of(value: Any, fmt: Format, what: str) -> NDArray[Any]:
    """Elements as an array in the dtype of their format, which nothing casts.

    Raises
    ------
    OperandTypeError
    """
    array = as_array(value, what)
    if array.dtype.newbyteorder("=") != fmt.dtype:
        raise OperandTypeError(f"{what} must have dtype {fmt.dtype}, not {array.dtype}")
    return array
