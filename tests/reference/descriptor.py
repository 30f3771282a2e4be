"""Where operands of wgmma and tcgen05 lie in shared memory: CuTe's canonical layouts, typed as nested shapes and strides.

T is the elements of 16 bytes. Strides are in elements; the swizzle then exchanges 16-byte units (or 32-byte ones) within rows of the
address.
"""

from __future__ import annotations

from collections.abc import Sequence

Mode = tuple[int, int]
# swizzle: how many 16-byte units a row has
UNITS = {0: 1, 32: 2, 64: 4, 128: 8}


def canonical(swizzle: int, mn_major: bool, t: int, leading: int, stride: int, big: int) -> tuple[list[Mode], list[Mode]]:
    """(size, stride) of each mode of m or n and of k, fastest first; `leading` and `stride` in elements, open modes `big`."""
    w = UNITS[swizzle]
    if not mn_major and not swizzle:  # ((8,m),(T,2)):((1T,SBO),(1,LBO))
        return [(8, t), (big, stride)], [(t, 1), (big, leading)]
    if not mn_major:  # ((8,m),(T,2)):((wT,SBO),(1,T))
        return [(8, w * t), (big, stride)], [(t, 1), (big, t)]
    if not swizzle:  # ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
        return [(t, 1), (1, t), (big, stride)], [(8, t), (big, leading)]
    return [(t, 1), (w, t), (big, leading)], [(8, w * t), (big, stride)]  # ((T,w,m),(8,k)):((1,T,LBO),(wT,SBO))


def walk(index: int, modes: Sequence[Mode]) -> int:
    total = 0
    for size, stride in modes:
        index, digit = divmod(index, size)
        total += digit * stride
    return total


def atoms_of_32(t: int, leading: int, stride: int, big: int) -> tuple[list[Mode], list[Mode]]:
    """MN-major with the swizzle of 32-byte atoms: 128 bytes of m or n, four lines of k."""
    return [(8 * t, 1), (big, leading)], [(4, 8 * t), (big, stride)]  # Swizzle<2,5,2> o ((8T,m),(4,k)):((1,LBO),(8T,SBO))


def swizzled_by_32(address: int) -> int:
    """Swizzle<2,5,2>: bits 5 and 6 exclusive-or bits 7 and 8."""
    return address ^ (address & 0b11 << 7) >> 2


def swizzled(address: int, swizzle: int) -> int:
    """Bits 4 and up exclusive-or bits 7 and up, as many as a row has 16-byte units: one, two or three."""
    return address ^ (address >> 7 & UNITS[swizzle] - 1) << 4


def byte_offset(
    line: int,
    along: int,
    bits: int,
    *,
    address: int,
    leading: int,
    stride: int,
    swizzle: int,
    mn_major: bool = False,
    wide_atoms: bool = False,
) -> int:
    """Byte of shared memory that holds (or begins) element (m or n, k) of an operand; offsets in bytes."""
    offsets = 128 // bits, leading * 8 // bits, stride * 8 // bits, 1 << 20
    outer, inner = atoms_of_32(*offsets) if wide_atoms else canonical(swizzle, mn_major, *offsets)
    place = address + (walk(line, outer) + walk(along, inner)) * bits // 8
    return swizzled_by_32(place) if wide_atoms else swizzled(place, swizzle)
