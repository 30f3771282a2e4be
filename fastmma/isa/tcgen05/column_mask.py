"""The zero-column mask of weight-stationary tcgen05.mma: which columns of B count as zeros, and by how many columns B is shifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.descriptor import is_whole

_PARTS = 4
_UNUSED = 0x7 << 36 | 0x3 << 62


@dataclass(frozen=True)
class ZeroColumnMask:
    """The fields of the 64 bits of a zero-column mask.

    The columns of D form one part if M is 128, two if M is 64, and four if M is 32. In each part, spans of used and of zeroed columns
    alternate.

    Attributes
    ----------
    zeroed, used : int
        The columns of a span, 1 to 256.
    starts : tuple of 4 int
        How many columns the first span of each part lacks.
    zeroed_first : tuple of 4 bool
        Whether the first span of each part is zeroed.
    active : bool
        Whether any columns are zeroed.
    shift : int
        Column j of the product takes column j + shift of B, 0 to 32.

    Raises
    ------
    OperandError
        If a field has a value that is not allowed.

    Notes
    -----
    PTX: Zero-Column Mask Descriptor, as CUTLASS's ``MaskAndShiftB`` and ``make_column_zero_mask`` read it for implicit convolutions. PTX
    exchanges the names of the two spans. No GPU was measured.

    Examples
    --------
    >>> mask = ZeroColumnMask(zeroed=1, used=3, starts=(2, 0, 0, 0))
    >>> mask.columns(8, 1).astype(int).tolist()
    [0, 1, 0, 0, 0, 1, 0, 0]
    >>> hex(mask.encode())
    '0x2008000000002'
    """

    zeroed: int = 1
    used: int = 1
    starts: tuple[int, ...] = (0,) * _PARTS
    zeroed_first: tuple[bool, ...] = (False,) * _PARTS
    active: bool = True
    shift: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (("zeroed", 1, 256), ("used", 1, 256), ("shift", 0, 32)):
            value = getattr(self, name)
            if not is_whole(value) or not least <= value <= most:
                raise OperandError(f"a zero-column mask's {name} must be an integer from {least} to {most}, not {value!r:.60}")
        for name, kind in (("starts", int), ("zeroed_first", bool)):
            given = getattr(self, name)
            if not isinstance(given, tuple) or len(given) != _PARTS or any(type(each) is not kind for each in given):
                raise OperandError(f"a zero-column mask's {name} must be a tuple of {_PARTS} of type {kind.__name__}, not {given!r:.60}")
        if type(self.active) is not bool:
            raise OperandError(f"a zero-column mask's active must be True or False, not {self.active!r:.60}")
        if not all(0 <= start < 256 for start in self.starts):
            raise OperandError(f"a zero-column mask's starts must be 0 to 255, not {self.starts}")

    def encode(self) -> int:
        """Return the 64 bits."""
        starts = sum(start << 8 * part for part, start in enumerate(self.starts))
        first = sum(zeroed << part for part, zeroed in enumerate(self.zeroed_first))
        spans = (self.zeroed - 1) << 40 | (self.used - 1) << 48
        return starts | first << 32 | self.active << 39 | spans | self.shift << 56

    @classmethod
    def decode(cls, bits: int) -> ZeroColumnMask:
        """Return the mask that 64 bits encode.

        Raises
        ------
        OperandError
            If the value is not an integer of 64 bits, or a field has a value without a meaning.
        """
        if not is_whole(bits) or not 0 <= bits < 1 << 64:
            raise OperandError(f"a zero-column mask must be an integer of 64 bits, not {bits!r:.60}")
        word = int(bits)
        if word & _UNUSED:
            raise OperandError(f"the bits {word & _UNUSED:#018x} of the zero-column mask {word:#018x} must be 0")
        starts = tuple(word >> 8 * part & 0xFF for part in range(_PARTS))
        first = tuple(bool(word >> 32 + part & 1) for part in range(_PARTS))
        return cls((word >> 40 & 0xFF) + 1, (word >> 48 & 0xFF) + 1, starts, first, bool(word >> 39 & 1), word >> 56)

    def columns(self, n: int, parts: int) -> NDArray[np.bool_]:
        """Return which of n columns of D, in a number of parts, take zeros in place of B's columns.

        Raises
        ------
        OperandError
            If a part starts beyond its first span; the meaning of that is not known.
        """
        found = np.zeros((parts, n // parts), np.bool_)
        for part in range(parts if self.active else 0):
            zeroed_first, start = self.zeroed_first[part], self.starts[part]
            span = self.zeroed if zeroed_first else self.used
            if start >= span:
                raise OperandError(f"part {part} of a zero-column mask must start within its first span of {span} columns, not {start}")
            in_first = (start + np.arange(n // parts)) % (self.zeroed + self.used) < span
            found[part] = in_first == zeroed_first
        return found.ravel()
