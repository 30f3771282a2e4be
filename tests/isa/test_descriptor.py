"""Matrix descriptors of wgmma and of tcgen05: bits, and the byte of shared memory where each element lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.cases import cases
from reference.descriptor import UNITS, byte_offset, swizzled

from fastmma import OperandError
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor

FIELD = st.integers(0, (1 << 14) - 1).map(lambda value: value << 4)
# (bytes of a row, wide atoms) and CUTLASS's UMMA::LayoutType
CODES = {(0, False): 0, (128, True): 1, (128, False): 2, (64, False): 4, (32, False): 6}
BOTH = (Descriptor, MatrixDescriptor)


@given(FIELD, FIELD, FIELD, st.sampled_from([0, 32, 64, 128]), st.integers(0, 7))
def test_wgmmas_are_encoded_and_decoded(address: int, leading: int, stride: int, swizzle: int, base_offset: int) -> None:
    descriptor = Descriptor(address, leading, stride, swizzle, base_offset)
    bits = descriptor.encode()
    assert Descriptor.decode(bits) == descriptor
    # PTX: Matrix Descriptor Format
    code = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    assert bits == address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 | code << 62


@given(FIELD, FIELD, FIELD, st.sampled_from(list(CODES)), st.integers(0, 7), st.booleans())
def test_tcgen05s_are_encoded_and_decoded(
    address: int, leading: int, stride: int, swizzle: tuple[int, bool], base_offset: int, absolute: bool
) -> None:
    descriptor = MatrixDescriptor(address, leading, stride, swizzle[0], base_offset, swizzle[1], absolute)
    bits = descriptor.encode()
    assert MatrixDescriptor.decode(bits) == descriptor
    fields = address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | base_offset << 49 | absolute << 52 | CODES[swizzle] << 61
    assert bits == fields


@given(st.integers(0, (1 << 64) - 1))
def test_any_bits_are_a_descriptor_of_wgmma(bits: int) -> None:
    used = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62
    assert Descriptor.decode(bits).encode() == bits & used


def test_cutlass_constant() -> None:
    """The descriptor of a K-major operand with a swizzle of 128 bytes, as it stands in Triton's and CUTLASS's tests."""
    assert MatrixDescriptor(0, 16, 1024, 128).encode() == 0x4000404000010000
    assert MatrixDescriptor.decode(0x4000404000010000 + (0x2400 >> 4)) == MatrixDescriptor(0x2400, 16, 1024, 128)


@cases("kind", BOTH)
def test_integers_of_numpy(kind: Any) -> None:
    descriptor = kind(np.int64(1024), np.int32(128), np.uint16(256), np.int64(32), np.uint8(1))
    assert descriptor.encode() == kind(1024, 128, 256, 32, 1).encode()
    assert kind.decode(np.uint64(descriptor.encode())) == descriptor


ABSOLUTE = "an absolute leading address is a multiple of 128, for 96 codes of 4 bits in the 128-byte swizzle"
WIDE: dict[str, Any] = {"swizzle": 128, "wide_atoms": True}
REFUSED: list[tuple[Any, str]] = [
    *((lambda kind=kind, bits=bits: kind.decode(bits), "64 bits") for kind in BOTH for bits in (1 << 64, -1, 1 << 70, None, "1", 1.5, [])),
    *(
        (lambda kind=kind, name=name, value=value: kind(**{"address": 0, name: value}), f"{name} must be a multiple of 16 below 262144")
        for kind in BOTH
        for name in ("address", "leading", "stride")
        for value in (1, 8, 15, 17, -16, 1 << 18, 1.5, "16", None)
    ),
    *(
        (lambda kind=kind, swizzle=swizzle: kind(0, swizzle=swizzle), "swizzle must be 0, 32, 64 or 128 bytes")
        for kind in BOTH
        for swizzle in (16, 1, 256, -32, "128", None, 1.5, [])
    ),
    *(
        (lambda kind=kind, value=value: kind(0, base_offset=value), "base_offset must be 0 to 7")
        for kind in BOTH
        for value in (-1, 8, "1", None, 0.5)
    ),
    (lambda: Descriptor(0, swizzle=32).offsets(8, 32, 16), "64 bytes of k do not fit into the 32-byte rows"),
    *(
        (lambda bits=bits: Descriptor(0).offsets(8, 256 // bits, bits, mn_major=True), "only 16-bit elements can be transposed")
        for bits in (1, 8, 32)
    ),
    *((lambda code=code: MatrixDescriptor.decode(1 << 46 | code << 61), f"must be one of 0, 1, 2, 4, 6, not {code}") for code in (3, 5, 7)),
    (
        lambda: MatrixDescriptor.decode(Descriptor(1024, 128, 256, 128).encode()),
        "bits 46 to 48 of a descriptor of tcgen05 must be 1, not 0",
    ),
    *(
        (lambda size=size: MatrixDescriptor(0, swizzle=size, wide_atoms=True), f"wide_atoms go with a swizzle of 128 bytes, not of {size}")
        for size in (0, 64)
    ),
    (lambda: MatrixDescriptor(0, wide_atoms=1), "wide_atoms must be True or False"),  # type: ignore[arg-type]
    (lambda: MatrixDescriptor(0, absolute=1), "absolute must be True or False"),  # type: ignore[arg-type]
    # widths that cannot be MN-major
    (
        lambda: MatrixDescriptor(0, swizzle=128).offsets(8, 8, 32, mn_major=True),
        "without wide atoms, elements of 8 and 16 bits can be MN-major, not those of 32 bits",
    ),
    (
        lambda: MatrixDescriptor(0, **WIDE).offsets(8, 16, 16, mn_major=True),
        "with wide atoms, elements of 32 bits can be MN-major, not those of 16 bits",
    ),
    (lambda: MatrixDescriptor(0, swizzle=128).offsets(8, 64, 4, mn_major=True), "not those of 4 bits"),
    (lambda: MatrixDescriptor(0, **WIDE).offsets(8, 8, 32), "wide atoms is for MN-major tf32"),
    # k beyond a row of the swizzle
    *(
        (
            lambda address=address, swizzle=swizzle, k=k: MatrixDescriptor(address, 0, 1024, swizzle).offsets(8, k, 8),
            f"{k} bytes of k from byte {address % swizzle} on do not fit into the {swizzle}-byte rows",
        )
        for address, swizzle, k in ((1024 + 112, 128, 32), (1024 + 32, 64, 64), (1024, 32, 64))
    ),
    (
        lambda: MatrixDescriptor(96, stride=1024, swizzle=128).offsets(8, 96, 4),
        "48 bytes of k from byte 96 on do not fit into the 128-byte",
    ),
    # absolute addresses are for k of 96
    (lambda: MatrixDescriptor(0, swizzle=128, absolute=True).offsets(8, 64, 4), ABSOLUTE),
    (lambda: MatrixDescriptor(0, swizzle=64, absolute=True).offsets(8, 96, 4), ABSOLUTE),
    (lambda: MatrixDescriptor(0, leading=64, swizzle=128, absolute=True).offsets(8, 96, 4), ABSOLUTE),
    (lambda: MatrixDescriptor(0, swizzle=128, absolute=True).offsets(8, 48, 8, mn_major=True), ABSOLUTE),
]


@cases(("call", "message"), REFUSED)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(OperandError, match=message):
        call()


def compared(kind: Any, outer: int, k: int, bits: int, mn_major: bool = False, **fields: Any) -> None:
    expected = [[byte_offset(i, j, bits, mn_major=mn_major, **fields) for j in range(k)] for i in range(outer)]
    np.testing.assert_array_equal(kind(**fields).offsets(outer, k, bits, mn_major=mn_major), expected)


# widths of elements, K-major and MN-major
WIDTHS = {
    (Descriptor, False): (1, 8, 16, 32),
    (Descriptor, True): (16,),
    (MatrixDescriptor, False): (4, 8, 16, 32),
    (MatrixDescriptor, True): (8, 16, 32),
}


@cases("seed", range(3))
@cases("swizzle", UNITS)
@cases(("kind", "mn_major", "bits"), [(*key, bits) for key, widths in WIDTHS.items() for bits in widths])
def test_offsets(kind: Any, mn_major: bool, bits: int, swizzle: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields: dict[str, Any] = {
        name: 32 * int(value) for name, value in zip(("address", "leading", "stride"), rng.integers(0, 1000, 3), strict=True)
    }
    outer, fields["swizzle"] = 8 * int(rng.integers(1, 33 if mn_major else 9)), swizzle
    if mn_major and bits == 32:
        fields |= WIDE
    compared(kind, outer, 256 // bits, bits, mn_major, **fields)
    if kind is Descriptor and (mn_major or swizzle != 32):
        compared(kind, outer, 512 // bits, bits, mn_major, **fields)


def test_the_base_offset_shifts_the_pattern() -> None:
    """A matrix that starts in the middle of a pattern lies as one that starts at its beginning, moved."""
    whole = Descriptor(1024, 0, 1024, 128).offsets(8, 16, 16)
    for lines in range(1, 8):
        moved = Descriptor(1024 + 128 * lines, 0, 1024, 128, base_offset=lines).offsets(8, 16, 16)
        np.testing.assert_array_equal(moved - 128 * lines, whole)


@pytest.mark.parametrize("step", range(8))
def test_48_bytes_of_k_go_on_at_the_absolute_address(step: int) -> None:
    """Eight steps of 96 codes fill three rows of 128 bytes, which lie in three tiles."""
    tiles, outer = (4096, 40960, 9216, 0), 24
    first, start = divmod(48 * step, 128)
    descriptor = MatrixDescriptor(tiles[first] + start, leading=tiles[first + 1], stride=1024, swizzle=128, absolute=True)
    found = descriptor.offsets(outer, 96, 4)
    for line in range(outer):
        for k in range(96):
            tile, byte = divmod(48 * step + k // 2, 128)
            assert found[line, k] == swizzled(tiles[tile] + line // 8 * 1024 + line % 8 * 128 + byte, 128)
