"""Matrix descriptors of tcgen05: operands in shared memory, and the bytes where their elements lie (PTX: Shared memory descriptor)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError

_UNIT = 16  # bytes that stay together whatever the swizzle
# the code of each swizzle: bytes of a row, and whether its atoms have 32 bytes and not 16
_SWIZZLES = {0: (0, False), 1: (128, True), 2: (128, False), 4: (64, False), 6: (32, False)}
_CODES = {value: code for code, value in _SWIZZLES.items()}
_VERSION = 1  # of the descriptor, in bits 46 to 48


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True)
class MatrixDescriptor:
    """A matrix in shared memory, its fields in bytes.

    Attributes
    ----------
    address : int
        Where it starts.
    leading : int
        Leading-dimension byte offset. K-major without swizzle: from 16 bytes of k to the next. MN-major: from one swizzled block to the
        next along m or n (without swizzle: along k). Not used for K-major with a swizzle.
    stride : int
        Stride-dimension byte offset. K-major: from 8 lines of m or n to the next 8. MN-major: from 8 lines of k to the next 8 (4 with
        `wide_atoms`; without swizzle: from 16 bytes of m or n to the next).
    swizzle : int
        0, 32, 64 or 128 bytes.
    wide_atoms : bool
        128 bytes only: units of 32 bytes are permuted, not of 16. MN-major tf32 has no other swizzle.
    base_offset : int
        0 to 7; not 0 only if a swizzled matrix does not start at a multiple of its pattern.

    Raises
    ------
    OperandError
        If a field has a value that it cannot have.

    Examples
    --------
    >>> hex(MatrixDescriptor(0x1000, leading=16, stride=1024, swizzle=128).encode())
    '0x4000404000010100'
    >>> MatrixDescriptor.decode(0x4000404000010100).swizzle
    128
    """

    address: int
    leading: int = 0
    stride: int = 0
    swizzle: int = 0
    wide_atoms: bool = False
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("address", "leading", "stride"):
            value = getattr(self, name)
            if not _is_whole(value) or value % _UNIT or not 0 <= value < 1 << 18:
                raise OperandError(f"a matrix descriptor's {name} must be a multiple of 16 below 262144, not {value!r:.60}")
        if not _is_whole(self.swizzle) or (self.swizzle, self.wide_atoms) not in _CODES:
            raise OperandError(
                f"a matrix descriptor's swizzle must be 0, 32, 64 or 128 bytes, wide atoms with 128 only, not {self.swizzle!r:.60}"
            )
        if not _is_whole(self.base_offset) or not 0 <= self.base_offset < 8:
            raise OperandError(f"a matrix descriptor's base_offset must be 0 to 7, not {self.base_offset!r:.60}")

    def encode(self) -> int:
        """The 64 bits of the descriptor."""
        fields = (
            (self.address >> 4, 0),
            (self.leading >> 4, 16),
            (self.stride >> 4, 32),
            (_VERSION, 46),
            (self.base_offset, 49),
            (_CODES[self.swizzle, self.wide_atoms], 61),
        )
        return sum(int(value) << low for value, low in fields)

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        """The fields of 64 bits.

        Raises
        ------
        OperandError
            If it is no integer of 64 bits, or a field has a value without a meaning: the message names it.
        """
        if not _is_whole(bits) or not 0 <= bits < 1 << 64:
            raise OperandError(f"a matrix descriptor must be an integer of 64 bits, not {bits!r:.60}")
        word = int(bits)
        if word >> 46 & 7 != _VERSION:
            raise OperandError(f"matrix descriptor {word:#018x}: bits 46 to 48 must be 1, not {word >> 46 & 7}; those of wgmma have 0")
        if word >> 52 & 1:
            raise OperandError(f"matrix descriptor {word:#018x}: absolute leading offsets (bit 52) are not known well enough to emulate")
        if (swizzle := _SWIZZLES.get(word >> 61)) is None:
            raise OperandError(f"matrix descriptor {word:#018x}: the swizzle (bits 61 to 63) is {word >> 61}, which means nothing")
        address, leading, stride = ((word >> low & 0x3FFF) << 4 for low in (0, 16, 32))
        return cls(address, leading, stride, *swizzle, word >> 49 & 7)

    def units(self, outer: int, count: int) -> NDArray[np.int64]:
        """Byte offsets (outer, count) of the 16-byte units of k of each line of a K-major matrix.

        Raises
        ------
        OperandError
            If the swizzle has atoms of 32 bytes, or so many units do not fit into its rows.
        """
        if self.wide_atoms:
            raise OperandError("a K-major matrix cannot have a swizzle with atoms of 32 bytes")
        line, unit = np.arange(outer)[:, None], np.arange(count)[None, :]
        if not self.swizzle:
            return np.asarray(self.address + line // 8 * self.stride + line % 8 * _UNIT + unit * self.leading, np.int64)
        # software walks along k by advancing the address within a row
        if self.address % self.swizzle + count * _UNIT > self.swizzle:
            raise OperandError(
                f"{count * _UNIT} bytes of k from {self.address:#x} on do not fit into {self.swizzle}-byte rows of the swizzle"
            )
        return self._swizzled(self.address + line // 8 * self.stride + line % 8 * self.swizzle + unit * _UNIT)

    def elements(self, outer: int, k: int, size: int) -> NDArray[np.int64]:
        """Byte offsets (outer, k) of the elements of `size` bytes of an MN-major matrix.

        Raises
        ------
        OperandError
            If elements of 4 bytes have another swizzle than that with atoms of 32 bytes, or narrower ones have it.
        """
        if self.wide_atoms != (size == 4):
            raise OperandError("an MN-major matrix of tf32, and no other, needs the 128-byte swizzle with atoms of 32 bytes")
        line, along = np.arange(outer)[:, None], np.arange(k)[None, :]
        row, lines = self.swizzle or _UNIT, 4 if self.wide_atoms else 8
        across, inside = line * size // row, line * size % row
        blocks, steps = (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
        return self._swizzled(self.address + across * blocks + along // lines * steps + along % lines * row + inside)

    def _swizzled(self, place: NDArray[Any]) -> NDArray[np.int64]:
        """Units within a row, exclusive-or the number of the 128-byte line in its pattern."""
        if not self.swizzle:
            return np.asarray(place, np.int64)
        if self.wide_atoms:
            return np.asarray(place ^ ((place >> 7) - self.base_offset & 3) << 5, np.int64)
        pattern = (place >> 7) - self.base_offset & (self.swizzle // _UNIT - 1)
        return np.asarray(place ^ (pattern << 4), np.int64)
