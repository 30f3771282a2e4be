"""Swizzles of addresses, as CuTe writes them, and as matrix descriptors and tensor maps name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmma.host.arrays import as_array
from fastmma.host.calls import named_fields, public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import whole
from fastmma.isa.descriptor import SWIZZLES

_MOST_BITS = 62  # of an address
_BASE, _SHIFT = 4, 3  # of the swizzles of descriptors: units of 16 bytes move by the number of their line of 128 bytes
_MODES = {0: 0, **{row: row.bit_length() - 1 - _BASE for row in SWIZZLES.values() if row > 1 << _BASE}}


@named_fields
@dataclass(frozen=True)
class Swizzle:
    """An exclusive-or of some bits of an address with others, CuTe's ``Swizzle<B, M, S>``.

    Attributes
    ----------
    b : int
        How many bits change; 0 changes nothing.
    m : int
        Low bits that stay as they are: 2^m bytes (or elements, see `recast`) move together.
    s : int
        The distance from the bits that change to the bits that they are combined with: up, or down if it is negative. Its magnitude is at
        least b.

    Raises
    ------
    OperandError
        If CuTe would refuse the three numbers.

    Examples
    --------
    >>> Swizzle(3, 4, 3)(128)
    144
    >>> Swizzle(3, 4, 3)(np.arange(0, 512, 128)).tolist()
    [0, 144, 288, 432]
    >>> Swizzle.mode(128), Swizzle(3, 3, 3).recast(16, 8)
    (Swizzle(b=3, m=4, s=3), Swizzle(b=3, m=4, s=3))
    """

    b: int
    m: int
    s: int

    def __post_init__(self) -> None:
        for name in ("b", "m", "s"):
            found = whole(getattr(self, name))
            if found is None or (found < 0 and name != "s"):
                raise OperandError(
                    f"{name} of a swizzle must be an integer{'' if name == 's' else ' of at least 0'}, not {getattr(self, name)!r}"
                )
            object.__setattr__(self, name, found)
        if abs(self.s) < self.b:
            raise OperandError(f"s of a swizzle must be at least b = {self.b} away from 0, not {self.s}")
        if self.m + self.b + abs(self.s) > _MOST_BITS:
            raise OperandError(f"{self} reaches beyond the {_MOST_BITS} bits of an address")

    @classmethod
    def mode(cls, row_bytes: int) -> Swizzle:
        """Return the swizzle of a matrix descriptor or a tensor map by the bytes of its rows: 0, 32, 64 or 128.

        Raises
        ------
        OperandError
            If there is no such mode.

        Examples
        --------
        >>> [str(Swizzle.mode(row_bytes)) for row_bytes in (0, 32, 64, 128)]
        ['Swizzle<0,4,3>', 'Swizzle<1,4,3>', 'Swizzle<2,4,3>', 'Swizzle<3,4,3>']
        """
        if whole(row_bytes) not in _MODES:
            raise OperandError(f"the mode of a swizzle must be {', '.join(map(str, _MODES))} bytes, not {row_bytes!r}")
        return cls(_MODES[row_bytes], _BASE, _SHIFT)

    def recast(self, old_bits: int, new_bits: int) -> Swizzle:
        """Return the same swizzle for addresses in elements of another width, as CuTe recasts a layout; 8 bits give one of bytes.

        Raises
        ------
        OperandError
            If a width is not a power of two, or an element is wider than the bytes that move together.
        """
        widths = []
        for value in (old_bits, new_bits):
            bits = whole(value)
            if bits is None or bits < 1 or bits & bits - 1:
                raise OperandError(f"the width of an element must be a power of two, not {value!r}")
            widths.append(bits.bit_length())
        m = self.m + widths[0] - widths[1]
        if self.b and m < 0:
            raise OperandError(f"{self} of elements of {old_bits} bits takes elements of {new_bits} bits apart")
        return Swizzle(self.b, max(m, 0), self.s)

    @property
    def row_bytes(self) -> int | None:
        """The bytes of a row in the mode of descriptors and tensor maps that has this swizzle; None if no mode has it.

        >>> Swizzle(2, 4, 3).row_bytes
        64
        """
        if not self.b:
            return 0
        return next((row for row, bits in _MODES.items() if (bits, _BASE, _SHIFT) == (self.b, self.m, self.s)), None)

    @property
    def region(self) -> int:
        """The size in bytes of the aligned regions within which it permutes bytes: 128 for the three modes.

        >>> Swizzle(3, 4, 3).region, Swizzle(0, 4, 3).region
        (128, 16)
        """
        return 1 << self.m + (self.b and self.b + max(-self.s, 0))

    @property
    def period(self) -> int:
        """The number of bytes after which it repeats: 256, 512 and 1024 for the modes of 32, 64 and 128 bytes.

        >>> Swizzle.mode(128).period
        1024
        """
        return 1 << self.m + (self.b and self.b + abs(self.s))

    @public_call
    def __call__(self, address: Any) -> Any:
        """Permute addresses: an int for an int, an int64 array for an array. It is its own inverse where `s` is at least b.

        Raises
        ------
        OperandError, OperandTypeError
            If an address is negative, or no integer.
        """
        one = whole(address)
        array = as_array(address, f"{self}: addresses")
        if array.dtype.kind not in "ui":
            raise OperandTypeError(f"{self}: addresses must be integers, not {array.dtype}")
        if array.size and int(array.min()) < 0:
            raise OperandError(f"{self}: addresses must be at least 0, not {int(array.min())}")
        if array.size and int(array.max()) >> 63:
            raise OperandError(f"{self}: addresses must be below 2**63, not {int(array.max())}")
        found = array.astype(np.int64)
        source = ((1 << self.b) - 1) << self.m + max(self.s, 0)
        found ^= (found & source) >> self.s if self.s >= 0 else (found & source) << -self.s
        return found if one is None else int(found)

    def __str__(self) -> str:
        return f"Swizzle<{self.b},{self.m},{self.s}>"
