"""tcgen05.mma on shared memory and Tensor Memory, against matrices put there one element at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from reference import tensor_memory as facts
from reference.cases import cases
from reference.operands import finite_codes
from reference.tensor_memory_machine import INSTRUCTIONS, PAIR, SHAPES, SIMPLE, A, Machine, bits_of, extras, instruction, simple

import fastmma
from fastmma import InstructionError, tcgen05
from fastmma.isa.tcgen05.tensor_memory import metadata_layout


@pytest.mark.parametrize(("index", "ins"), list(enumerate(INSTRUCTIONS)), ids=str)
def test_memory_holds_the_same_matrices(index: int, ins: fastmma.Instruction) -> None:
    machine = Machine(ins, index)
    long_rows = ins.k * facts.container(ins, bits_of(ins.btype)) > 256  # K of a sparse instruction: 64 bytes of B
    swizzle_a, swizzle_b = ((0, 128), (32, 64), (64, 0), (128, 64 if long_rows else 32))[index % 4]
    b, d, more = machine.put_shared("b", swizzle_b), machine.put_d(), extras(machine)
    a = machine.put_shared("a", swizzle_a)
    expected = machine.expected(machine.product())
    np.testing.assert_array_equal(machine.run(d, a, b, **more), expected)
    np.testing.assert_array_equal(machine.run(d, a.encode(), b.encode(), target="sm_100a", threads=2, **more), expected)
    d, in_tmem = machine.put_d(), machine.put_a()
    np.testing.assert_array_equal(machine.run(d, in_tmem, b, **more), machine.expected(machine.product()))


HALVES = [ins for ins in INSTRUCTIONS if (ins.m == 64 and not ins.ws) or (ins.m == 128 and ins.cta_group == 2 and ins.sparse)]


@pytest.mark.parametrize("ins", HALVES, ids=str)
def test_the_other_half_of_the_lanes(ins: fastmma.Instruction) -> None:
    machine = Machine(ins, 5)
    b, d, more, a = machine.put_shared("b", 0), machine.put_d(16), extras(machine, 16), machine.put_a(16)
    np.testing.assert_array_equal(machine.run(d, a, b, **more), machine.expected(machine.product(), 16))


MN_MAJOR = [
    ("f16", "f32", "f16", "f16", 128, 64, {}, 128),
    ("f16", "f32", "bf16", "bf16", 64, 32, {}, 64),
    ("f16", "f32", "f16", "f16", 256, 64, PAIR, 32),
    ("f16", "f32", "f16", "f16", 64, 64, {"sparse": True}, 0),
    ("f8f6f4", "f32", "e4m3", "e5m2", 128, 128, {}, 128),
    ("i8", "s32", "s8", "u8", 64, 32, {}, 32),
    ("i8", "s32", "s8", "u8", 128, 16, {}, 0),
    ("tf32", "f32", "tf32", "tf32", 128, 32, {}, 128),
]


@pytest.mark.parametrize(("kind", "d", "a", "b", "m", "n", "more", "swizzle"), MN_MAJOR)
def test_mn_major_operands(kind: str, d: str, a: str, b: str, m: int, n: int, more: dict[str, Any], swizzle: int) -> None:
    plain = instruction(kind, d, a, b, m, n, **more)
    said = tcgen05.InstructionDescriptor.decode(kind, plain.idesc)
    for turned in ({"transpose_a": True}, {"transpose_b": True}, {"transpose_a": True, "transpose_b": True}):
        ins = fastmma.instruction(plain.opcode.split()[0], idesc=dataclasses.replace(said, **turned).encode())
        machine = Machine(ins, 6)
        places = {name: machine.put_shared(name, swizzle, f"transpose_{name}" in turned) for name in "ab"}
        machine.given["metadata"] = machine.given.get("metadata", np.zeros(0))
        address, extra = machine.put_d(), extras(machine)
        machine.ins = plain  # matrices are matrices, however they lie
        if not plain.sparse:
            del machine.given["metadata"]
        result = machine.product()
        np.testing.assert_array_equal(machine.run(address, places["a"], places["b"], ins=ins, **extra), machine.expected(result))


@pytest.mark.parametrize("ins", [ins for ins in INSTRUCTIONS if ins.ws and ins.m < 128 and not ins.sparse], ids=str)
def test_copies_of_a_serve_their_parts_of_n(ins: fastmma.Instruction) -> None:
    machine = Machine(ins, 8)
    b, d = machine.put_shared("b", 0), machine.put_d()
    count = 128 // ins.m
    parts = []
    a = machine.put_a()
    for part in range(count):
        lanes = slice(part * ins.m, (part + 1) * ins.m)
        kept = machine.tmem.copy()
        machine.given["a"] = finite_codes(np.random.default_rng(part), ins.atype, machine.given["a"].shape)
        machine.put_a()
        kept[:, lanes, A : A + 8] = machine.tmem[:, lanes, A : A + 8]
        machine.tmem = kept
        parts.append(machine.product())
    width = ins.n // count
    expected = np.concatenate([parts[part][:, part * width : (part + 1) * width] for part in range(count)], axis=1)
    np.testing.assert_array_equal(machine.run(d, a, b), machine.expected(expected))


def test_leading_dimensions() -> None:
    machine, where = simple()
    tmem = np.stack([machine.tmem[0]] * 3)
    tmem[1, 0, 0] = 0x40000000
    memory = np.stack([machine.memory[0]] * 2)[:, None]
    memory[1, 0, :] = 0
    result = tcgen05.mma(SIMPLE, *where, tmem=tmem, memory=memory)
    assert result.shape == (2, 3, 128, 512)
    for i in range(2):
        for j in range(3):
            np.testing.assert_array_equal(tcgen05.mma(SIMPLE, *where, tmem=tmem[j], memory=memory[i, 0]), result[i, j])


def test_the_reference_backend_and_a_plan() -> None:
    machine, where = simple()
    expected = machine.run(*where)
    np.testing.assert_array_equal(machine.run(*where, backend="reference"), expected)
    plan = fastmma.mma_plan(SIMPLE, target="sm_100a")
    tmem, memory = machine.tmem[0], machine.memory[0]
    np.testing.assert_array_equal(tcgen05.mma(None, *where, tmem=tmem, memory=memory, plan=plan), expected[0])


def all_shapes() -> list[fastmma.Instruction]:
    found = []
    for kind, a in (("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"), ("mxf8f6f4", "e4m3"), ("mxf4", "e2m1")):
        for m, n, more in [(m, n, more) for m, n, more in SHAPES] + [(128, 256, {}), (256, 256, PAIR), (32, 128, {"ws": True})]:
            for sparse in (False, True):
                try:
                    found.append(instruction(kind, "f32", a, a, m, n, sparse=sparse, **more))
                except InstructionError:
                    continue
    return found


@cases("ins", all_shapes())
def test_layouts_have_each_element_in_a_place_of_its_own(ins: fastmma.Instruction) -> None:
    def places(layout: fastmma.Layout) -> list[tuple[int, int]]:
        lanes = np.array(layout.lane_numbers or range(layout.lanes))
        return [(int(lanes[lane]), element) for lane in range(layout.lanes) for element in range(layout.elements)]

    d, a = ins.operands["d"].layout, ins.operands["a"].layout
    for row in range(0, ins.m, 7):
        for column in range(ins.n):
            cta, lane, place = facts.d_cell(ins, row, column)
            assert d.find(row, column)[:2] == (128 * cta + lane, place)
    layouts = [d, a] + ([metadata_layout(ins)] if ins.sparse else [])
    for layout in layouts:
        found = places(layout)
        assert len(set(found)) == len(found) == layout.copies * layout.shape[0] * layout.shape[1]
        assert max(lane for lane, _ in found) < 128 * ins.cta_group
    cells = [facts.d_cell(ins, row, column) for row in range(ins.m) for column in range(ins.n)]
    assert len(set(cells)) == ins.m * ins.n
    if ins.sparse:
        chunks = metadata_layout(ins).shape[1]
        words = [cell for row in range(ins.m) for chunk in range(chunks) for cell in facts.metadata_cells(ins, row, chunk)]
        assert len(set(words)) == len(words)
    for operand, lines in (("a", ins.m), ("b", ins.n)):
        scales = [cell for line in range(lines) for cell in facts.scale_cells(ins, operand, line)]
        if ins.stype:
            assert len(set(scales)) == len(scales)
