"""What tcgen05.mma refuses: addresses, overlaps, operands that do not go together, copies that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.tensor_memory_machine import SFA, SIMPLE, E, Machine, extras, instruction, simple

import fastmma
from fastmma import BackendError, FastmmaError, InstructionError, OperandError, OperandTypeError, TargetError, tcgen05

HALF = instruction("f16", "f32", "f16", "f16", 64, 16)
TURNED = fastmma.instruction(SIMPLE.opcode.split()[0], idesc=SIMPLE.idesc | 1 << 15)
MX = instruction("mxf4", "f32", "e2m1", "e2m1", 128, 16)
PAIRED_MX = instruction("mxf4", "f32", "e2m1", "e2m1", 128, 32, cta_group=2)
WS = instruction("f16", "f32", "f16", "f16", 64, 64, ws=True)
SP = instruction("f16", "f32", "f16", "f16", 64, 64, sparse=True, ws=True)


def attempt(like: fastmma.Instruction, changes: dict[str, Any]) -> Any:
    machine = Machine(like, 9)
    given: dict[str, Any] = {"d": machine.put_d(), "a": machine.put_shared("a", 0), "b": machine.put_shared("b", 0), **extras(machine)}
    pair = like.cta_group == 2
    given |= {"ins": like, "tmem": machine.tmem if pair else machine.tmem[0], "memory": machine.memory if pair else machine.memory[0]}
    return tcgen05.mma(**{**given, **changes})


@pytest.mark.parametrize(
    ("ins", "changes", "error", "message"),
    [
        (SIMPLE, {"d": 16 << 16}, OperandError, "d: it must begin in lane 0, not 16"),
        (SIMPLE, {"d": 500}, OperandError, "d reaches column 515, outside the 512 columns"),
        (SIMPLE, {"d": 1 << 31}, OperandError, "is outside the 128 lanes and 512 columns"),
        (SIMPLE, {"d": None}, OperandTypeError, "d must be an"),
        (SIMPLE, {"a": 4}, OperandError, "d and a overlap in lane 0, column 4"),
        (HALF, {"a": 16 << 16 | 300}, OperandError, "a must begin in the lane of d, 0, not 16"),
        (HALF, {"a": 8 << 16 | 300}, OperandError, "a: it must begin in lane 0 or 16, not 8"),
        (SIMPLE, {"ins": TURNED, "a": 300}, OperandError, "A in Tensor Memory is K-major; transpose_a must be 0"),
        (SIMPLE, {"a": 508}, OperandError, "a reaches column 515"),
        (SIMPLE, {"a": None}, OperandTypeError, "a must be a MatrixDescriptor or its 64 bits, not NoneType"),
        (SIMPLE, {"a": 1 << 62}, OperandError, "a: bits 46 to 48 of a descriptor of tcgen05 must be 1"),
        (SIMPLE, {"b": 5}, OperandError, "b: bits 46 to 48"),
        (
            SIMPLE,
            {"b": tcgen05.MatrixDescriptor(1 << 16)},
            OperandError,
            "b: the descriptor reaches byte .* of a memory of 65536 bytes",
        ),
        (SIMPLE, {"b": tcgen05.MatrixDescriptor(0, swizzle=128, wide_atoms=True)}, OperandError, "b: a swizzle with wide atoms"),
        (SIMPLE, {"memory": np.zeros(4, np.float32)}, OperandTypeError, "memory must have dtype uint8"),
        (SIMPLE, {"tmem": np.zeros((128, 512), np.float32)}, OperandTypeError, "tmem must have dtype uint32"),
        (SIMPLE, {"metadata": 0}, OperandError, "takes no metadata"),
        (SIMPLE, {"scale_a": 0}, OperandError, "takes no scale_a"),
        (SIMPLE, {"enable_input_d": 2}, OperandError, "enable_input_d must be True or False"),
        (SIMPLE, {"scale_input_d": 16}, OperandError, "scale_input_d must be one of 0, 1"),
        (SIMPLE, {"disable_output_lane": [0] * 8}, OperandError, "disable_output_lane must be 4 words of 32 bits"),
        (SIMPLE, {"disable_output_lane": [0, 0, 0, 1 << 32]}, OperandError, "disable_output_lane must be 4 words"),
        (SIMPLE, {"zero_column_mask": 1}, InstructionError, "takes no zero_column_mask"),
        (SIMPLE, {"backend": "nowhere"}, BackendError, "nowhere"),
        (SIMPLE, {"target": "sm_90a"}, TargetError, "illegal on sm_90a"),
        (
            SIMPLE,
            {"ins": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
            InstructionError,
            "tcgen05.mma takes tcgen05.mma opcodes only",
        ),
        (SIMPLE, {"idesc": 0}, InstructionError, "idesc goes with an opcode as text"),
        (SIMPLE, {"ins": "tcgen05.mma.cta_group::1.kind::f16.ashift idesc=0x08040010"}, InstructionError, "the instruction takes no"),
        (SP, {"metadata": None}, OperandError, "needs metadata"),
        (SP, {"metadata": 30}, OperandError, "d and metadata overlap in lane 0, column 30"),
        (SP, {"disable_output_lane": [0] * 4}, InstructionError, "takes no lane_mask"),
        (MX, {"scale_b": None}, OperandError, "needs scale_b"),
        (MX, {"scale_a": 1 << 16}, OperandError, "scale_a: it must begin in lane 0, not 1"),
        (MX, {"scale_a": 510}, OperandError, "scale_a reaches column 513"),
        (MX, {"scale_b": 3}, OperandError, "d and scale_b overlap in lane 0, column 3"),
        (PAIRED_MX, {}, OperandError, "where scale_b lies is known for N of a multiple of 64 only"),
        (MX, {"scale_input_d": 1}, InstructionError, "takes no scale_input_d"),
        (WS, {"zero_column_mask": "all"}, OperandTypeError, "zero_column_mask must be a ZeroColumnMask or its 64 bits, not str"),
        (WS, {"zero_column_mask": 1 << 36}, OperandError, "the bits 0x0000001000000000 of the zero-column mask .* must be 0"),
        (WS, {"zero_column_mask": -1}, OperandError, "zero_column_mask: a zero-column mask must be an integer of 64 bits"),
        (WS, {"zero_column_mask": 1 << 56}, OperandError, "shifts B by 1 columns, but the max_shift of the instruction descriptor is 0"),
        (
            WS,
            {"zero_column_mask": 1 << 39 | 1},
            OperandError,
            "part 0 of a zero-column mask must start within its first span of 1 columns, not 1",
        ),
    ],
)
def test_errors(ins: fastmma.Instruction, changes: dict[str, Any], error: type[FastmmaError], message: str) -> None:
    with pytest.raises(error, match=message):
        attempt(ins, changes)


def test_copies_that_differ() -> None:
    machine, where = simple(MX)
    more = extras(machine)
    machine.put_bits(0, 70, SFA + 1, 8, 8, int(machine.given["scale_a"][38, 1]) ^ 1)
    with pytest.raises(OperandError, match=f"scale_a: the copies in lanes 6 and 70 of column {SFA + 1} differ"):
        machine.run(*where, **more)
    machine, where = simple(SP)
    more = extras(machine)
    machine.tmem[0, 64, E] ^= np.uint32(1)
    with pytest.raises(OperandError, match="metadata: the copies for the parts of N differ"):
        machine.run(*where, **more)


def test_illegal_metadata() -> None:
    machine, where = simple(instruction("f8f6f4", "f32", "e4m3", "e4m3", 128, 16, sparse=True))
    more = extras(machine)
    machine.put_bits(0, 9, E + 1, 4, 4, 0)
    with pytest.raises(OperandError, match="metadata"):
        machine.run(*where, **more)
