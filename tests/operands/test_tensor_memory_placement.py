"""Where the operands of tcgen05.mma lie in Tensor Memory, as placements show it."""

from __future__ import annotations

from functools import cache

import pytest
from reference import tensor_memory as facts

import fastmma
from fastmma import OperandError, tcgen05

FORMS = [
    tcgen05.instruction(kind, "f32", a, a, m=m, n=64, cta_group=cta_group, ws=ws, sparse=sparse)
    for kind, a in (("f16", "bf16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"))
    for m, cta_group, ws in ((128, 1, False), (64, 1, False), (64, 1, True), (32, 1, True), (256, 2, False), (128, 2, False))
    for sparse in (False, True)
]


@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_every_element(ins: fastmma.Instruction) -> None:
    d, a = fastmma.placement(ins, "d"), fastmma.placement(ins, "a")
    bits = a.layout.bits
    of_lane = cache(lambda lane: set(d.of_lane(lane)))
    for row in range(ins.m):
        for column in range(0, ins.n, 7):
            cta, lane, place = facts.d_cell(ins, row, column)
            cell = d.at(row, column)
            assert (cell.lane, cell.register, cell.bit, cell.row, cell.col) == (128 * cta + lane, place, 0, row, column)
            assert cell in of_lane(cell.lane)
        for k in (0, 3, ins.stored_k - 1):
            found = {(cell.lane, cell.register, cell.bit) for cell in a.copies_of(row, k)}
            assert found == {(128 * cta + lane, k * bits // 32, k * bits % 32) for cta, lane in facts.lanes_of_row(ins, row)}
    if ins.sparse:
        e = fastmma.placement(ins, "metadata")
        for row in range(ins.m):
            for chunk in range(e.layout.shape[1]):
                cells = {(cell.lane, cell.register, cell.bit) for cell in e.copies_of(row, chunk)}
                expected = facts.metadata_cells(ins, row, chunk)
                assert cells == {(128 * cta + lane, column, 4 * nibble) for cta, lane, column, nibble in expected}


def test_lanes_that_hold_nothing() -> None:
    ins = FORMS[2]
    assert ins.m == 64
    held = fastmma.placement(ins, "d")
    assert held.lanes.tolist() == [lane for lane in range(128) if lane % 32 < 16]
    assert held.formulas()["holds"] == "lane / 16 % 2 == 0"
    with pytest.raises(OperandError, match="lane 16 holds nothing of d"):
        held.of_lane(16)
    assert "holds" not in fastmma.placement(FORMS[4], "a").formulas()  # copies are held by all lanes


def test_a_selector_is_in_the_descriptor() -> None:
    assert fastmma.placement(FORMS[1], "metadata", selector=0).lanes.size == 128
    with pytest.raises(OperandError, match="the sparsity selector is a field of the instruction descriptor"):
        fastmma.placement(FORMS[1], "metadata", selector=1)


def test_scales_have_no_cells_of_their_own() -> None:
    ins = tcgen05.instruction("mxf4", "f32", "e2m1", "e2m1")
    with pytest.raises(OperandError, match="there is no operand 'scale_a' in registers; there are a, c, d"):
        fastmma.placement(ins, "scale_a")
    with pytest.raises(OperandError, match="b is read from shared memory"):
        fastmma.placement(ins, "b")
    found = fastmma.trace(ins, 70, 9)
    assert (found.d.lane, found.d.register) == (70, 9)
    assert found.memory == ("b[0..63][9]", "scale_a[70][0..1]", "scale_b[0..1][9]")
