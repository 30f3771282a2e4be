"""Register level: batches, broadcasting, any memory layout, and agreement with the matrix level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.products import bits, elements

import fastmma
from fastmma import Instruction, OperandError, OperandTypeError, instruction
from fastmma.execution.warp import mma

MMA = "mma.sync.aligned."
F16 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"
DENSE = [ins for ins in fastmma.instructions(op="mma") if not ins.sparse and not ins.scale_vec_size]
SOME = [
    F16,
    MMA + "m8n8k4.row.col.f64.f64.f64.f64",
    MMA + "m16n8k64.row.col.s32.s4.u4.s32",
    MMA + "m16n8k32.row.col.f16.e4m3.e5m2.f16",
    MMA + "m8n8k4.col.row.f32.f16.f16.f16",
    MMA + "m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
]


def newest(ins: Instruction) -> str:
    return "sm_90a" if "sm_90a" in ins.targets else ins.targets[-1]


def random_registers(ins: Instruction, *lead: int, seed: int = 1) -> list[NDArray[Any]]:
    generator = np.random.default_rng(seed)
    found = []
    for name in "abc":
        operand = ins.operands[name]
        dtype = np.dtype(f"u{operand.layout.register_bits // 8}")
        found.append(generator.integers(0, 1 << operand.layout.register_bits, (*lead, 32, operand.registers), dtype=dtype))
    return found


@cases("ins", DENSE)
def test_registers_and_matrices_agree(ins: Instruction) -> None:
    """warp.mma is scatter after the matrix-level mma after gather, on random bits."""
    target = newest(ins)
    registers = random_registers(ins, 3)
    codes = [fastmma.gather(array, ins.operands[name], kind=ins.kind) for name, array in zip("abc", registers, strict=True)]
    matrices = [elements(array, fmt) for array, fmt in zip(codes, (ins.atype, ins.btype, ins.ctype), strict=True)]
    expected = bits(fastmma.mma(ins, *matrices, target=target))
    result = mma(ins, *registers, target=target)
    assert result.dtype == registers[0].dtype
    assert result.shape == (3, 32, ins.operands["d"].registers)
    np.testing.assert_array_equal(fastmma.gather(result, ins.operands["d"]), expected)


@pytest.mark.parametrize("opcode", SOME)
def test_leading_dimensions_broadcast(opcode: str) -> None:
    ins = instruction(opcode)
    a, b, c = random_registers(ins, 4)
    whole = mma(ins, a[:, None], b[None, :], c[0], target="sm_90a")
    assert whole.shape[:2] == (4, 4)
    for i, j in ((0, 0), (3, 1), (2, 3)):
        np.testing.assert_array_equal(whole[i, j], mma(ins, a[i], b[j], c[0], target="sm_90a"))
    assert mma(ins, a[0], b[0], c[0], target="sm_90a").shape == (32, ins.operands["d"].registers)
    assert mma(ins, a[:0], b[0], c[0], target="sm_90a").shape == (0, 32, ins.operands["d"].registers)
    assert mma(ins, a[:, None], b[:0], c[0], target="sm_90a").shape[:2] == (4, 0)


@pytest.mark.parametrize(
    ("name", "bad", "kind", "message"),
    [
        ("a", np.zeros((32, 3), np.uint32), OperandError, r"m16n8k16\S+: a must have shape \(\.\.\., 32, 4\), not \(32, 3\)"),
        ("b", np.zeros((16, 2), np.uint32), OperandError, r": b must have shape \(\.\.\., 32, 2\), not \(16, 2\)"),
        ("c", np.zeros((32, 4), np.float32), OperandTypeError, r": c must hold registers of dtype uint32, not float32"),
        ("c", np.zeros((32, 4), np.int32), OperandTypeError, "not int32"),
        ("a", np.zeros((32, 4), np.uint64), OperandTypeError, "not uint64"),
        ("a", None, OperandTypeError, ": a must"),
        ("b", "registers", OperandTypeError, ": b must"),
        ("c", [[1, 2], [3]], OperandTypeError, ": c must"),
        ("a", np.zeros((32, 4), object), OperandTypeError, ": a must"),
        ("a", np.zeros((3, 32, 4), np.uint32), OperandError, "leading dimensions do not broadcast"),
        ("a", np.uint32(5), OperandError, r"not \(\)"),
    ],
)
def test_bad_registers(name: str, bad: Any, kind: type[Exception], message: str) -> None:
    registers = dict(zip("abc", random_registers(instruction(F16), 2), strict=True))
    registers[name] = bad
    with pytest.raises(kind, match=message):
        mma(F16, *registers.values(), target="sm_90a")
