"""Layouts of scales and 4-bit elements in memory, as libraries and tensor cores take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import axis_of, whole
from fastmma.isa.codes import from_codes, to_codes
from fastmma.isa.formats import FORMATS

_ROWS, _COLUMNS = 128, 4  # of a tile of scales
_GROUP = 32  # rows whose scales stand one line of the tile apart
_E2M1 = FORMATS["e2m1"]


@public_call
def to_blocked(scales: Any) -> NDArray[Any]:
    """Return scales in the flat 128x4 layout of cuBLAS (SWIZZLE_32_4_4).

    Tiles of 128 rows by 4 columns follow one another row by row. In a tile, the scale of row r and column c is at
    ``(r % 32) * 16 + (r // 32) * 4 + c``.

    Parameters
    ----------
    scales : array (rows, blocks along k), of any dtype of one byte

    Returns
    -------
    array of ``128 * ceil(rows / 128) * 4 * ceil(columns / 4)`` scales, of the same dtype
        Tiles are padded with zero bits.

    Raises
    ------
    OperandError, OperandTypeError

    Notes
    -----
    cuBLAS: 1D Block Scaling Factors Layout. The same as torchao's ``to_blocked`` and nvmath's ``to_block_scale``.

    Examples
    --------
    >>> scales = np.zeros((128, 8), np.uint8)
    >>> scales[5, 2], scales[5, 5] = 1, 2
    >>> np.flatnonzero(to_blocked(scales)).tolist()
    [82, 593]
    """
    array = _bytes(scales, "scales")
    if array.ndim != 2:
        raise OperandError(f"scales must have shape (rows, columns), not {array.shape}")
    down, across = _tiles(*array.shape)
    padded = np.zeros((down * _ROWS, across * _COLUMNS), np.uint8)
    padded[: array.shape[0], : array.shape[1]] = array.view(np.uint8)
    tiles = padded.reshape(down, _ROWS // _GROUP, _GROUP, across, _COLUMNS)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-1).view(array.dtype)


@public_call
def from_blocked(blocked: Any, rows: int, columns: int) -> NDArray[Any]:
    """Return scales (rows, columns) from the 128x4 layout: the inverse of `to_blocked`.

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> scales = np.arange(12, dtype=np.uint8).reshape(4, 3)
    >>> bool((from_blocked(to_blocked(scales), 4, 3) == scales).all())
    True
    """
    array = _bytes(blocked, "blocked")
    sizes = whole(rows), whole(columns)
    if sizes[0] is None or sizes[1] is None or min(sizes[0], sizes[1]) < 0:
        raise OperandError(f"rows and columns must be integers, not negative, not {rows!r} and {columns!r}")
    down, across = _tiles(sizes[0], sizes[1])
    if array.size != down * _ROWS * across * _COLUMNS:
        wanted = f"{down} x {across} tiles of {_ROWS * _COLUMNS} scales"
        raise OperandError(f"blocked must hold {wanted} for {rows} x {columns}, not {array.size} scales")
    tiles = array.reshape(-1).view(np.uint8).reshape(down, across, _GROUP, _ROWS // _GROUP, _COLUMNS)
    padded = tiles.transpose(0, 3, 2, 1, 4).reshape(down * _ROWS, across * _COLUMNS)
    return np.ascontiguousarray(padded[: sizes[0], : sizes[1]]).view(array.dtype)


def _tiles(rows: int, columns: int) -> tuple[int, int]:
    return -(-rows // _ROWS), -(-columns // _COLUMNS)


def _bytes(scales: Any, what: str) -> NDArray[Any]:
    array = as_array(scales, what)
    if array.dtype.itemsize != 1:
        raise OperandTypeError(f"{what} must have a dtype of one byte, for example float8_e8m0fnu or float8_e4m3fn, not {array.dtype}")
    return np.ascontiguousarray(array)


@public_call
def pack_e2m1(elements: Any, axis: int = -1) -> NDArray[np.uint8]:
    """Pack float4_e2m1fn elements two a byte along an axis, the first in the low nibble (as torch's ``float4_e2m1fn_x2``).

    Parameters
    ----------
    elements : float4_e2m1fn array, of an even extent along the axis
    axis : int

    Returns
    -------
    uint8 array, half as long along the axis

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import ml_dtypes
    >>> pack_e2m1(np.array([0.5, 1, -6, 0], ml_dtypes.float4_e2m1fn)).tolist()
    [33, 15]
    """
    codes = to_codes(elements, _E2M1)
    lines = np.moveaxis(codes, _axis(axis, codes), -1)
    if lines.shape[-1] % 2:
        raise OperandError(f"elements must have an even extent along axis {axis} to be packed in pairs, not the shape {codes.shape}")
    packed = (lines[..., ::2] & np.uint8(15)) | (lines[..., 1::2] << np.uint8(4))
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis))


@public_call
def unpack_e2m1(packed: Any, axis: int = -1) -> NDArray[Any]:
    """Unpack float4_e2m1fn elements from bytes that hold two each: the inverse of `pack_e2m1`.

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> unpack_e2m1(np.array([33, 15], np.uint8)).tolist()
    [0.5, 1.0, -6.0, 0.0]
    """
    array = as_array(packed, "packed")
    if array.dtype != np.uint8:
        raise OperandTypeError(f"packed must have dtype uint8, two e2m1 a byte, not {array.dtype}")
    lines = np.moveaxis(array, _axis(axis, array), -1)
    codes = np.stack([lines & np.uint8(15), lines >> np.uint8(4)], axis=-1).reshape(*lines.shape[:-1], 2 * lines.shape[-1])
    return from_codes(np.moveaxis(codes, -1, axis), _E2M1)


def _axis(axis: Any, array: NDArray[Any]) -> int:
    if not array.ndim:
        raise OperandError("what is packed or unpacked must have at least one dimension, not the shape ()")
    return axis_of(axis, array.ndim, f" for the shape {array.shape}")
