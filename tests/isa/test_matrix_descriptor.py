"""Matrix descriptors of tcgen05: bits, and the byte of shared memory where each element lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.cases import cases
from reference.descriptor import byte_offset, swizzled

from fastmma import OperandError
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor

FIELD = st.integers(0, (1 << 14) - 1).map(lambda value: value << 4)
# (bytes of a row, wide atoms) and CUTLASS's UMMA::LayoutType
CODES = {(0, False): 0, (128, True): 1, (128, False): 2, (64, False): 4, (32, False): 6}


@given(FIELD, FIELD, FIELD, st.sampled_from(list(CODES)), st.integers(0, 7), st.booleans())
def test_encoded_and_decoded(address: int, leading: int, stride: int, swizzle: tuple[int, bool], base_offset: int, absolute: bool) -> None:
    descriptor = MatrixDescriptor(address, leading, stride, swizzle[0], base_offset, swizzle[1], absolute)
    bits = descriptor.encode()
    assert MatrixDescriptor.decode(bits) == descriptor
    fields = address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | base_offset << 49 | absolute << 52 | CODES[swizzle] << 61
    assert bits == fields


@given(FIELD, FIELD, FIELD, st.sampled_from([0, 32, 64, 128]), st.integers(0, 7))
def test_wgmmas_with_another_code(address: int, leading: int, stride: int, swizzle: int, base_offset: int) -> None:
    """The swizzle's two bits become three, and a constant joins them."""
    wgmma = Descriptor(address, leading, stride, swizzle, base_offset).encode()
    tcgen05 = MatrixDescriptor(address, leading, stride, swizzle, base_offset).encode()
    code = wgmma >> 62
    assert tcgen05 == (wgmma & (1 << 62) - 1) + (1 << 46) + ((0, 2, 4, 6)[code] << 61)


def test_cutlass_constant() -> None:
    """The descriptor of a K-major operand with a swizzle of 128 bytes, as it stands in Triton's and CUTLASS's tests."""
    assert MatrixDescriptor(0, 16, 1024, 128).encode() == 0x4000404000010000
    assert MatrixDescriptor.decode(0x4000404000010000 + (0x2400 >> 4)) == MatrixDescriptor(0x2400, 16, 1024, 128)


@pytest.mark.parametrize("code", [3, 5, 7])
def test_codes_of_swizzles_without_a_meaning(code: int) -> None:
    with pytest.raises(OperandError, match=f"must be one of 0, 1, 2, 4, 6, not {code}"):
        MatrixDescriptor.decode(1 << 46 | code << 61)


def test_a_descriptor_of_wgmma_is_refused() -> None:
    with pytest.raises(OperandError, match="bits 46 to 48 of a descriptor of tcgen05 must be 1, not 0"):
        MatrixDescriptor.decode(Descriptor(1024, 128, 256, 128).encode())


@pytest.mark.parametrize("bits", [-1, 1 << 64, "1", None, 1.5])
def test_what_is_no_word(bits: Any) -> None:
    with pytest.raises(OperandError, match="64 bits"):
        MatrixDescriptor.decode(bits)


def test_fields_that_are_wrong() -> None:
    for swizzle in (0, 64):
        with pytest.raises(OperandError, match=f"wide_atoms go with a swizzle of 128 bytes, not of {swizzle}"):
            MatrixDescriptor(0, swizzle=swizzle, wide_atoms=True)
    for name in ("wide_atoms", "absolute"):
        with pytest.raises(OperandError, match=f"{name} must be True or False"):
            MatrixDescriptor(0, **{name: 1})
    with pytest.raises(OperandError, match="address must be a multiple of 16"):
        MatrixDescriptor(8)
    with pytest.raises(OperandError, match="swizzle must be 0, 32, 64 or 128 bytes"):
        MatrixDescriptor(0, swizzle=16)


def expected(outer: int, k: int, bits: int, **fields: Any) -> list[list[int]]:
    return [[byte_offset(i, j, bits, **fields) for j in range(k)] for i in range(outer)]


@cases("bits", [4, 8, 16, 32])
@cases("swizzle", [0, 32, 64, 128])
@cases("seed", range(3))
def test_k_major_offsets(seed: int, swizzle: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    address, leading, stride = (32 * int(value) for value in rng.integers(0, 1000, 3))
    outer, k = 8 * int(rng.integers(1, 9)), 256 // bits
    offsets = MatrixDescriptor(address, leading, stride, swizzle).offsets(outer, k, bits)
    np.testing.assert_array_equal(offsets, expected(outer, k, bits, address=address, leading=leading, stride=stride, swizzle=swizzle))


@cases("bits", [8, 16, 32])
@cases("swizzle", [0, 32, 64, 128])
@cases("seed", range(3))
def test_mn_major_offsets(seed: int, swizzle: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    address, leading, stride = (16 * int(value) for value in rng.integers(0, 1000, 3))
    outer, k = 8 * int(rng.integers(1, 33)), 256 // bits
    fields: dict[str, Any] = {
        "address": address,
        "leading": leading,
        "stride": stride,
        "swizzle": 128 if bits == 32 else swizzle,
        "wide_atoms": bits == 32,
    }
    offsets = MatrixDescriptor(**fields).offsets(outer, k, bits, mn_major=True)
    np.testing.assert_array_equal(offsets, expected(outer, k, bits, mn_major=True, **fields))


def test_widths_that_cannot_be_mn_major() -> None:
    with pytest.raises(OperandError, match="without wide atoms, elements of 8 and 16 bits can be MN-major, not those of 32 bits"):
        MatrixDescriptor(0, swizzle=128).offsets(8, 8, 32, mn_major=True)
    with pytest.raises(OperandError, match="with wide atoms, elements of 32 bits can be MN-major, not those of 16 bits"):
        MatrixDescriptor(0, swizzle=128, wide_atoms=True).offsets(8, 16, 16, mn_major=True)
    with pytest.raises(OperandError, match="not those of 4 bits"):
        MatrixDescriptor(0, swizzle=128).offsets(8, 64, 4, mn_major=True)
    with pytest.raises(OperandError, match="wide atoms is for MN-major tf32"):
        MatrixDescriptor(0, swizzle=128, wide_atoms=True).offsets(8, 8, 32)


def test_k_beyond_a_row_of_the_swizzle() -> None:
    assert MatrixDescriptor(1024 + 96, 0, 1024, 128).offsets(8, 32, 8).max() < 2048
    for address, swizzle, k in ((1024 + 112, 128, 32), (1024 + 32, 64, 64), (1024, 32, 64)):
        with pytest.raises(OperandError, match=f"{k} bytes of k from byte {address % swizzle} on do not fit into the {swizzle}-byte rows"):
            MatrixDescriptor(address, 0, 1024, swizzle).offsets(8, k, 8)


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


def test_absolute_addresses_are_for_k_of_96() -> None:
    why = "an absolute leading address is a multiple of 128, for 96 codes of 4 bits in the 128-byte swizzle"
    for descriptor, k, bits, mn_major in (
        (MatrixDescriptor(0, swizzle=128, absolute=True), 64, 4, False),
        (MatrixDescriptor(0, swizzle=64, absolute=True), 96, 4, False),
        (MatrixDescriptor(0, leading=64, swizzle=128, absolute=True), 96, 4, False),
        (MatrixDescriptor(0, swizzle=128, absolute=True), 48, 8, True),
    ):
        with pytest.raises(OperandError, match=why):
            descriptor.offsets(8, k, bits, mn_major=mn_major)
    with pytest.raises(OperandError, match="48 bytes of k from byte 96 on do not fit into the 128-byte rows"):
        MatrixDescriptor(96, stride=1024, swizzle=128).offsets(8, 96, 4)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_dense_tiles_are_bijections(bits: int) -> None:
    wide = bits == 32
    width, lines, k = 1024 // bits, 4 if wide else 8, 256 // bits
    descriptor = MatrixDescriptor(2048, leading=k * 128, stride=lines * 128, swizzle=128, wide_atoms=wide)
    offsets = descriptor.offsets(2 * width, k, bits, mn_major=True)
    assert sorted(offsets.ravel().tolist()) == list(range(2048, 2048 + 2 * width * k * bits // 8, bits // 8))
