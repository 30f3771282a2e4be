"""Boxes of tensors, copied to shared memory and back as the Tensor Memory Accelerator copies them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import named_fields, public_call
from fastmma.host.errors import OperandError
from fastmma.host.integers import integer, whole
from fastmma.isa.formats import Format, format_of
from fastmma.shared.memory import elements_of
from fastmma.shared.tile import Tile

_MOST_DIMENSIONS, _MOST_ELEMENTS = 5, 256
_UNIT = 16  # bytes
_ALIGNMENT = 128  # of the address in shared memory


@named_fields
@dataclass(frozen=True)
class Box:
    """A box of a tensor and its place in shared memory, as a tensor map of the TMA describes them in tiled mode.

    Attributes
    ----------
    shape : tuple of int
        Its elements along each dimension, in the order of a NumPy array: the last dimension is contiguous (PTX counts from there). One to
        five dimensions of at most 256.
    format : str or Format
    swizzle : int
        0, 32, 64 or 128 bytes. Rows of a swizzled box have exactly this many bytes.

    Raises
    ------
    OperandError, InstructionError
        If a tensor map cannot describe the box; a row must be a multiple of 16 bytes.

    Notes
    -----
    PTX: Tensors; cp.async.bulk.tensor. Elements outside the tensor are zeros in shared memory, and are not written by `store`. Element
    strides, im2col, interleaved layouts, NaN fills, and swizzled rows that are shorter than the swizzle are not modelled.

    Examples
    --------
    >>> box = Box((64, 64), "f16", swizzle=128)
    >>> tensor = np.ones((100, 100), np.float16)
    >>> memory = box.load(np.zeros(box.bytes, np.uint8), tensor, (64, 64))
    >>> int(np.count_nonzero(box.tile().load(memory))), box.bytes  # 36 x 36 of it lie inside
    (1296, 8192)
    """

    shape: tuple[int, ...]
    format: str | Format
    swizzle: int = 0

    def __post_init__(self) -> None:
        given = tuple(self.shape) if isinstance(self.shape, tuple | list) else (self.shape,)
        shape = tuple(whole(size) or 0 for size in given)
        if not 1 <= len(shape) <= _MOST_DIMENSIONS or not all(1 <= size <= _MOST_ELEMENTS for size in shape):
            raise OperandError(f"a box must have 1 to 5 dimensions of 1 to 256 elements, not {self.shape!r}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "format", format_of(self.format))
        tile = self.tile()  # checks swizzle and format
        if tile.row_bytes % _UNIT:
            raise OperandError(f"{self}: its rows must be a multiple of 16 bytes, not {tile.row_bytes}")
        if self.swizzle and tile.row_bytes != self.swizzle:
            raise OperandError(f"{self}: its rows must have the {self.swizzle} bytes of the swizzle, not {tile.row_bytes}")

    @property
    def bytes(self) -> int:
        """The bytes that a copy moves, with elements outside the tensor. An mbarrier expects this number.

        >>> Box((2, 8, 16), "e4m3").bytes
        256
        """
        tile = self.tile()
        return tile.rows * tile.row_bytes

    def tile(self, address: int = 0) -> Tile:
        """Return the tile of the box in shared memory; all dimensions but the last count its rows.

        Raises
        ------
        OperandError
        """
        return Tile(math.prod(self.shape[:-1]), self.shape[-1], self.format, address=address, swizzle=self.swizzle)

    @public_call
    def load(self, memory: Any, tensor: Any, start: Any, *, address: int = 0) -> NDArray[np.uint8]:
        """Copy a box of a tensor to shared memory.

        Parameters
        ----------
        memory : uint8 array (..., bytes)
            The contents before the copy; the array is not modified.
        tensor : array
            With as many dimensions as the box, in the dtype of the format.
        start : sequence of int
            Where the box begins along each dimension, in the order of NumPy; it may be negative or beyond the end.
        address : int
            The byte where the box goes, a multiple of 128.

        Returns
        -------
        uint8 array (..., bytes)

        Raises
        ------
        OperandError, OperandTypeError
        """
        tile = self.tile(self._address(address))
        array, box, tensors = self._met(tensor, start)
        elements = np.zeros(self.shape, array.dtype)
        elements[box] = array[tensors]
        return tile.store(memory, elements.reshape(tile.rows, tile.columns))

    @public_call
    def store(self, memory: Any, tensor: Any, start: Any, *, address: int = 0) -> NDArray[Any]:
        """Copy a box from shared memory to a tensor.

        Parameters
        ----------
        memory : uint8 array (bytes,)
        tensor : array
            The contents before the copy; the array is not modified.
        start, address
            As for `load`.

        Returns
        -------
        array
            The tensor after the copy; elements of the box outside it are not written.

        Raises
        ------
        OperandError, OperandTypeError
        """
        tile = self.tile(self._address(address))
        array, box, tensors = self._met(tensor, start)
        held = tile.load(memory)
        if held.ndim != 2:
            raise OperandError(f"{self}: memory must have shape (bytes,), not {held.shape[:-2]} of them")
        after = np.array(array)
        after[tensors] = held.reshape(self.shape)[box]
        return after

    def _address(self, address: Any) -> int:
        found = integer(address, f"{self}: address", 0)
        if found % _ALIGNMENT:
            raise OperandError(f"{self}: the address must be a multiple of 128, not {found}")
        return found

    def _met(self, tensor: Any, start: Any) -> tuple[NDArray[Any], tuple[slice, ...], tuple[slice, ...]]:
        """The tensor, the part of the box that lies inside, and where that is in the tensor."""
        array = elements_of(tensor, format_of(self.format), f"{self}: tensor")
        count = len(self.shape)
        listed = isinstance(start, tuple | list) or (isinstance(start, np.ndarray) and start.ndim == 1)
        begins = tuple(whole(place) for place in start) if listed and len(start) == count else (None,)
        if array.ndim != count or None in begins:
            given = f"{type(start).__name__} {start!r:.60}" if listed and len(start) < _MOST_ELEMENTS else type(start).__name__
            raise OperandError(f"{self}: tensor must have {count} dimensions and start {count} integers, not {array.shape} and {given}")
        first = [min(max(begin or 0, 0), extent) for begin, extent in zip(begins, array.shape, strict=True)]
        last = [max(min((begin or 0) + size, extent), 0) for begin, size, extent in zip(begins, self.shape, array.shape, strict=True)]
        inside = [(low, max(low, high)) for low, high in zip(first, last, strict=True)]
        box = tuple(slice(low - (begin or 0), high - (begin or 0)) for (low, high), begin in zip(inside, begins, strict=True))
        if any(low == high for low, high in inside):
            box = tuple(slice(0, high - low) for low, high in inside)
        return array, box, tuple(slice(low, high) for low, high in inside)

    def __str__(self) -> str:
        return f"box of {' x '.join(map(str, self.shape))} {self.format}"
