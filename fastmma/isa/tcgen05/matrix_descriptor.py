"""Matrix descriptors of tcgen05: wgmma's with other codes and one more swizzle (PTX: Shared Memory Descriptor)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.descriptor import Descriptor, descriptor_word

# the code of bits 61 to 63: bytes of a row of the swizzle, and whether it moves 32 of them together and not 16
_SWIZZLES = {0: (0, False), 6: (32, False), 4: (64, False), 2: (128, False), 1: (128, True)}
_CODES = {swizzle: code for code, swizzle in _SWIZZLES.items()}
_BITS_OF_K96 = 4 * 96
_CONSTANT = 1  # bits 46 to 48, which wgmma leaves 0
_TRANSPOSED_BITS = {False: (8, 16), True: (32,)}  # widths of elements that can be MN-major, by `wide_atoms`


@dataclass(frozen=True)
class MatrixDescriptor(Descriptor):
    """A matrix descriptor of tcgen05, its fields in bytes.

    Attributes
    ----------
    address, leading, stride, swizzle, base_offset : int
        As in wgmma's `fastmma.warpgroup.Descriptor`.
    wide_atoms : bool
        Only for a swizzle of 128 bytes: it moves 32 bytes together, not 16. MN-major tf32 always has it, and no other operand does.
    absolute : bool
        For K of 96 on sm_103a, whose 48 bytes may begin in one row of the 128-byte swizzle and end in another: `leading` is then the
        address where they continue; the row of 128 bytes begins there.

    Examples
    --------
    >>> hex(MatrixDescriptor(0x400, leading=16, stride=1024, swizzle=128).encode())
    '0x4000404000010040'
    >>> MatrixDescriptor.decode(0x4000404000010040).swizzle
    128
    """

    wide_atoms: bool = False
    absolute: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("wide_atoms", "absolute"):
            if not isinstance(getattr(self, name), bool):
                raise OperandError(f"a descriptor's {name} must be True or False, not {getattr(self, name)!r:.60}")
        if (self.swizzle, self.wide_atoms) not in _CODES:
            raise OperandError(f"a descriptor's wide_atoms go with a swizzle of 128 bytes, not of {self.swizzle}")

    @property
    def _atom(self) -> int:
        return 32 if self.wide_atoms else 16

    def _check_transposed(self, bits: int) -> None:
        if bits not in _TRANSPOSED_BITS[self.wide_atoms]:
            widths = " and ".join(map(str, _TRANSPOSED_BITS[self.wide_atoms]))
            atoms = "with" if self.wide_atoms else "without"
            raise OperandError(f"{atoms} wide atoms, elements of {widths} bits can be MN-major, not those of {bits} bits")

    def offsets(self, outer: int, k: int, bits: int, *, mn_major: bool = False) -> NDArray[np.int64]:
        """Return the byte offset in shared memory of each element of an operand, (outer, k), as for wgmma.

        Raises
        ------
        OperandError
            Also if a K-major operand has wide atoms, or its k reaches beyond a row of the swizzle and `leading` is no address.
        """
        if self.absolute and (mn_major or k * bits != _BITS_OF_K96 or self.swizzle != 128 or self.leading % 128):
            raise OperandError("an absolute leading address is a multiple of 128, for 96 codes of 4 bits in the 128-byte swizzle")
        if self.wide_atoms and not mn_major:
            raise OperandError("a swizzle with wide atoms is for MN-major tf32, not for K-major operands")
        start = self.address % (self.swizzle or 1)  # software walks along k by advancing the address within a row
        if self.swizzle and not mn_major and 8 * start + k * bits > 8 * self.swizzle:
            if self.absolute:
                here = 8 * (self.swizzle - start) // bits
                rest = replace(self, address=self.leading, absolute=False)
                parts = super().offsets(outer, here, bits), rest.offsets(outer, k - here, bits)
                return np.concatenate(parts, axis=1)
            raise OperandError(
                f"{k * bits // 8} bytes of k from byte {start} on do not fit into the {self.swizzle}-byte rows of the swizzle"
            )
        return super().offsets(outer, k, bits, mn_major=mn_major)

    def encode(self) -> int:
        """Return the 64 bits of the descriptor."""
        fields = (
            (self.address >> 4, 0),
            (self.leading >> 4, 16),
            (self.stride >> 4, 32),
            (_CONSTANT, 46),
            (self.base_offset, 49),
            (self.absolute, 52),
            (_CODES[self.swizzle, self.wide_atoms], 61),
        )
        return sum(int(value) << shift for value, shift in fields)

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        """Return the descriptor that 64 bits encode; bits without a meaning are ignored.

        Raises
        ------
        OperandError
            If the value is not an integer of 64 bits, its constant field is wrong, or the code of its swizzle has no meaning.
        """
        word = descriptor_word(bits)
        if word >> 46 & 7 != _CONSTANT:
            raise OperandError(f"bits 46 to 48 of a descriptor of tcgen05 must be 1, not {word >> 46 & 7} as in {word:#018x}")
        if word >> 61 not in _SWIZZLES:
            codes = ", ".join(map(str, sorted(_SWIZZLES)))
            raise OperandError(f"the swizzle of a descriptor (bits 61 to 63) must be one of {codes}, not {word >> 61} as in {word:#018x}")
        row, wide = _SWIZZLES[word >> 61]
        address, leading, stride = ((word >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
        return cls(address, leading, stride, row, word >> 49 & 7, wide, bool(word >> 52 & 1))
