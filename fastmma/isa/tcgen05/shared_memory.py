"""Matrix descriptors of tcgen05: wgmma's with other codes, and with a swizzle of atoms of 32 bytes (PTX: Shared Memory Descriptor)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.descriptor import Descriptor, descriptor_word, is_whole

# the code of bits 61 to 63: bytes of a row of the swizzle, and of what it moves together
_SWIZZLES = {0: (0, 16), 6: (32, 16), 4: (64, 16), 2: (128, 16), 1: (128, 32)}
_CODES = {swizzle: code for code, swizzle in _SWIZZLES.items()}
_CONSTANT = 1  # bits 46 to 48, which wgmma leaves 0
_TRANSPOSED_BITS = {16: (8, 16), 32: (32,)}  # widths of elements that can be MN-major, by the bytes that the swizzle moves together


@dataclass(frozen=True)
class SharedMemoryDescriptor(Descriptor):
    """A matrix descriptor of tcgen05, its fields in bytes.

    Attributes
    ----------
    address, leading, stride, swizzle, base_offset : int
        As wgmma has them: `fastmma.warpgroup.Descriptor`.
    atom : int
        Bytes that the swizzle moves together: 16, or 32 with a swizzle of 128 bytes, which only MN-major tf32 has.
    absolute : bool
        Whether `leading` is an address, which is for K of 96 on sm_103a.

    Examples
    --------
    >>> hex(SharedMemoryDescriptor(0x400, leading=16, stride=1024, swizzle=128).encode())
    '0x4000404000010040'
    >>> SharedMemoryDescriptor.decode(0x4000404000010040).swizzle
    128
    """

    atom: int = 16
    absolute: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.atom) or (self.swizzle, self.atom) not in _CODES:
            raise OperandError(f"a descriptor's atom must be 16, or 32 with a swizzle of 128 bytes, not {self.atom!r}")
        if not isinstance(self.absolute, bool):
            raise OperandError(f"a descriptor's absolute must be True or False, not {self.absolute!r}")

    @property
    def _atom(self) -> int:
        return self.atom

    def _check_transposed(self, bits: int) -> None:
        if bits not in _TRANSPOSED_BITS[self.atom]:
            hint = "; 32-bit ones need a swizzle of 128 bytes with atoms of 32" if bits == 32 else ""
            widths = " and ".join(map(str, _TRANSPOSED_BITS[self.atom]))
            raise OperandError(f"with atoms of {self.atom} bytes, {widths}-bit elements can be transposed, not {bits}-bit ones{hint}")

    def offsets(self, outer: int, k: int, bits: int, *, mn_major: bool = False) -> NDArray[np.int64]:
        """Byte offset in shared memory of each element of an operand, (outer, k), as for wgmma.

        Raises
        ------
        OperandError
            Also if `leading` is an address, or a K-major operand has a swizzle of atoms of 32 bytes.
        """
        if self.absolute:
            raise OperandError("a descriptor whose leading offset is an address is for K of 96, whose place in memory is not known")
        if self.atom == 32 and not mn_major:
            raise OperandError("a swizzle of atoms of 32 bytes is for MN-major tf32, not for K-major operands")
        return super().offsets(outer, k, bits, mn_major=mn_major)

    def encode(self) -> int:
        """The 64 bits of the descriptor."""
        fields = (
            (self.address >> 4, 0),
            (self.leading >> 4, 16),
            (self.stride >> 4, 32),
            (_CONSTANT, 46),
            (self.base_offset, 49),
            (self.absolute, 52),
            (_CODES[self.swizzle, self.atom], 61),
        )
        return sum(int(value) << shift for value, shift in fields)

    @classmethod
    def decode(cls, bits: int) -> SharedMemoryDescriptor:
        """The fields of 64 bits; bits that mean nothing are ignored.

        Raises
        ------
        OperandError
            If it is no integer of 64 bits, its constant is another one, or its swizzle has a code without a meaning.
        """
        word = descriptor_word(bits)
        if word >> 46 & 7 != _CONSTANT:
            raise OperandError(f"bits 46 to 48 of a descriptor of tcgen05 must be 1, not {word >> 46 & 7} as in {word:#018x}")
        if word >> 61 not in _SWIZZLES:
            codes = ", ".join(map(str, sorted(_SWIZZLES)))
            raise OperandError(f"the swizzle of a descriptor (bits 61 to 63) must be one of {codes}, not {word >> 61} as in {word:#018x}")
        row, atom = _SWIZZLES[word >> 61]
        address, leading, stride = ((word >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
        return cls(address, leading, stride, row, word >> 49 & 7, atom, bool(word >> 52 & 1))
