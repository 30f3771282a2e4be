"""AMD's instructions on the registers of waves: as on matrices, block by block, with cbsz, abid and blgp as the ISA documents have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases

import fastmma
from fastmma import Instruction, OperandError, TargetError, gather, mma, scatter, sparse, warp
from fastmma.isa.amd.table import namesake

Matrices = dict[str, NDArray[Any]]

# opcode and target, of every kind of layout
KINDS = [
    ("v_mfma_f32_32x32x4_2b_f16", "MI300X"),
    ("v_mfma_f32_4x4x4_16b_bf16", "MI250X"),
    ("v_mfma_f32_16x16x8bf16", "MI100"),
    ("v_mfma_f64_4x4x4_4b_f64", "MI300X"),
    ("v_mfma_f32_16x16x8_xf32", "MI300X"),
    ("v_mfma_f32_32x32x16_fp8_bf8", "MI300X"),
    ("v_mfma_i32_16x16x4_4b_i8", "MI355X"),
    ("v_wmma_i32_16x16x16_iu8 neg_lo:[1,0,0] clamp", "RX 7900 XTX"),
    ("v_wmma_i32_16x16x32_iu4", "RX 9070"),
]


def drawn(ins: Instruction, rng: np.random.Generator) -> Matrices:
    """Codes of every block's A, B and C."""
    shapes = {"a": (ins.m, ins.stored_k), "b": (ins.k, ins.n), "c": (ins.m, ins.n)}
    found = {}
    for name, shape in shapes.items():
        fmt = getattr(ins.formats, name)
        if fmt.kind == "float":
            elements = rng.standard_normal((ins.blocks, *shape)).astype(fmt.dtype)
        else:
            elements = rng.integers(0, 1 << min(fmt.bits, 8), (ins.blocks, *shape)).astype(fmt.dtype)
        found[name] = elements
    return found


def in_registers(ins: Instruction, matrices: Matrices) -> Matrices:
    """Registers of a wave."""
    found = {}
    for name, elements in matrices.items():
        operand = ins.operands[name]
        wide = np.dtype(f"u{max(8, operand.layout.bits) // 8}")
        codes = elements.view(operand.format.code_dtype).astype(wide) & wide.type((1 << operand.format.bits) - 1)
        found[name] = scatter(codes if ins.blocks > 1 else codes[0], operand)
    return found


def results(ins: Instruction, registers: NDArray[Any]) -> NDArray[Any]:
    """Elements of every block's D."""
    fmt = ins.formats.d
    return gather(registers, ins.operands["d"]).astype(fmt.code_dtype).view(fmt.dtype).reshape(ins.blocks, ins.m, ins.n)


@cases(("opcode", "target"), KINDS)
def test_waves_compute_what_matrices_do(opcode: str, target: str) -> None:
    rng = np.random.default_rng(len(opcode))
    ins = namesake(fastmma.instruction(opcode), fastmma.mma_plan(opcode, target=target).target)  # type: ignore[arg-type]
    matrices = drawn(ins, rng)
    got = results(ins, warp.mma(opcode, **in_registers(ins, matrices), target=target))
    np.testing.assert_array_equal(got, mma(opcode, **matrices, target=target))


def test_indices_of_sparse_a() -> None:
    rng = np.random.default_rng(0)
    ins = fastmma.instruction("v_smfmac_i32_16x16x64_i8")
    assert isinstance(ins, Instruction)
    dense = rng.integers(-128, 128, (16, 64)).astype(np.int8) * np.tile([1, 0, 0, 1], 16).astype(np.int8)
    stored, words = sparse.compress(dense)
    b, c = rng.integers(-128, 128, (64, 16)).astype(np.int8), rng.integers(-99, 99, (16, 16)).astype(np.int32)
    expected = dense.astype(np.int32) @ b.astype(np.int32) + c
    np.testing.assert_array_equal(mma(ins, stored, b, c, target="MI300X", metadata=words), expected)
    registers = in_registers(ins, {"a": stored[None], "b": b[None], "c": c[None]})
    for selector in (0, 1):  # 16 bits a lane
        held = sparse.pack_metadata(ins, words, selector=selector)
        assert held.shape == (64,)
        got = warp.mma(ins, **registers, target="MI300X", metadata=held, selector=selector)
        np.testing.assert_array_equal(results(ins, got)[0], expected)


def test_blocks_are_broadcast_and_lanes_rearranged() -> None:
    """CDNA ISA: each 2**cbsz blocks take A of block abid of theirs; blgp 1: lanes 0-31 twice, 3: rotated down by 16 lanes."""
    rng = np.random.default_rng(1)
    ins = fastmma.instruction("v_mfma_f32_4x4x4_16b_f16")
    assert isinstance(ins, Instruction)
    matrices = drawn(ins, rng)
    registers = in_registers(ins, matrices)
    got = results(ins, warp.mma(ins, **registers, target="MI100", cbsz=2, abid=3))
    block = np.arange(16) // 4 * 4 + 3
    np.testing.assert_array_equal(got, mma(ins, **{**matrices, "a": matrices["a"][block]}, target="MI100"))
    for blgp, lanes in ((1, np.arange(64) % 32), (3, (np.arange(64) + 16) % 64), (6, 32 + np.arange(64) % 16)):
        got = results(ins, warp.mma(ins, **registers, target="MI100", blgp=blgp))
        np.testing.assert_array_equal(got, mma(ins, **{**matrices, "b": matrices["b"][lanes[::4] // 4]}, target="MI100"))
    double = fastmma.instruction("v_mfma_f64_16x16x4_f64")
    assert isinstance(double, Instruction)
    numbers = drawn(double, rng)
    got = results(double, warp.mma(double, **in_registers(double, numbers), target="MI300X", blgp=0b101))
    np.testing.assert_array_equal(got, -mma(double, **numbers, target="MI300X"))


def test_modifiers_that_an_instruction_has_not() -> None:
    one = fastmma.instruction("v_mfma_f32_32x32x8_f16")
    assert isinstance(one, Instruction)
    registers = in_registers(one, drawn(one, np.random.default_rng(0)))
    for given, target, message in (
        ({"cbsz": 1}, "MI100", "cbsz must be one of 0"),
        ({"abid": 1}, "MI100", "abid with cbsz 0 must be one of 0"),
        ({"blgp": 1}, "MI300X", "on gfx942: blgp must be one of 0"),
    ):
        with pytest.raises(OperandError, match=message):
            warp.mma(one, **registers, target=target, **given)
    with pytest.raises(TargetError, match="what gfx1100 computes is not known"):
        fastmma.arithmetic("v_wmma_f32_16x16x16_f16", "gfx1100")
    with pytest.raises(TargetError, match="only reported"):
        fastmma.arithmetic(one, "MI300X", strict=True)
