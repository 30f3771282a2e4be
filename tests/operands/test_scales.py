"""Scales of block-scaled instructions: registers, selectors, and the same product at both levels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference import scales as facts
from reference.cases import cases
from reference.operands import matrices, multiplied

import fastmma
from fastmma import InstructionError, OperandError, OperandTypeError, sparse, warp
from fastmma.operands import scales

SCALED = [ins for ins in fastmma.instructions(op="mma") if isinstance(ins, fastmma.Instruction) and ins.scale_vec_size]
FORMS = list({(ins.scale_vec_size, ins.stype, bool(ins.sparse)): ins for ins in SCALED}.values())


def selections(ins: fastmma.Instruction, operand: str) -> list[tuple[int, int]]:
    return list(itertools.product(facts.BYTE_IDS[ins.scale_vec_size], facts.THREAD_IDS[operand]))


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_scales_in_registers(ins: fastmma.Instruction, operand: str) -> None:
    rng = np.random.default_rng(1)
    lines = ins.m if operand == "a" else ins.n
    top = 256 if ins.stype == "ue8m0" else 128
    for byte_id, thread_id in selections(ins, operand):
        given = rng.integers(0, top, (2, lines, ins.scale_vec_size), dtype=np.uint8)
        packed = scales.pack_scales(ins, given, operand, byte_id, thread_id)
        assert packed.dtype == np.uint32
        assert packed.shape == (2, 32)
        others = np.zeros((2, 32), np.uint32)
        seen = set()
        for lane, byte in itertools.product(range(32), range(4)):
            place = facts.scale_at(operand, lane, byte, ins.scale_vec_size, byte_id, thread_id)
            held = packed[:, lane] >> np.uint32(8 * byte) & np.uint32(255)
            np.testing.assert_array_equal(held, 0 if place is None else given[:, place[0], place[1]])
            if place is None:
                others[:, lane] |= np.uint32(rng.integers(0, 256) << 8 * byte)
            seen |= {place} - {None}
        assert len(seen) == lines * ins.scale_vec_size
        np.testing.assert_array_equal(scales.unpack_scales(ins, packed | others, operand, byte_id, thread_id), given)
        if ins.stype == "ue4m3":  # it has no sign
            np.testing.assert_array_equal(scales.unpack_scales(ins.opcode, packed | 0x80808080, operand, byte_id, thread_id), given)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_selectors_out_of_range(ins: fastmma.Instruction, operand: str) -> None:
    given = np.zeros((ins.m if operand == "a" else ins.n, ins.scale_vec_size), np.uint8)
    registers = np.zeros(32, np.uint32)
    bytes_, threads = facts.BYTE_IDS[ins.scale_vec_size], facts.THREAD_IDS[operand]
    wrong: list[tuple[str, Any, Any]] = [("byte_id", bad, 0) for bad in (*set(range(-1, 6)) - set(bytes_), None, True, "0", 0.0)]
    wrong += [("thread_id", 0, bad) for bad in (*set(range(-1, 6)) - set(threads), None, False, "0", 0.0)]
    for name, byte_id, thread_id in wrong:
        for call in (scales.pack_scales, scales.unpack_scales):
            with pytest.raises(OperandError, match=f"{name}_{operand} must be one of") as caught:
                call(ins, given if call is scales.pack_scales else registers, operand, byte_id, thread_id)
            assert str(caught.value).startswith(ins.opcode)


INS, OPCODE = FORMS[0], "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
REGISTERS, HELD = np.zeros(32, np.uint32), {name: np.zeros((32, count), np.uint32) for name, count in (("a", 4), ("b", 2), ("c", 4))}
GIVEN = np.zeros((INS.m, INS.scale_vec_size), np.uint8)
REFUSALS = [
    (lambda: scales.unpack_scales(OPCODE, REGISTERS, "a"), InstructionError, "is not block-scaled"),
    (lambda: scales.unpack_scales(INS, REGISTERS, "c"), OperandError, "operand must be 'a' or 'b'"),
    (lambda: scales.unpack_scales(INS, REGISTERS.view(np.int32), "a"), OperandTypeError, "must have dtype uint32, not int32"),
    (lambda: scales.unpack_scales(INS, REGISTERS[:31], "a"), OperandError, r"must have shape \(..., 32\), not \(31,\)"),
    (lambda: scales.pack_scales(INS, GIVEN.astype(np.int64), "a"), OperandTypeError, "must be codes of dtype uint8"),
    (lambda: scales.pack_scales(INS, GIVEN[:8], "a"), OperandError, r"must have shape \(..., 16, 1\), not"),
    (lambda: warp.mma(OPCODE, **HELD, target="sm_90a", scale_a=REGISTERS), OperandError, "takes no scale_a"),
    (lambda: warp.mma(OPCODE, **HELD, target="sm_90a", thread_id_b=1), OperandError, "byte and thread ids must be 0"),
    (lambda: warp.mma(INS, **HELD, target="sm_120a", scale_a=REGISTERS), OperandError, "is block-scaled and needs scale_b"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSALS)
def test_errors(call: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


@cases(("index", "ins"), list(enumerate(SCALED)))
def test_both_levels_agree(index: int, ins: fastmma.Instruction) -> None:
    given = matrices(ins, index)
    target = ins.targets[index % len(ins.targets)]
    held: dict[str, Any] = {name: fastmma.scatter(given[name], ins.operands[name], kind=ins.kind) for name in "abc"}
    for name, lines in (("a", given["scale_a"]), ("b", given["scale_b"].T)):
        chosen = selections(ins, name)[index % len(selections(ins, name))]
        held[f"scale_{name}"] = scales.pack_scales(ins, lines, name, *chosen)
        held |= {f"byte_id_{name}": chosen[0], f"thread_id_{name}": chosen[1]}
    if ins.sparse:
        held["metadata"] = sparse.pack_metadata(ins, given["metadata"])
    d = warp.mma(ins, **held, target=target)
    np.testing.assert_array_equal(fastmma.gather(d, ins.operands["d"]), multiplied(ins, given, target))
