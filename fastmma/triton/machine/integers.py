"""Integers and bits, by the opcodes of PTX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_TWICE = {1: 2, 2: 4, 4: 8}


def _wide(x: Array) -> Array:
    return x.astype(np.dtype(f"{x.dtype.kind}{_TWICE[x.dtype.itemsize]}"))


def multiply_wide(x: Array, y: Array) -> Array:
    """Return all bits of a product."""
    return _wide(x) * _wide(y)


def multiply_high(x: Array, y: Array) -> Array:
    """Return the higher half of a product.

    Examples
    --------
    >>> multiply_high(np.array([2**63], np.uint64), np.array([6], np.uint64)).tolist()
    [3]
    """
    if x.dtype.itemsize < 8:
        return (multiply_wide(x, y) >> (8 * x.dtype.itemsize)).astype(x.dtype)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = x.view(np.uint64), y.view(np.uint64)
    low = (a & mask) * (b & mask)
    first = (a >> half) * (b & mask) + (low >> half)
    second = (a & mask) * (b >> half) + (first & mask)
    high = (a >> half) * (b >> half) + (first >> half) + (second >> half)
    if x.dtype.kind == "i":
        high = high - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return np.asarray(high).view(x.dtype)


def divide(x: Array, y: Array) -> Array:
    """Divide toward zero; all bits are set where the divisor is zero."""
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = x // safe
    if x.dtype.kind == "i":
        quotient = quotient + ((quotient * safe != x) & ((x < 0) != (safe < 0)))
    return np.where(y == 0, np.array(-1, np.int64).astype(x.dtype), quotient).astype(x.dtype)


def remain(x: Array, y: Array) -> Array:
    """Return what a division toward zero leaves; all bits are set where the divisor is zero."""
    return np.asarray(np.where(y == 0, np.array(-1, np.int64).astype(x.dtype), x - divide(x, y) * y))


def _shift(x: Array, count: Array, shift: Callable[[Array, Array], Array]) -> Array:
    bits = 8 * x.dtype.itemsize
    most = np.minimum(count.view(np.uint32) if count.dtype.itemsize == 4 else count, np.uint32(bits - 1)).astype(x.dtype)
    moved = shift(x, most)
    if x.dtype.kind == "i" and shift is np.right_shift:
        return moved
    return np.where(count >= bits, x.dtype.type(0), moved)


def shift_left(x: Array, count: Array) -> Array:
    """Shift to the left; nothing is left of more bits than there are."""
    return _shift(x, count, np.left_shift)


def shift_right(x: Array, count: Array) -> Array:
    """Shift to the right, with the sign of signed numbers."""
    return _shift(x, count, np.right_shift)


def extract(x: Array, place: Array, length: Array) -> Array:
    """Extract a field of bits, ``bfe``."""
    bits = 8 * x.dtype.itemsize
    wide = x.view(np.dtype(f"u{x.dtype.itemsize}")).astype(np.uint64)
    at, size = (part.astype(np.uint64) & np.uint64(255) for part in (place, length))
    there = np.minimum(size, np.uint64(bits) - np.minimum(at, np.uint64(bits)))  # bits of the field that lie in the number
    mask = np.where(there >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(there, np.uint64(63))) - np.uint64(1))
    field = wide >> np.minimum(at, np.uint64(63)) & mask
    if x.dtype.kind == "i":
        last = np.minimum(at + size - np.uint64(1), np.uint64(bits - 1))
        sign = np.where(size == 0, np.uint64(0), wide >> last & np.uint64(1))
        field = np.where(sign == 1, field | ~mask, field)
    return np.asarray(field.astype(np.dtype(f"u{x.dtype.itemsize}"))).view(x.dtype)


def insert(x: Array, y: Array, place: Array, length: Array) -> Array:
    """Insert a field of bits, ``bfi``."""
    bits = 8 * x.dtype.itemsize
    at, size = (part.astype(np.uint64) & np.uint64(255) for part in (place, length))
    ones = np.where(size >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(size, np.uint64(63))) - np.uint64(1))
    mask = np.where(at < bits, ones << np.minimum(at, np.uint64(63)), np.uint64(0)).astype(x.dtype)
    moved = (x.astype(np.uint64) << np.minimum(at, np.uint64(63))).astype(x.dtype)
    return np.asarray((moved & mask) | (y & ~mask))


def permute(x: Array, y: Array, selector: Array) -> Array:
    """Pick bytes of two registers, ``prmt.b32``.

    Examples
    --------
    >>> hex(permute(*(np.array([value], np.uint32) for value in (0x33221100, 0x77665544, 0x7410)))[0])
    '0x77441100'
    """
    both = x.astype(np.uint64) | y.astype(np.uint64) << np.uint64(32)
    result = np.zeros(np.broadcast_shapes(both.shape, selector.shape), np.uint64)
    for index in range(4):
        nibble = selector.astype(np.uint64) >> np.uint64(4 * index) & np.uint64(15)
        byte = both >> ((nibble & np.uint64(7)) * np.uint64(8)) & np.uint64(255)
        spread = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        result |= np.where(nibble & np.uint64(8), spread, byte) << np.uint64(8 * index)
    return result.astype(np.uint32)


# the bytes that modes of `prmt` take, by the two lowest bits of the third operand
_MODES: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    "f4e": lambda n: (n, n + 1, n + 2, n + 3),
    "b4e": lambda n: (n, (n + 7) % 8, (n + 6) % 8, (n + 5) % 8),
    "rc8": lambda n: (n, n, n, n),
    "ecl": lambda n: tuple(max(index, n) for index in range(4)),
    "ecr": lambda n: tuple(min(index, n) for index in range(4)),
    "rc16": lambda n: (2 * (n % 2), 2 * (n % 2) + 1) * 2,
}


def _permute_by(mode: str) -> Callable[[Array, Array, Array], Array]:
    table = np.array([sum(byte << 4 * index for index, byte in enumerate(_MODES[mode](n))) for n in range(4)], np.uint32)
    return lambda x, y, selector: permute(x, y, table[selector & np.uint32(3)])


PERMUTATIONS: Mapping[str, Callable[[Array, Array, Array], Array]] = {"": permute} | {mode: _permute_by(mode) for mode in _MODES}


def saturate(x: Array, y: Array, *, name: str) -> Array:
    """Add or subtract numbers of 32 bits and stop at the ends, ``add.sat.s32``."""
    total = x.astype(np.int64) + y if name == "add" else x.astype(np.int64) - y
    return np.clip(total, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def select(x: Array, y: Array, chosen: Array) -> Array:
    """Take the first number where the third is not negative, ``slct``."""
    return np.where(chosen >= 0, x, y)


def find_shift(x: Array) -> Array:
    """Return by how much to shift the highest bit to the top, ``bfind.shiftamt``; all bits set where there is none."""
    place = find_highest(x)
    return np.where(place == np.uint32(0xFFFFFFFF), place, np.uint32(8 * x.dtype.itemsize - 1) - place)


def combine(x: Array, y: Array, z: Array, table: Array) -> Array:
    """Apply a table of truth to three registers, ``lop3.b32``."""
    rows = int(table.flat[0])
    result: Array = np.zeros((1, 1), x.dtype)
    for row in range(8):
        if rows >> row & 1:
            result = result | ((x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z))
    return result


def shift_pair(low: Array, high: Array, count: Array, *, left: bool, wraps: bool) -> Array:
    """Shift 64 bits in two registers and take one of them, ``shf``."""
    amount = (count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))).astype(np.uint64)
    both = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    moved = both << amount >> np.uint64(32) if left else both >> amount
    return moved.astype(np.uint32)


def count_leading_zeros(x: Array) -> Array:
    """Count the zeros above the highest bit, ``clz``."""
    bits = 8 * x.dtype.itemsize
    result = np.full(x.shape, bits, np.uint32)
    for bit in range(bits):
        result = np.where(x >> x.dtype.type(bit) & x.dtype.type(1), np.uint32(bits - 1 - bit), result)
    return result


def reverse_bits(x: Array) -> Array:
    """Reverse the order of bits, ``brev``."""
    shape = x.shape
    bits = np.unpackbits(np.ascontiguousarray(x)[..., None].view(np.uint8), axis=-1, bitorder="little")
    return np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(x.dtype).reshape(shape)


def find_highest(x: Array) -> Array:
    """Return the place of the highest bit, ``bfind``; all bits set where there is none."""
    magnitudes = np.where(x < 0, ~x, x) if x.dtype.kind == "i" else x
    unsigned = np.asarray(magnitudes).view(np.dtype(f"u{x.dtype.itemsize}"))
    return np.uint32(8 * x.dtype.itemsize - 1) - count_leading_zeros(unsigned)


def _multiply_24(x: Array, y: Array, *, high: bool) -> Array:
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    unused = wide(40)
    a, b = (one.astype(wide) << unused >> unused for one in (x, y))
    return np.asarray(a * b >> wide(16 if high else 0)).astype(x.dtype)


def _add_24(x: Array, y: Array, z: Array, *, high: bool) -> Array:
    return _multiply_24(x, y, high=high) + z


OF_24_BITS: Mapping[str, Callable[..., Array]] = {"mul24": _multiply_24, "mad24": _add_24}


def mask_bits(place: Array, length: Array, *, wraps: bool) -> Array:
    """Set so many bits from a place on, ``bmsk``."""
    at, size = (one & np.uint32(31) if wraps else np.minimum(one, np.uint32(32)) for one in (place, length))
    ones = (np.uint64(1) << size.astype(np.uint64)) - np.uint64(1)
    return np.asarray(ones << at.astype(np.uint64)).astype(np.uint32)


def extend(x: Array, length: Array, *, wraps: bool) -> Array:
    """Keep so many bits, with zeros or the sign in front, ``szext``."""
    size = (length & np.uint32(31) if wraps else np.minimum(length, np.uint32(32))).astype(np.uint64)
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    unused = (np.uint64(64) - size).astype(wide)
    kept = np.where(size == 0, 0, x.astype(wide) << np.minimum(unused, wide(63)) >> np.minimum(unused, wide(63)))
    return kept.astype(x.dtype)


# by name: values of the type, in and out
PLAIN: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "div": divide,
    "rem": remain,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "cnot": lambda x: (x == 0).astype(x.dtype),
    "sad": lambda x, y, z: z + np.where(x > y, x - y, y - x),
    "brev": reverse_bits,
}
COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
