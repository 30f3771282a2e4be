"""Matrix descriptors: bits, and the byte of shared memory where each element lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.cases import cases
from reference.descriptor import UNITS, byte_offset

from fastmma import OperandError
from fastmma.execution.warpgroup import Descriptor

FIELD = st.integers(0, (1 << 14) - 1).map(lambda value: value << 4)
SWIZZLE = st.sampled_from([0, 32, 64, 128])


@given(FIELD, FIELD, FIELD, SWIZZLE, st.integers(0, 7))
def test_encoded_and_decoded(address: int, leading: int, stride: int, swizzle: int, base_offset: int) -> None:
    descriptor = Descriptor(address, leading, stride, swizzle, base_offset)
    bits = descriptor.encode()
    assert 0 <= bits < 1 << 64
    assert Descriptor.decode(bits) == descriptor
    # PTX: Matrix Descriptor Format
    assert bits & 0x3FFF == address >> 4
    assert bits >> 16 & 0x3FFF == leading >> 4
    assert bits >> 32 & 0x3FFF == stride >> 4
    assert bits >> 49 & 7 == base_offset
    assert bits >> 62 == {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]


@given(st.integers(0, (1 << 64) - 1))
def test_any_bits_decode(bits: int) -> None:
    used = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62
    assert Descriptor.decode(bits).encode() == bits & used


@pytest.mark.parametrize("bits", [0, 1, 1 << 64, -1, 1 << 70])
def test_bits_beyond_64(bits: int) -> None:
    if 0 <= bits < 1 << 64:
        assert Descriptor.decode(bits).encode() == bits
    else:
        with pytest.raises(OperandError, match="64 bits"):
            Descriptor.decode(bits)


@pytest.mark.parametrize("name", ["address", "leading", "stride"])
@pytest.mark.parametrize("value", [1, 8, 15, 17, -16, 1 << 18, 1.5, "16", None])
def test_fields_that_are_wrong(name: str, value: Any) -> None:
    with pytest.raises(OperandError, match=f"{name} must be a multiple of 16 below 262144"):
        Descriptor(**{"address": 0, name: value})


def test_swizzles_and_base_offsets_that_are_wrong() -> None:
    for swizzle in (16, 1, 256, -32, "128", None, 1.5, []):
        with pytest.raises(OperandError, match="swizzle must be 0, 32, 64 or 128 bytes"):
            Descriptor(0, swizzle=swizzle)  # type: ignore[arg-type]
    for base_offset in (-1, 8, "1", None, 0.5):
        with pytest.raises(OperandError, match="base_offset must be 0 to 7"):
            Descriptor(0, base_offset=base_offset)  # type: ignore[arg-type]


@cases("swizzle", UNITS)
@cases("bits", [1, 8, 16, 32])
@cases("seed", range(3))
def test_k_major_offsets(seed: int, bits: int, swizzle: int) -> None:
    rng = np.random.default_rng(seed)
    address, leading, stride = (16 * int(value) for value in rng.integers(0, 1000, 3))
    outer = 8 * int(rng.integers(1, 9))
    for k in (256 // bits, 512 // bits):
        if swizzle == 32 and k * bits > 256:
            continue
        offsets = Descriptor(address, leading, stride, swizzle).offsets(outer, k, bits)
        expected = [
            [byte_offset(i, j, bits, address=address, leading=leading, stride=stride, swizzle=swizzle) for j in range(k)]
            for i in range(outer)
        ]
        np.testing.assert_array_equal(offsets, expected)


@cases("swizzle", UNITS)
@cases("seed", range(5))
def test_mn_major_offsets(seed: int, swizzle: int) -> None:
    rng = np.random.default_rng(seed)
    address, leading, stride = (16 * int(value) for value in rng.integers(0, 1000, 3))
    outer, k = 8 * int(rng.integers(1, 33)), int(rng.choice([16, 32]))
    offsets = Descriptor(address, leading, stride, swizzle).offsets(outer, k, 16, mn_major=True)
    expected = [
        [byte_offset(i, j, 16, address=address, leading=leading, stride=stride, swizzle=swizzle, mn_major=True) for j in range(k)]
        for i in range(outer)
    ]
    np.testing.assert_array_equal(offsets, expected)


@pytest.mark.parametrize("swizzle", UNITS)
@pytest.mark.parametrize("mn_major", [False, True])
def test_dense_tiles_are_bijections(swizzle: int, mn_major: bool) -> None:
    row = 16 * UNITS[swizzle]
    leading, stride = {(False, False): (128, 256), (True, False): (128, 256)}.get((mn_major, bool(swizzle)), (16 * row, 8 * row))
    offsets = Descriptor(1024, leading, stride, swizzle).offsets(64, 16, 16, mn_major=mn_major)
    assert len(set(offsets.ravel().tolist())) == 64 * 16
    assert (offsets % 2 == 0).all()


def test_integers_of_numpy() -> None:
    descriptor = Descriptor(np.int64(1024), np.int32(128), np.uint16(256), np.int64(32), np.uint8(1))  # type: ignore[arg-type]
    assert descriptor.encode() == Descriptor(1024, 128, 256, 32, 1).encode()
    assert Descriptor.decode(np.uint64(descriptor.encode())) == descriptor  # type: ignore[arg-type]


def test_the_base_offset_shifts_the_pattern() -> None:
    """A matrix that starts in the middle of a pattern lies as one that starts at its beginning, moved."""
    whole = Descriptor(1024, 0, 1024, 128).offsets(8, 16, 16)
    for lines in range(1, 8):
        moved = Descriptor(1024 + 128 * lines, 0, 1024, 128, base_offset=lines).offsets(8, 16, 16)
        np.testing.assert_array_equal(moved - 128 * lines, whole)


def test_only_16_bit_elements_can_be_mn_major() -> None:
    for bits in (1, 8, 32):
        with pytest.raises(OperandError, match="only 16-bit elements can be transposed"):
            Descriptor(0).offsets(8, 256 // bits, bits, mn_major=True)


def test_rows_that_are_longer_than_the_swizzle() -> None:
    with pytest.raises(OperandError, match="64 bytes of k do not fit into the 32-byte rows"):
        Descriptor(0, swizzle=32).offsets(8, 32, 16)
    for bits in (None, "1", 1.5, []):
        with pytest.raises(OperandError, match="64 bits"):
            Descriptor.decode(bits)  # type: ignore[arg-type]
