"""The further operands of tcgen05.mma: D left out, scaled or masked, negations, the sparsity selector, the bytes of scales."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from reference.tensor_memory_machine import SFA, SFB, SIMPLE, instruction, simple

from fastmma import OperandError, tcgen05


def test_input_d() -> None:
    machine, where = simple()
    machine.tmem[0, :, :16] = 0x7FFFFFFF  # NaNs
    result = machine.run(*where, enable_input_d=False)
    machine.given["c"] = np.zeros_like(machine.given["c"])
    np.testing.assert_array_equal(result, machine.expected(machine.product()))
    assert np.isnan(machine.run(*where)[0, :, :16].view(np.float32)).all()


def test_disabled_lanes() -> None:
    for ins in (SIMPLE, instruction("f16", "f32", "f16", "f16", 128, 32, cta_group=2)):
        machine, where = simple(ins)
        words = [0x80000001, 0, 0, 0x00F00000] + [0, 2, 0, 0] * (ins.cta_group - 1)
        kept = tuple((i // 128, i % 128) for i in range(128 * ins.cta_group) if words[i // 32] >> i % 32 & 1)
        assert len(kept) == 6 + (ins.cta_group - 1)
        result = machine.run(*where, disable_output_lane=words)
        np.testing.assert_array_equal(result, machine.expected(machine.product(), kept=kept))


def test_negated_operands() -> None:
    machine, where = simple()
    said = tcgen05.InstructionDescriptor.decode("f16", SIMPLE.idesc)
    opcode, before = SIMPLE.opcode.split()[0], dict(machine.given)
    for negate_a, negate_b in ((True, False), (False, True), (True, True)):
        turned = dataclasses.replace(said, negate_a=negate_a, negate_b=negate_b)
        for idesc in (turned, turned.encode()):
            result = machine.run(*where, ins=opcode, idesc=idesc)
            machine.given = {**before, "a": before["a"] ^ np.uint16(0x8000 * negate_a), "b": before["b"] ^ np.uint16(0x8000 * negate_b)}
            np.testing.assert_array_equal(result, machine.expected(machine.product()))


@pytest.mark.parametrize("kind", ["f16", "tf32"])
def test_sparsity_selector(kind: str) -> None:
    ins = instruction(kind, "f32", kind, kind, 128, 16, sparse=True)
    machine, where = simple(ins)
    opcode = ins.opcode.split()[0]
    said = dataclasses.replace(tcgen05.InstructionDescriptor.decode(kind, ins.idesc), sparsity_selector=1)
    metadata = machine.put_metadata(selector=1)
    result = machine.run(*where, ins=opcode, idesc=said, metadata=metadata)
    np.testing.assert_array_equal(result, machine.expected(machine.product()))
    with pytest.raises(OperandError, match="must begin in an even column"):
        machine.run(*where, ins=opcode, idesc=said, metadata=metadata + 1)


@pytest.mark.parametrize(("kind", "ids"), [("mxf8f6f4", (3, 1)), ("mxf4", (2, 0)), ("mxf4", (0, 2))])
def test_bytes_of_scales(kind: str, ids: tuple[int, int]) -> None:
    ins = instruction(kind, "f32", "e2m1", "e2m1", 128, 16)
    machine, where = simple(ins)
    said = tcgen05.InstructionDescriptor.decode(kind, ins.idesc)
    said = dataclasses.replace(said, scale_a_id=ids[0], scale_b_id=ids[1])
    scales = {"scale_a": machine.put_scales("a", ids[0]), "scale_b": machine.put_scales("b", ids[1])}
    result = machine.run(*where, ins=ins.opcode.split()[0], idesc=said, **scales)
    np.testing.assert_array_equal(result, machine.expected(machine.product()))


def test_scales_that_cp_put_there() -> None:
    """512 bytes in the order of cuBLASLt's block-scaled layout are the scales of 128 rows."""
    ins = instruction("mxf4nvf4", "f32", "e2m1", "e2m1", 128, 128)
    machine, where = simple(ins)
    copy, rows = "tcgen05.cp.cta_group::1.32x128b.warpx4", tcgen05.MatrixDescriptor(0, stride=128)
    for start, scales in ((SFA, machine.given["scale_a"]), (SFB, machine.given["scale_b"].T)):
        image = np.zeros(512, np.uint8)
        for i in range(128):
            image[i % 32 * 16 + i // 32 * 4 :][:4] = scales[i]
        machine.tmem = tcgen05.cp(copy, machine.tmem, start, rows, image)
    result = machine.run(*where, scale_a=SFA, scale_b=SFB)
    np.testing.assert_array_equal(result, machine.expected(machine.product()))
