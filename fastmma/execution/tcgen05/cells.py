"""Tensor Memory as an array, the addresses of its cells, and the checks of both."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES


class Address(NamedTuple):
    """Lanes and columns of one or more addresses: integers, or arrays of a shape."""

    lane: NDArray[np.int64]
    column: NDArray[np.int64]


def tensor_memory(tmem: Any, what: str, ctas: int = 0) -> NDArray[np.uint32]:
    """Tensor Memory as an array (..., 128, 512) of uint32, with a dimension of CTAs before them where that is not 0.

    Raises
    ------
    OperandTypeError, OperandError
    """
    array = as_array(tmem, f"{what}: tmem")
    if array.dtype.newbyteorder("=") != np.uint32:
        raise OperandTypeError(f"{what}: tmem must have dtype uint32, not {array.dtype}")
    tail = (ctas, LANES, COLUMNS) if ctas else (LANES, COLUMNS)
    if array.shape[-len(tail) :] != tail:
        raise OperandError(f"{what}: tmem must have shape (..., {', '.join(map(str, tail))}), not {array.shape}")
    return array.astype(np.uint32, copy=False)


def addresses(taddr: Any, what: str) -> Address:
    """Addresses taken apart: the lane in the upper 16 bits, the column in the lower ones.

    Raises
    ------
    OperandTypeError, OperandError
        If they are no integers, or one of them is outside Tensor Memory.
    """
    array = as_array(taddr, what)
    if array.dtype.kind not in "ui":
        raise OperandTypeError(f"{what} must be an integer, not {array.dtype if array.ndim else repr(taddr)}")
    wrong = (array < 0) | (array > (1 << 32) - 1)
    wide = np.where(wrong, 0, array).astype(np.int64)
    found = Address(wide >> 16, wide & 0xFFFF)
    wrong |= (found.lane >= LANES) | (found.column >= COLUMNS)
    if wrong.any():
        bad = int(np.asarray(array)[tuple(np.argwhere(wrong)[0])])
        place = f" (lane {bad >> 16}, column {bad & 0xFFFF})" if 0 <= bad < 1 << 32 else ""
        raise OperandError(f"{what}: {bad:#010x}{place} is outside the {LANES} lanes and {COLUMNS} columns of Tensor Memory")
    return found


def address(taddr: Any, what: str) -> tuple[int, int]:
    """Lane and column of a single address.

    Raises
    ------
    OperandTypeError, OperandError
    """
    found = addresses(taddr, what)
    if found.lane.ndim:
        raise OperandError(f"{what} must be one address, not an array of shape {found.lane.shape}")
    return int(found.lane), int(found.column)


def check_lane(lane: NDArray[np.int64] | int, step: int, what: str) -> None:
    """Raise OperandError unless all lanes are multiples of `step`."""
    wrong = np.asarray(lane) % step != 0
    if wrong.any():
        raise OperandError(f"{what}: the lane of the address must be a multiple of {step}, not {int(np.asarray(lane)[wrong].flat[0])}")


def check_inside(lanes: NDArray[Any], columns: NDArray[Any], what: str) -> None:
    """Raise OperandError that names the first cell outside Tensor Memory."""
    lanes, columns = np.broadcast_arrays(lanes, columns)
    wrong = (lanes < 0) | (lanes >= LANES) | (columns < 0) | (columns >= COLUMNS)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        raise OperandError(
            f"{what} reaches lane {int(lanes[where])}, column {int(columns[where])}, outside the {LANES} lanes and {COLUMNS} columns "
            "of Tensor Memory"
        )
