"""A matrix in shared memory: the byte of each element, staging it, and the descriptors that read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import named_fields, public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import flag, integer
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.formats import Format, format_of
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.shared.memory import elements_of, memory_bytes
from fastmma.shared.packing import PADDED_BITS, UNIT, from_bytes, to_bytes
from fastmma.shared.swizzle import Swizzle

_CORE_LINES = 8
_ATOMS_OF_32 = Swizzle(2, 5, 2)  # of MN-major tf32 in tcgen05
_MOST = 1 << 40  # bytes of a tile


@named_fields
@dataclass(frozen=True)
class Tile:
    """A matrix in shared memory, row after row.

    Attributes
    ----------
    rows, columns : int
        The numbers of elements. Elements of a row lie side by side. K-major operands have a row for each m or n, MN-major ones a row for
        each k.
    format : str or Format
        The format of the elements, for example ``"f16"``. Elements of less than 8 bits are packed, the first in the lowest bits.
    address : int
        The byte where it begins, a multiple of the swizzle's region (128 for the modes of descriptors).
    pitch : int
        Bytes from one row to the next; 0 means the bytes of a row.
    swizzle : Swizzle or int
        The swizzle of byte addresses, which count from the start of the memory; or the mode of descriptors: 0, 32, 64 or 128 bytes.
    padded : bool
        Elements of 4 or 6 bits only: 16 of them are packed into the first bytes of every 16 bytes, as ``.kind::f8f6f4`` and the formats
        ``b6x16_p32`` and ``b4x16_p64`` of ldmatrix have them.

    Raises
    ------
    OperandError, InstructionError
        If a row is not a whole number of bytes, rows overlap, or the swizzle would split an element or move it out of the tile.

    Examples
    --------
    >>> tile = Tile(64, 64, "f16", swizzle=128)
    >>> memory = tile.store(np.zeros(tile.end, np.uint8), np.arange(4096).reshape(64, 64).astype(np.float16))
    >>> int(tile.addresses(1, 0)), float(tile.load(memory)[1, 0])
    (144, 64.0)
    """

    rows: int
    columns: int
    format: str | Format
    address: int = 0
    pitch: int = 0
    swizzle: Swizzle | int = 0
    padded: bool = False

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        fmt = format_of(self.format)
        put("format", fmt)
        for name, least in (("rows", 1), ("columns", 1), ("address", 0), ("pitch", 0)):
            put(name, integer(getattr(self, name), f"{name} of a tile", least))
        put("swizzle", self.swizzle if isinstance(self.swizzle, Swizzle) else Swizzle.mode(self.swizzle))
        put("padded", flag(self.padded, "padded"))
        if self.padded and (fmt.bits not in PADDED_BITS or self.columns % UNIT):
            raise OperandError(f"{self}: only elements of 4 or 6 bits are padded, {UNIT} at a time")
        if self.columns * fmt.bits % 8:
            raise OperandError(f"{self}: a row of {self.columns} elements of {fmt.bits} bits is no whole number of bytes")
        put("pitch", self.pitch or self.row_bytes)
        if self.pitch < self.row_bytes:
            raise OperandError(f"{self}: the pitch must be at least the {self.row_bytes} bytes of a row, not {self.pitch}")
        if self.rows * self.pitch > _MOST:
            raise OperandError(f"{self}: a tile must have at most 2**40 bytes")
        if self.address % self._swizzle.region:
            raise OperandError(f"{self}: the address must be a multiple of the {self._swizzle.region} bytes that the swizzle permutes")
        together = 1 << self._swizzle.m
        if self._swizzle.b and (together % self._width or self.pitch % self._width or self.address % self._width):
            raise OperandError(f"{self}: the swizzle moves {together} bytes together, which takes elements of {self._width} bytes apart")

    @property
    def _format(self) -> Format:
        return format_of(self.format)

    @property
    def _swizzle(self) -> Swizzle:
        return self.swizzle if isinstance(self.swizzle, Swizzle) else Swizzle.mode(self.swizzle)

    @property
    def _width(self) -> int:
        """Bytes that stay together: an element, or a padded unit."""
        return UNIT if self.padded else max(1, self._format.bits // 8)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of elements."""
        return self.columns if self.padded else self.columns * self._format.bits // 8

    @property
    def end(self) -> int:
        """The first byte after the tile at which the pattern of its swizzle begins again."""
        step = max(self._swizzle.period, UNIT)
        return -(-(self.address + self.rows * self.pitch) // step) * step

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Return the address of each byte of each row, int64 (rows, row_bytes)."""
        straight = self.address + np.arange(self.rows)[:, None] * self.pitch + np.arange(self.row_bytes)
        found: NDArray[np.int64] = self._swizzle(straight)
        found.flags.writeable = False
        return found

    @public_call
    def addresses(self, row: Any, column: Any = 0) -> NDArray[np.int64]:
        """Return the byte where each element begins: the one that holds it if it is narrower, that of its unit if it is padded.

        Parameters
        ----------
        row, column : integers or integer arrays
            They broadcast: ``tile.addresses(lane % 16, lane // 16 * 8)`` gives the rows of an ``ldmatrix.x4``.

        Raises
        ------
        OperandError, OperandTypeError
            If an element lies outside the tile.

        Examples
        --------
        >>> Tile(8, 8, "f16", pitch=32).addresses([0, 1, 2]).tolist()
        [0, 32, 64]
        """
        found = []
        for name, value, size in (("row", row, self.rows), ("column", column, self.columns)):
            array = as_array(value, f"{self}: {name}")
            if array.dtype.kind not in "ui":
                raise OperandTypeError(f"{self}: {name} must be integers, not {array.dtype}")
            wrong = array[(array < 0) | (array >= size)]
            if wrong.size:
                raise OperandError(f"{self}: there is no {name} {int(wrong.flat[0])}")
            found.append(array.astype(np.int64))
        try:
            rows, columns = np.broadcast_arrays(*found)
        except ValueError:
            raise OperandError(f"{self}: row of shape {found[0].shape} and column of shape {found[1].shape} do not broadcast") from None
        return np.asarray(self._swizzle(self.address + rows * self.pitch + self._byte(columns)), dtype=np.int64)

    def _byte(self, column: Any) -> Any:
        """The byte of a row where elements of a column begin."""
        return column // UNIT * UNIT if self.padded else column * self._format.bits // 8

    def _check_reach(self, memory: NDArray[np.uint8]) -> None:
        last = int(self.places.max())
        if last >= memory.shape[-1]:
            raise OperandError(f"{self} reaches byte {last} of a memory of {memory.shape[-1]} bytes")

    @public_call
    def store(self, memory: Any, elements: Any) -> NDArray[np.uint8]:
        """Put the elements of a matrix in their places, and return the memory.

        Parameters
        ----------
        memory : uint8 array (..., bytes)
            The contents before the store; the array is not modified. Leading dimensions broadcast with those of `elements`.
        elements : array (..., rows, columns)
            In the dtype of the format.

        Returns
        -------
        uint8 array (..., bytes)

        Raises
        ------
        OperandError, OperandTypeError
        """
        before = memory_bytes(memory, str(self))
        self._check_reach(before)
        array = elements_of(elements, self._format, f"{self}: elements")
        if array.shape[-2:] != (self.rows, self.columns):
            raise OperandError(f"{self}: elements must have shape (..., {self.rows}, {self.columns}), not {array.shape}")
        try:
            lead = np.broadcast_shapes(before.shape[:-1], array.shape[:-2])
        except ValueError:
            raise OperandError(f"{self}: leading dimensions {before.shape[:-1]} and {array.shape[:-2]} do not broadcast") from None
        after = np.array(np.broadcast_to(before, (*lead, before.shape[-1])))
        after[..., self.places] = to_bytes(array, self._format, self.padded)
        return after

    @public_call
    def load(self, memory: Any) -> NDArray[Any]:
        """Return the matrix that the memory holds; the inverse of `store`.

        Parameters
        ----------
        memory : uint8 array (..., bytes)

        Returns
        -------
        array (..., rows, columns) in the dtype of the format

        Raises
        ------
        OperandError, OperandTypeError
        """
        held = memory_bytes(memory, str(self))
        self._check_reach(held)
        return from_bytes(held[..., self.places], self._format, self.padded)

    def moved(self, address: int) -> Tile:
        """Return the same tile at another address, for example the next buffer's.

        Raises
        ------
        OperandError
        """
        return replace(self, address=address)

    @public_call
    def descriptor(
        self, row: int = 0, column: int = 0, *, mn_major: bool = False, beside: int = 16, instruction: Literal["wgmma", "tcgen05"] = "wgmma"
    ) -> Descriptor:
        """Return the descriptor of the operand that begins at an element. The tile is as wide as its swizzle, or 16 bytes without one.

        Parameters
        ----------
        row, column : int
            The element where the operand begins: a multiple of 8 rows, and of 16 bytes of columns.
        mn_major : bool
            Whether rows count k and columns m or n.
        beside : int
            Bytes from this tile to the tile with the next columns, if the operand is wider than the tile.
        instruction : {"wgmma", "tcgen05"}
            The instruction that reads it.

        Returns
        -------
        fastmma.warpgroup.Descriptor or fastmma.tcgen05.MatrixDescriptor

        Raises
        ------
        OperandError
            If no descriptor describes the operand.

        Examples
        --------
        >>> Tile(64, 64, "f16", address=1024, swizzle=128).descriptor(column=16)
        Descriptor(address=1056, leading=16, stride=1024, swizzle=128, base_offset=0)
        """
        mn_major = flag(mn_major, "mn_major")
        if not isinstance(instruction, str) or instruction not in ("wgmma", "tcgen05"):
            raise OperandError(f"{self}: instruction must be 'wgmma' or 'tcgen05', not {instruction!r}")
        wide = self._swizzle == _ATOMS_OF_32
        mode = 128 if wide else self._swizzle.row_bytes
        if mode is None or (wide and instruction != "tcgen05"):
            raise OperandError(f"{self}: a descriptor of {instruction} has no {self._swizzle}")
        if self.pitch != (mode or UNIT):
            raise OperandError(f"{self}: for a descriptor its rows must be {mode or UNIT} bytes apart, not {self.pitch}")
        start = integer(row, f"{self}: row", 0), integer(column, f"{self}: column", 0)
        lines = _CORE_LINES // (2 if wide else 1)
        if start[0] >= self.rows or start[0] % lines or start[1] >= self.columns or self._byte(start[1]) % UNIT:
            raise OperandError(f"{self}: an operand begins at a multiple of {lines} rows and of 16 bytes, not at {start}")
        address = self.address + start[0] * self.pitch + int(self._byte(start[1]))
        # without a swizzle, the two offsets of MN-major operands change places
        offsets = (lines * self.pitch, beside) if mn_major and not mode else (beside, lines * self.pitch)
        if instruction == "tcgen05":
            return MatrixDescriptor(address, *offsets, swizzle=mode, wide_atoms=wide)
        return Descriptor(address, *offsets, swizzle=mode)

    def __str__(self) -> str:
        return f"tile of {self.rows} x {self.columns} {self.format}"
