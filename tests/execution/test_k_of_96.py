"""tcgen05.mma with K of 96 on shared memory and Tensor Memory: rows of 48 bytes across tiles, and scales in two words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from reference import tensor_memory as facts
from reference.descriptor import swizzled
from reference.tensor_memory_machine import SFA, SFB, Machine, instruction

import fastmma
from fastmma import OperandError, TargetError, tcgen05

TILES = {"a": (0, 16384, 32768), "b": (49152, 98304, 147456)}  # of rows of 128 bytes, three for eight steps


def form(kind: str, m: int, n: int, cta_group: int, scale: str, block: int) -> fastmma.Instruction:
    return instruction(kind, "f32", "e2m1", "e2m1", m, n, cta_group=cta_group, scale=scale, block=block, k=96)


FORMS = [
    form("mxf4nvf4", 128, 64, 1, "ue4m3", 16),
    form("mxf4nvf4", 128, 256, 1, "ue8m0", 16),
    form("mxf4", 128, 48, 1, "ue8m0", 32),
    form("mxf4nvf4", 256, 144, 2, "ue4m3", 16),
    form("mxf4", 256, 32, 2, "ue8m0", 32),
]


def put_shared(machine: Machine, operand: str, step: int) -> tcgen05.MatrixDescriptor:
    """A or B as the step of K that it is, of the eight that share three tiles."""
    lines = machine.given["a"] if operand == "a" else machine.given["b"].T
    own, tiles = len(lines) // machine.ins.cta_group, TILES[operand]
    for line, codes in enumerate(lines.tolist()):
        for k, code in enumerate(codes):
            tile, byte = divmod(48 * step + k // 2, 128)
            place = swizzled(tiles[tile] + line % own // 8 * 1024 + line % own % 8 * 128 + byte, 128)
            held, shift = machine.memory[line // own, place], k % 2 * 4
            machine.memory[line // own, place] = held & ~np.uint8(15 << shift) | np.uint8(code << shift)
    first, start = divmod(48 * step, 128)
    further = tiles[(first + 1) % 3]
    return tcgen05.MatrixDescriptor(tiles[first] + start, leading=further, stride=1024, swizzle=128, absolute=True)


def put_scales(machine: Machine, operand: str, first: int) -> int:
    """What does not fit into a word is in the first bytes of one that lies four columns further for each 128 rows or columns."""
    ins = machine.ins
    further = 4 * (1 if operand == "a" else -(-ins.n // 128))
    lines, start = (machine.given["scale_a"], SFA) if operand == "a" else (machine.given["scale_b"].T, SFB)
    for line, scales in enumerate(lines.tolist()):
        for j, code in enumerate(scales):
            word, byte = divmod(first + j, 4)
            for cta, lane, column in facts.scale_cells(ins, operand, line):
                machine.put_bits(cta, lane, start + column + word * further, 8 * byte, 8, code)
    return start


def ready(ins: fastmma.Instruction, seed: int) -> Machine:
    machine = Machine(ins, seed)
    machine.memory = np.random.default_rng(seed).integers(0, 256, (ins.cta_group, 1 << 18), dtype=np.uint8)
    return machine


@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_memory_holds_the_same_matrices(ins: fastmma.Instruction) -> None:
    sizes = {3: (0, 1, 2, 3), 6: (0, 2)}[ins.scale_vec_size]
    said = tcgen05.InstructionDescriptor.decode(ins.kind, ins.idesc)
    for step in range(8):
        machine, ids = ready(ins, step), (sizes[step % len(sizes)], sizes[(step + 1) % len(sizes)])
        d, b, a = machine.put_d(), put_shared(machine, "b", step), put_shared(machine, "a", step)
        more: dict[str, Any] = {f"scale_{name}": put_scales(machine, name, first) for name, first in zip("ab", ids, strict=True)}
        more |= {"ins": ins.opcode.split()[0], "idesc": dataclasses.replace(said, scale_a_id=ids[0], scale_b_id=ids[1])}
        expected = machine.expected(machine.product("sm_103a"))
        for left, right in ((a, b), (a.encode(), b.encode())):
            np.testing.assert_array_equal(machine.run(d, left, right, target="sm_103a", **more), expected)
        in_tmem = machine.put_a()
        np.testing.assert_array_equal(machine.run(d, in_tmem, b, target="sm_103a", **more), machine.expected(machine.product("sm_103a")))


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ready(FORMS[0], 1)
    d, b, a = machine.put_d(), put_shared(machine, "b", 2), put_shared(machine, "a", 2)
    more = {name: put_scales(machine, name[-1], 0) for name in ("scale_a", "scale_b")}
    with pytest.raises(OperandError, match="a: 48 bytes of k from byte 96 on do not fit into the 128-byte rows"):
        machine.run(d, dataclasses.replace(a, absolute=False), b, target="sm_103a", **more)
    with pytest.raises(TargetError, match="illegal on sm_100a"):
        machine.run(d, a, b, **more)
    with pytest.raises(OperandError, match="scale_a reaches column 513"):
        machine.run(d, a, b, target="sm_103a", **{**more, "scale_a": 506})
    machine.put_bits(0, 96, SFA + 4, 8, 8, int(machine.given["scale_a"][0, 5]) ^ 1)
    with pytest.raises(OperandError, match=f"scale_a: the copies in lanes 0 and 96 of column {SFA + 4} differ"):
        machine.run(d, a, b, target="sm_103a", **more)
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(TargetError, match="strict mode refuses"):
        machine.run(d, a, b, target="sm_103a", **more)
