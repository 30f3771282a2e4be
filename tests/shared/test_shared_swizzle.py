"""Swizzles against CuTe's definition, bit by bit, and against the modes of descriptors."""

from __future__ import annotations

import numpy as np
import pytest
from reference.descriptor import UNITS, swizzled, swizzled_by_32

from fastmma import OperandError, OperandTypeError
from fastmma.shared import Swizzle


def cute(b: int, m: int, s: int, address: int) -> int:
    """cute/swizzle.hpp: the bits yyy, moved by s, are exclusive-or'ed into zzz; negative s moves them up."""
    bit_msk = (1 << b) - 1
    yyy_msk = bit_msk << m + max(0, s)
    moved = (address & yyy_msk) >> s if s >= 0 else (address & yyy_msk) << -s
    return address ^ moved


def test_cutes_definition() -> None:
    addresses = np.random.default_rng(0).integers(0, 1 << 18, 200)
    for b in range(4):
        for m in range(6):
            for s in (-5, -3, 3, 4):
                swizzle = Swizzle(b, m, s)
                found = swizzle(addresses)
                assert found.tolist() == [cute(b, m, s, int(address)) for address in addresses]
                whole = swizzle(np.arange(swizzle.period) + 5 * swizzle.period)
                regions = whole.reshape(-1, swizzle.region) // swizzle.region
                assert (np.sort(whole) == np.arange(swizzle.period) + 5 * swizzle.period).all()
                assert (regions == regions[:, :1]).all()
                assert isinstance(swizzle(77), int)


def test_modes_are_those_of_descriptors() -> None:
    addresses = np.arange(4096)
    for row_bytes in UNITS:
        mode = Swizzle.mode(row_bytes)
        assert mode.row_bytes == row_bytes
        assert mode(addresses).tolist() == [swizzled(int(address), row_bytes) for address in addresses]
    assert Swizzle(2, 5, 2)(addresses).tolist() == [swizzled_by_32(int(address)) for address in addresses]
    assert Swizzle(2, 5, 2).row_bytes is None


def test_recast_counts_other_elements() -> None:
    halves = np.arange(1024)
    of_halves = Swizzle(3, 3, 3)
    assert (of_halves.recast(16, 8)(halves * 2) == of_halves(halves) * 2).all()
    assert (Swizzle.mode(64).recast(8, 4)(halves * 2) == Swizzle.mode(64)(halves) * 2).all()
    with pytest.raises(OperandError, match="takes elements of 256 bits apart"):
        Swizzle(3, 4, 3).recast(8, 256)


@pytest.mark.parametrize(("numbers", "message"), [((3, 4, 2), "s of a swizzle"), ((-1, 4, 3), "b of a swizzle"), ((1, 60, 3), "beyond")])
def test_what_cute_refuses(numbers: tuple[int, int, int], message: str) -> None:
    with pytest.raises(OperandError, match=message):
        Swizzle(*numbers)


def test_wrong_addresses() -> None:
    with pytest.raises(OperandError, match="at least 0, not -1"):
        Swizzle.mode(32)([4, -1])
    with pytest.raises(OperandTypeError, match="integers, not float64"):
        Swizzle.mode(32)(0.5)
    with pytest.raises(OperandError, match="0, 32, 64, 128 bytes, not 16"):
        Swizzle.mode(16)
