"""Zero-column masks of weight-stationary tcgen05.mma: the columns that an implicit convolution leaves out, and those that a mask names."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from fastmma.tcgen05 import ZeroColumnMask
from numpy.typing import NDArray
from reference.operands import finite_codes
from reference.tensor_memory_machine import INSTRUCTIONS, Machine, extras, instruction

import fastmma
from fastmma import OperandError, TargetError, tcgen05


def spelt_out(mask: ZeroColumnMask, n: int, parts: int) -> list[bool]:
    """Span by span, one column after another."""
    found = []
    for part in range(parts):
        zeroed, left = mask.zeroed_first[part], mask.starts[part]
        left = (mask.zeroed if zeroed else mask.used) - left
        for _ in range(n // parts):
            if left == 0:
                zeroed = not zeroed
                left = mask.zeroed if zeroed else mask.used
            found.append(zeroed)
            left -= 1
    return found


def drawn(rng: np.random.Generator) -> ZeroColumnMask:
    zeroed, used = (int(each) for each in rng.integers(1, 20, 2))
    first = tuple(bool(each) for each in rng.integers(0, 2, 4))
    return ZeroColumnMask(zeroed, used, tuple(int(rng.integers(zeroed if each else used)) for each in first), first)


def test_the_fields() -> None:
    mask = ZeroColumnMask(256, 3, (1, 2, 0, 255), (False, True, False, True), True, 32)
    assert mask.encode() == 1 | 2 << 8 | 255 << 24 | 0b1010 << 32 | 1 << 39 | 255 << 40 | 2 << 48 | 32 << 56
    rng = np.random.default_rng(0)
    for _ in range(100):
        mask = dataclasses.replace(drawn(rng), shift=int(rng.integers(33)), active=bool(rng.integers(2)))
        assert ZeroColumnMask.decode(mask.encode()) == mask
    assert not ZeroColumnMask.decode(0).active
    for wrong, why in (
        ({"zeroed": 0}, "zeroed must be an integer from 1 to 256"),
        ({"used": 257}, "used must be"),
        ({"shift": 33}, "shift must be an integer from 0 to 32"),
        ({"starts": (0, 0, 0)}, "starts must be a tuple of 4 of type int"),
        ({"starts": (0, 0, 0, 256)}, "starts must be 0 to 255"),
        ({"zeroed_first": (1, 0, 0, 0)}, "zeroed_first must be a tuple of 4 of type bool"),
        ({"active": 1}, "active must be True or False"),
    ):
        with pytest.raises(OperandError, match=why):
            ZeroColumnMask(**wrong)  # type: ignore[arg-type]
    for bits in (1 << 62, 1 << 37, 1 << 64, -1, 1.5, None):
        with pytest.raises(OperandError, match="zero-column mask"):
            ZeroColumnMask.decode(bits)  # type: ignore[arg-type]


def test_spans_alternate() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        mask = drawn(rng)
        for n, parts in ((256, 1), (64, 1), (64, 2), (128, 2), (64, 4), (256, 4)):
            assert mask.columns(n, parts).tolist() == spelt_out(mask, n, parts)
    assert not ZeroColumnMask(active=False).columns(64, 4).any()


@pytest.mark.parametrize("tap", [0, 1, 2])
@pytest.mark.parametrize("width", [7, 20, 64, 100])
def test_a_convolution_leaves_out_what_lies_beyond_its_rows(width: int, tap: int) -> None:
    """Rows of pixels one behind another, a filter of three taps and a border of one pixel, as CUTLASS sets the fields."""
    for first, (n, parts) in ((0, (64, 1)), (64, (64, 2)), (37, (128, 4)), (5, (256, 2))):
        pixel = (first + np.arange(n)) % width + tap - 1
        beyond = (pixel < 0) | (pixel >= width)
        edge = abs(1 - tap)
        index = [(first + part * n // parts + (edge if tap == 2 else 0)) % width for part in range(parts)]
        begins = tuple([each < edge for each in index] + [False] * (4 - parts))
        starts = tuple([each if each < edge else each - edge for each in index] + [0] * (4 - parts))
        mask = ZeroColumnMask(max(edge, 1), width - max(edge, 1), starts if edge else (0,) * 4, begins, active=edge > 0)
        assert mask.columns(n, parts).tolist() == beyond.tolist()


WEIGHT_STATIONARY = [ins for ins in INSTRUCTIONS if ins.ws]


def shifting(ins: fastmma.Instruction, most: int) -> dict[str, Any]:
    said = tcgen05.InstructionDescriptor.decode(ins.kind, ins.idesc)
    return {"ins": ins.opcode.split()[0], "idesc": dataclasses.replace(said, max_shift=most)}


@pytest.mark.parametrize(("index", "ins"), list(enumerate(WEIGHT_STATIONARY)), ids=str)
def test_products_with_masked_columns(index: int, ins: fastmma.Instruction) -> None:
    machine, rng = Machine(ins, index), np.random.default_rng(index)
    most = 0 if ins.m == 32 else (8, 16, 32)[index % 3]
    shift = int(rng.integers(most + 1))
    mask = dataclasses.replace(drawn(rng), shift=shift)
    wide: NDArray[Any] = finite_codes(rng, ins.btype, (ins.k, ins.n + shift))
    machine.given["b"] = wide
    b, d, more = machine.put_shared("b", 0), machine.put_d(), extras(machine)
    a = machine.put_a() if index % 2 else machine.put_shared("a", 0)
    machine.given["b"] = wide[:, shift:].copy()
    machine.given["b"][:, spelt_out(mask, ins.n, 128 // ins.m)] = 0
    expected = machine.expected(machine.product())
    for given in (mask, mask.encode()):
        np.testing.assert_array_equal(machine.run(d, a, b, zero_column_mask=given, **more, **shifting(ins, most)), expected)
    machine.given["b"] = wide[:, shift:]
    inactive = dataclasses.replace(mask, active=False)
    expected = machine.expected(machine.product())
    np.testing.assert_array_equal(machine.run(d, a, b, zero_column_mask=inactive, **more, **shifting(ins, most)), expected)


def test_masks_are_only_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ins = instruction("f16", "f32", "f16", "f16", 128, 64, ws=True)
    machine = Machine(ins, 3)
    b, a, d = machine.put_shared("b", 0), machine.put_shared("a", 0), machine.put_d()
    with pytest.raises(OperandError, match="shifts B by 9 columns, but the max_shift of the instruction descriptor is 8"):
        machine.run(d, a, b, zero_column_mask=ZeroColumnMask(shift=9), **shifting(ins, 8))
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(TargetError, match="strict mode refuses"):
        machine.run(d, a, b, zero_column_mask=ZeroColumnMask())
