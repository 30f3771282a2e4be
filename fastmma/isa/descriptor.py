"""Matrix descriptors: operands in shared memory, and the byte where each element lies (PTX: Matrix Descriptor Format).

An operand is made of core matrices of 8 lines of 16 bytes. Without swizzle each core matrix is 128 contiguous bytes; with a swizzle of 32,
64 or 128 bytes, 2, 4 or 8 of them lie beside each other in rows of that many bytes, and the 16-byte units of a row are permuted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError

_CORE_LINES = 8
_UNIT = 16  # bytes of a line of a core matrix
# the descriptor's two-bit code of each swizzle, and the bytes of its rows
SWIZZLES = {0: _UNIT, 3: 32, 2: 64, 1: 128}
_CODE = {0: 0, 32: 3, 64: 2, 128: 1}


def is_whole(value: Any) -> bool:
    """Tell whether a value is an integer of Python or NumPy."""
    return isinstance(value, int | np.integer)


def descriptor_word(bits: Any) -> int:
    """The 64 bits of a descriptor as an int.

    Raises
    ------
    OperandError
    """
    if not is_whole(bits) or not 0 <= bits < 1 << 64:
        raise OperandError(f"a descriptor must be an integer of 64 bits, not {bits!r}")
    return int(bits)


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor of wgmma, its fields in bytes.

    Attributes
    ----------
    address : int
        Where the matrix starts in shared memory.
    leading : int
        Leading-dimension byte offset. K-major without swizzle: from one core matrix to the next along k. MN-major: from one swizzled block
        to the next along m or n (without swizzle: along k). Ignored for K-major with swizzle.
    stride : int
        Stride-dimension byte offset. K-major: from 8 lines of m or n to the next 8. MN-major: from 8 lines of k to the next 8 (without
        swizzle: from one core matrix to the next along m or n).
    swizzle : int
        0, 32, 64 or 128 bytes.
    base_offset : int
        0 to 7; 0 unless a swizzled matrix starts away from a multiple of its pattern.
    """

    address: int
    leading: int = 0
    stride: int = 0
    swizzle: int = 0
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("address", "leading", "stride"):
            value = getattr(self, name)
            if not is_whole(value) or value % _UNIT or not 0 <= value < 1 << 18:
                raise OperandError(f"a descriptor's {name} must be a multiple of 16 below 262144, not {value!r}")
        if not is_whole(self.swizzle) or self.swizzle not in _CODE:
            raise OperandError(f"a descriptor's swizzle must be 0, 32, 64 or 128 bytes, not {self.swizzle!r}")
        if not is_whole(self.base_offset) or not 0 <= self.base_offset < 8:
            raise OperandError(f"a descriptor's base_offset must be 0 to 7, not {self.base_offset!r}")

    @property
    def _atom(self) -> int:
        """Bytes that a swizzle moves together."""
        return _UNIT

    def _check_transposed(self, bits: int) -> None:
        """Raise OperandError unless elements of that width can be MN-major."""
        if bits != 16:
            raise OperandError(f"only 16-bit elements can be transposed in shared memory, not {bits}-bit ones")

    def encode(self) -> int:
        """Return the 64 bits of the descriptor.

        Examples
        --------
        >>> hex(Descriptor(1024, leading=128, stride=256, swizzle=128).encode())
        '0x4000001000080040'
        """
        fields = (self.address >> 4, 0), (self.leading >> 4, 16), (self.stride >> 4, 32), (self.base_offset, 49), (_CODE[self.swizzle], 62)
        return sum(int(value) << shift for value, shift in fields)

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        """Return the descriptor that 64 bits encode; bits without a meaning are ignored.

        Raises
        ------
        OperandError
            If the value is not an integer of at most 64 bits.

        Examples
        --------
        >>> Descriptor.decode(0x4000001000080040)
        Descriptor(address=1024, leading=128, stride=256, swizzle=128, base_offset=0)
        """
        bits = descriptor_word(bits)
        row = SWIZZLES[bits >> 62 & 3]
        return cls((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, 0 if row == _UNIT else row, bits >> 49 & 7)

    def offsets(self, outer: int, k: int, bits: int, *, mn_major: bool = False) -> NDArray[np.int64]:
        """Return the byte offset in shared memory of each element of an operand, (outer, k): rows of A, or columns of B.

        Parameters
        ----------
        outer : int
            m of A, n of B.
        k : int
            Elements along k, as stored.
        bits : int
            Width of an element; for single bits, the offset is that of the byte.
        mn_major : bool
            Whether the operand is transposed, so that m or n is contiguous and not k.

        Raises
        ------
        OperandError
            If elements of that width cannot be transposed, or a row of the swizzle is too short for k.
        """
        row = max(self.swizzle, _UNIT)
        line, along = np.arange(outer)[:, None], np.arange(k)[None, :]
        if not mn_major:
            byte = along * bits // 8
            if self.swizzle and k * bits > 8 * row:
                raise OperandError(f"{k * bits // 8} bytes of k do not fit into the {row}-byte rows of the swizzle")
            if self.swizzle:
                place = line // _CORE_LINES * self.stride + line % _CORE_LINES * row + byte
            else:
                place = line // _CORE_LINES * self.stride + byte // _UNIT * self.leading + line % _CORE_LINES * _UNIT + byte % _UNIT
        else:
            self._check_transposed(bits)
            byte = line * bits // 8
            across, inside = byte // row, byte % row
            blocks, steps = (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
            lines = _CORE_LINES * _UNIT // self._atom
            place = across * blocks + along // lines * steps + along % lines * row + inside
        return np.asarray(self._swizzle(place + self.address), dtype=np.int64)

    def _swizzle(self, place: NDArray[Any]) -> NDArray[Any]:
        """The unit of 16 bytes (or atom of 32) within a row, exclusive-or the number of the 128-byte line in its pattern."""
        if not self.swizzle:
            return place
        pattern = (place >> 7) - self.base_offset & (self.swizzle // self._atom - 1)
        return np.asarray(place ^ (pattern * self._atom))
