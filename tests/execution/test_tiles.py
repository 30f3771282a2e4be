"""Matrix level: batches of tiles, broadcasting and any memory layout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.products import bits, elements, random_codes

from fastmma import Instruction, OperandError, OperandTypeError, instruction, mma

MMA = "mma.sync.aligned."
F16 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"
SOME = [
    F16,
    MMA + "m16n8k8.row.col.f64.f64.f64.f64.rp",
    MMA + "m16n8k32.row.col.satfinite.s32.u4.s4.s32",
    MMA + "m16n8k16.row.col.f32.e4m3.e5m2.f32",
    MMA + "m8n8k4.row.col.f32.f16.f16.f16",
    MMA + "m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    "wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32",
]


def operands(ins: Instruction, *lead: int, distribution: str = "finite", seed: int = 1) -> list[NDArray[Any]]:
    generator = np.random.default_rng(seed)
    shapes = ((ins.atype, (ins.m, ins.k)), (ins.btype, (ins.k, ins.n)), (ins.ctype, (ins.m, ins.n)))
    return [elements(random_codes(generator, fmt, (*lead, *shape), distribution), fmt) for fmt, shape in shapes]


@pytest.mark.parametrize("opcode", SOME)
def test_leading_dimensions_broadcast(opcode: str) -> None:
    ins = instruction(opcode)
    a, b, c = operands(ins, 3)
    whole = mma(ins, a[:, None], b, c[0], target="sm_90a")
    assert whole.shape == (3, 3, ins.m, ins.n)
    for i, j in ((0, 0), (2, 1)):
        np.testing.assert_array_equal(bits(whole[i, j]), bits(mma(ins, a[i], b[j], c[0], target="sm_90a")))
    assert mma(ins, a[:0], b[0], c[0], target="sm_90a").shape == (0, ins.m, ins.n)
    assert mma(ins, a[:, None], b[:0], c[0], target="sm_90a").shape == (3, 0, ins.m, ins.n)


def test_lists_are_arrays_of_their_values() -> None:
    ones = np.ones((16, 8))
    ins = MMA + "m8n8k4.row.col.f64.f64.f64.f64"
    assert mma(ins, [[1.0] * 4] * 8, [[1.0] * 8] * 4, [[0.5] * 8] * 8, target="sm_80").tolist() == [[4.5] * 8] * 8
    with pytest.raises(OperandTypeError, match="must have dtype float16"):
        mma(F16, [[1.0] * 16] * 16, np.ones((16, 8), np.float16), ones.astype(np.float32), target="sm_90a")


@pytest.mark.parametrize(
    ("name", "bad", "kind", "message"),
    [
        ("a", np.zeros((16, 8), np.float16), OperandError, r"m16n8k16\S+: a must have shape \(\.\.\., 16, 16\), not \(16, 8\)"),
        ("b", np.zeros((8, 16), np.float16), OperandError, r": b must have shape \(\.\.\., 16, 8\), not \(8, 16\)"),
        ("c", np.zeros(8, np.float32), OperandError, r": c must have shape \(\.\.\., 16, 8\), not \(8,\)"),
        ("c", np.float32(0), OperandError, r"not \(\)"),
        ("a", np.zeros((16, 16), np.float32), OperandTypeError, r": a must have dtype float16 \(f16\), not float32"),
        ("a", np.zeros((16, 16), ml_dtypes.bfloat16), OperandTypeError, "not bfloat16"),
        ("b", np.zeros((16, 8), object), OperandTypeError, ": b must be an array of numbers"),
        ("c", None, OperandTypeError, ": c must be an array of numbers"),
        ("c", "zero", OperandTypeError, ": c must have dtype float32"),
        ("b", [[1, 2], [3]], OperandTypeError, ": b must be an array"),
        ("a", np.zeros((3, 16, 16), np.float16), OperandError, "the leading dimensions do not broadcast"),
    ],
)
def test_bad_operands(name: str, bad: Any, kind: type[Exception], message: str) -> None:
    inputs = dict(zip("abc", operands(instruction(F16), 2), strict=True))
    inputs[name] = bad
    with pytest.raises(kind, match=message):
        mma(F16, *inputs.values(), target="sm_90a")
