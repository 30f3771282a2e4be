"""Layouts against PTX's formulas, and the ways between matrices and registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.fragments import CONTAINER_BITS, computation, fragments, wgmma_a, wgmma_d

import fastmma
from fastmma import FORMATS, Instruction, Layout, Operand, OperandError, OperandTypeError, gather, instruction, scatter
from fastmma.isa.layout import Mode

DENSE = [ins for ins in fastmma.instructions(op="mma") if not ins.sparse]
WGMMA = list(fastmma.instructions(op="wgmma"))
# one opcode of every layout: modifiers, targets and element formats of the same width do not matter
DISTINCT = list({tuple(operand.layout for operand in ins.operands.values()): ins for ins in (*DENSE, *WGMMA) if ins.n <= 24}.values())
OPERANDS = list({(operand.layout, operand.format.bits): (ins, name) for ins in DISTINCT for name, operand in ins.operands.items()}.values())


@cases("ins", DENSE)
def test_mma_fragments_are_ptxs(ins: Instruction) -> None:
    expected = fragments(ins)
    assert ins.heading == expected.heading
    counts = {"a": expected.a_count, "b": expected.b_count, "c": expected.c_count, "d": expected.c_count}
    formulas = {"a": expected.a, "b": expected.b, "c": expected.c, "d": expected.c}
    if ins.shape == "m8n8k4" and ins.atype == "f16":
        formulas["d"] = (
            fragments(instruction(f"{ins.opcode.rsplit('.', 4)[0]}.{ins.dtype}.f16.f16.{ins.dtype}")).c
            if ins.dtype != ins.ctype
            else expected.c
        )
    for name, operand in ins.operands.items():
        layout = operand.layout
        places = [[formulas[name](lane, i) for i in range(counts[name])] for lane in range(32)]
        assert layout.rows.shape == layout.cols.shape == (32, counts[name])
        np.testing.assert_array_equal(np.dstack([layout.rows, layout.cols]), places)
        many = ins.shape == "m8n8k4" and ins.atype == "f16"
        assert layout.tiles == (4 if many else 1)
        np.testing.assert_array_equal(layout.tile[:, 0], [computation(lane) if many else 0 for lane in range(32)])


@cases("ins", [ins for ins in WGMMA if ins.n in (8, 16, 24, 256)])
def test_wgmma_fragments(ins: Instruction) -> None:
    assert set(ins.operands) == {"a", "c", "d"}
    bits = CONTAINER_BITS[ins.atype]
    expected = [[wgmma_a(lane, i, bits) for i in range(128 // bits)] for lane in range(128)]
    a = ins.operands["a"].layout
    np.testing.assert_array_equal(np.dstack([a.rows, a.cols]), expected)
    expected = [[wgmma_d(lane, i) for i in range(ins.n // 2)] for lane in range(128)]
    for name in "cd":
        layout = ins.operands[name].layout
        np.testing.assert_array_equal(np.dstack([layout.rows, layout.cols]), expected)


@cases("ins", DISTINCT)
def test_inverse_and_find(ins: Instruction) -> None:
    for operand in ins.operands.values():
        layout = operand.layout
        lane, element = np.divmod(layout.inverse, layout.elements)
        tile, row, col = np.indices((layout.tiles, *operand.shape))
        np.testing.assert_array_equal(layout.rows[lane, element], row)
        np.testing.assert_array_equal(layout.cols[lane, element], col)
        np.testing.assert_array_equal(layout.offsets[lane, element], (tile * operand.shape[0] + row) * operand.shape[1] + col)
        for place in ((0, 0), (operand.shape[0] - 1, operand.shape[1] - 1), (3, 2)):
            found = layout.find(*place)
            assert (layout.rows[found.lane, found.element], layout.cols[found.lane, found.element]) == place
            position = found.element * layout.bits
            assert (found.register, found.bit) == divmod(position, layout.register_bits)


def test_find_refuses_what_is_outside() -> None:
    layout = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["c"].layout
    for place in ((16, 0), (0, 8), (-1, 0), (0, -1)):
        with pytest.raises(OperandError, match="a 16x8 matrix has no element"):
            layout.find(*place)
    with pytest.raises(OperandError, match="of computation 4"):
        instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32").operands["c"].layout.find(0, 0, 4)


def test_index_arrays_are_read_only() -> None:
    layout = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["c"].layout
    for array in (layout.rows, layout.cols, layout.inverse):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_layouts_that_are_no_bijection_are_refused() -> None:
    for lane, element in (
        ((Mode(4, 0, 2), Mode(8, 1, 0)), (Mode(2, 0, 1),)),
        ((Mode(4, 0, 1), Mode(8, 1, 0)), (Mode(2, 0, 1), Mode(2, 8, 0))),
        ((Mode(4, 0, 2), Mode(8, 1, 0)), (Mode(2, 0, 1), Mode(2, 16, 0))),
    ):
        with pytest.raises(ValueError, match="not a bijection"):
            Layout((16, 8), lane, element, bits=32)


def random_codes(ins: Instruction, operand: Operand, lead: tuple[int, ...]) -> NDArray[Any]:
    """Matrices of codes, as wide as the operand's containers."""
    layout, fmt = operand.layout, operand.format
    shape = (*lead, *((layout.tiles,) if layout.tiles > 1 else ()), *operand.shape)
    dtype = np.dtype(f"u{max(8, layout.bits) // 8}")
    return np.random.default_rng(len(str(ins))).integers(0, 1 << fmt.bits, shape, dtype=dtype if fmt.bits >= 8 else np.uint8).astype(dtype)


def packed(codes: NDArray[Any], ins: Instruction, operand: Operand) -> NDArray[Any]:
    """Registers of one warp, element by element from the layout's index arrays."""
    layout, fmt = operand.layout, operand.format
    per_register = layout.register_bits // layout.bits
    shift = 2 if fmt.name == "e2m1" and ins.kind in ("f8f6f4", "mxf8f6f4") else 0  # e2m1 sits in the middle of its byte
    flat = codes.reshape(-1)
    registers = np.zeros((layout.lanes, layout.registers), f"u{layout.register_bits // 8}")
    for lane, element in np.ndindex(layout.rows.shape):
        code = int(flat[layout.offsets[lane, element]]) << shift
        registers[lane, element // per_register] |= registers.dtype.type(code << (element % per_register * layout.bits))
    return registers


@cases(("ins", "name"), OPERANDS)
def test_scatter_packs_and_gather_unpacks(ins: Instruction, name: str) -> None:
    operand = ins.operands[name]
    codes = random_codes(ins, operand, (2, 1))
    registers = scatter(codes, operand, kind=ins.kind)
    assert registers.shape == (2, 1, operand.layout.lanes, operand.registers)
    np.testing.assert_array_equal(registers[1, 0], packed(codes[1, 0], ins, operand))
    np.testing.assert_array_equal(gather(registers, operand, kind=ins.kind), codes)


@cases(("ins", "name"), OPERANDS)
def test_random_registers_come_back(ins: Instruction, name: str) -> None:
    operand = ins.operands[name]
    layout = operand.layout
    dtype = np.dtype(f"u{layout.register_bits // 8}")
    registers = np.random.default_rng(5).integers(0, 1 << layout.register_bits, (3, layout.lanes, operand.registers), dtype=dtype)
    codes = gather(registers, operand, kind=ins.kind)
    again = scatter(codes, operand, kind=ins.kind)
    if operand.format.bits == layout.bits:
        np.testing.assert_array_equal(again, registers)
    else:  # padding is dropped
        np.testing.assert_array_equal(gather(again, operand, kind=ins.kind), codes)
        assert not np.any(again & ~registers)


A = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["a"]
SPECIAL_OPERANDS = [
    A,
    instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["b"],
    instruction("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32").operands["a"],
    instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").operands["a"],
    instruction("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc").operands["b"],
    instruction("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64").operands["a"],
]


def sequence(operand: Operand, *lead: int) -> NDArray[Any]:
    shape = (*lead, operand.layout.lanes, operand.registers)
    return (
        (np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(2654435761)).astype(f"u{operand.layout.register_bits // 8}").reshape(shape)
    )


@pytest.mark.parametrize("operand", SPECIAL_OPERANDS, ids=lambda operand: f"{operand.name}-{operand.format}")
def test_any_strides_and_leading_dimensions(operand: Operand) -> None:
    registers = sequence(operand, 3, 4)
    expected = gather(registers, operand)
    assert expected.shape[:2] == (3, 4)
    frozen = registers.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(gather(frozen, operand), expected)
    np.testing.assert_array_equal(gather(registers[::-1, ::2], operand), expected[::-1, ::2])
    np.testing.assert_array_equal(gather(np.asfortranarray(registers), operand), expected)
    swapped = registers.astype(registers.dtype.newbyteorder())
    np.testing.assert_array_equal(gather(swapped, operand), expected)
    np.testing.assert_array_equal(gather(registers[1, 2], operand), expected[1, 2])
    np.testing.assert_array_equal(gather(np.broadcast_to(registers[0, 0], registers.shape), operand)[2, 3], expected[0, 0])
    np.testing.assert_array_equal(scatter(np.asfortranarray(expected), operand), registers)
    np.testing.assert_array_equal(scatter(expected[::-1, ::-1], operand), registers[::-1, ::-1])
    np.testing.assert_array_equal(scatter(expected.astype(expected.dtype.newbyteorder()), operand), registers)
    np.testing.assert_array_equal(frozen, registers)
    none = gather(registers[:0], operand)
    assert none.shape == (0, 4, *expected.shape[2:])
    assert scatter(none, operand).shape == (0, *registers.shape[1:])
    many = sequence(operand, 1500)
    one = gather(many, operand, threads=1)
    np.testing.assert_array_equal(gather(many, operand, threads=3), one)
    np.testing.assert_array_equal(scatter(one, operand, threads=3), many)


@pytest.mark.parametrize(("call", "good"), [(gather, np.zeros((32, 4), np.uint32)), (scatter, np.zeros((16, 16), np.uint16))])
def test_operands_of_a_wrong_shape_or_type(call: Any, good: NDArray[Any]) -> None:
    for shape in (good[:, 1:], good[1:], good[0], good[0, 0]):
        with pytest.raises(OperandError, match=rf"must have shape \(\.\.\., {good.shape[0]}, {good.shape[1]}\), not"):
            call(shape, A)
    for wrong in (good.astype(np.int32), good.astype(np.float32), good.astype(np.float16), good.astype(object), None, "x", [[1], [1, 2]]):
        with pytest.raises(OperandTypeError, match="operand a must"):
            call(wrong, A)


def test_codes_wider_than_their_format_are_cut() -> None:
    operand = instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").operands["a"]
    codes = np.full(operand.shape, 0xF7, np.uint8)
    np.testing.assert_array_equal(scatter(codes, operand), 0x77777777)


def test_formats_of_operands() -> None:
    ins = instruction("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32")
    assert [operand.format for operand in ins.operands.values()] == [FORMATS[name] for name in ("e2m1", "e3m2", "f32", "f32")]
    assert [operand.registers for operand in ins.operands.values()] == [4, 2, 4, 4]
