"""Tensor Memory and shared memory into which the operands of a tcgen05.mma are put one element at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, tcgen05
from reference import tensor_memory as facts
from reference.descriptor import UNITS, byte_offset
from reference.operands import matrices, multiplied

D, A, E, SFA, SFB = 0, 260, 300, 320, 400  # columns of Tensor Memory where operands begin


def instruction(kind: str, d: str, a: str, b: str, m: int, n: int, **more: Any) -> fastmma.Instruction:
    return tcgen05.instruction(kind, d, a, b, m=m, n=n, **more)


PAIR = {"cta_group": 2}
SHAPES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (128, 16, {}),
    (64, 8, {}),
    (256, 16, PAIR),
    (128, 32, PAIR),
    (32, 64, {"ws": True}),
    (64, 64, {"ws": True}),
    (128, 64, {"ws": True}),
)
INSTRUCTIONS = [
    *(instruction("f16", "f32", "f16", "f16", m, n, sparse=sparse, **more) for m, n, more in SHAPES for sparse in (False, True)),
    *(instruction("f8f6f4", "f32", "e4m3", "e2m1", m, n, sparse=sparse, **more) for m, n, more in SHAPES for sparse in (False, True)),
    instruction("f16", "f16", "f16", "f16", 128, 8),
    instruction("f16", "f16", "f16", "f16", 64, 64, ws=True),
    instruction("f16", "f32", "bf16", "bf16", 64, 16),
    *(instruction("tf32", "f32", "tf32", "tf32", m, 16, sparse=sparse) for m in (64, 128) for sparse in (False, True)),
    *(instruction("f8f6f4", "f16", a, b, 128, 16) for a, b in (("e2m3", "e5m2"), ("e2m1", "e3m2"), ("e3m2", "e2m3"))),
    *(instruction("i8", "s32", a, b, 64, 16, sparse=sparse) for a, b in (("s8", "u8"), ("u8", "s8")) for sparse in (False, True)),
    instruction("i8", "s32", "s8", "s8", 32, 64, ws=True, saturate=True),
    instruction("mxf8f6f4", "f32", "e4m3", "e5m2", 128, 40),
    instruction("mxf8f6f4", "f32", "e2m3", "e2m1", 128, 192, cta_group=2),
    instruction("mxf8f6f4", "f32", "e3m2", "e4m3", 256, 48, cta_group=2, sparse=True),
    instruction("mxf4", "f32", "e2m1", "e2m1", 128, 8),
    instruction("mxf4", "f32", "e2m1", "e2m1", 128, 16, sparse=True),
    instruction("mxf4nvf4", "f32", "e2m1", "e2m1", 128, 72),
    instruction("mxf4nvf4", "f32", "e2m1", "e2m1", 256, 16, cta_group=2, scale="ue8m0", block=32),
    instruction("mxf4nvf4", "f32", "e2m1", "e2m1", 128, 64, cta_group=2, scale="ue8m0", block=16),
]


def bits_of(name: str) -> int:
    return 32 if name == "tf32" else FORMATS[name].bits


class Machine:
    """Tensor Memory and shared memory of the CTAs, full of noise, into which operands are put."""

    def __init__(self, ins: fastmma.Instruction, seed: int) -> None:
        self.ins, rng = ins, np.random.default_rng(seed)
        self.tmem = rng.integers(0, 1 << 32, (ins.cta_group, 128, 512), dtype=np.uint32)
        self.memory = rng.integers(0, 256, (ins.cta_group, 1 << 16), dtype=np.uint8)
        self.given = matrices(ins, seed)
        self.end = 1024

    def put_bits(self, cta: int, lane: int, column: int, first: int, bits: int, value: int) -> None:
        word = int(self.tmem[cta, lane, column])
        mask = (1 << bits) - 1
        self.tmem[cta, lane, column] = word & ~(mask << first) | (value & mask) << first

    def put_d(self, base: int = 0) -> int:
        for row, line in enumerate(self.given["c"].tolist()):
            for column, code in enumerate(line):
                cta, lane, place = facts.d_cell(self.ins, row, column)
                self.put_bits(cta, lane + base, D + place, 0, bits_of(self.ins.ctype), code)
        return base << 16 | D

    def put_a(self, base: int = 0) -> int:
        bits = facts.container(self.ins, bits_of(self.ins.atype))
        shift = 2 if self.ins.atype == "e2m1" and bits == 8 else 0
        for row, line in enumerate(self.given["a"].tolist()):
            for k, code in enumerate(line):
                for cta, lane in facts.lanes_of_row(self.ins, row):
                    self.put_bits(cta, lane + base, A + k * bits // 32, k * bits % 32 + shift, bits_of(self.ins.atype), code)
        return base << 16 | A

    def put_metadata(self, base: int = 0, selector: int = 0) -> int:
        for row, line in enumerate(self.given["metadata"].tolist()):
            for chunk, word in enumerate(line):
                for cta, lane, column, nibble in facts.metadata_cells(self.ins, row, chunk):
                    self.put_bits(cta, lane + base, E + selector + column, 4 * nibble, 4, word)
        return base << 16 | E

    def put_scales(self, operand: str, first: int = 0) -> int:
        lines = self.given[f"scale_{operand}"]
        start = SFA if operand == "a" else SFB
        for line, scales in enumerate((lines if operand == "a" else lines.T).tolist()):
            for j, code in enumerate(scales):
                for cta, lane, column in facts.scale_cells(self.ins, operand, line):
                    self.put_bits(cta, lane, start + column, 8 * (first + j), 8, code)
        return start

    def put_shared(self, operand: str, swizzle: int, mn_major: bool = False) -> tcgen05.MatrixDescriptor:
        """A or B as the canonical layout has it, half of its rows or columns in each CTA of a pair."""
        ins = self.ins
        name = ins.atype if operand == "a" else ins.btype
        lines = self.given["a"] if operand == "a" else self.given["b"].T
        own, bits = len(lines) // ins.cta_group, facts.container(ins, bits_of(name))
        k, row = lines.shape[1], 16 * UNITS[swizzle]
        wide = mn_major and bits == 32
        if mn_major:
            steps = 4 if wide else 8
            leading, stride = (k * row, steps * row) if swizzle else (128, k // 8 * 128)
        else:
            leading, stride = (16, 8 * row) if swizzle else (128, k * bits // 128 * 128 + 32)
        fields: dict[str, Any] = {"address": self.end, "leading": leading, "stride": stride, "swizzle": swizzle, "wide_atoms": wide}
        last = 0
        for line, elements in enumerate(lines.tolist()):
            memory = self.memory[line // own]
            for j, code in enumerate(elements):
                unit = j // 16 * 16 if bits != bits_of(name) else j
                place = byte_offset(line % own, unit, bits, mn_major=mn_major, **fields)
                first = (j - unit) * bits_of(name) if unit != j or bits != bits_of(name) else j * bits % 8 if bits < 8 else 0
                window = int.from_bytes(memory[place : place + 16].tobytes(), "little")
                width = bits_of(name)
                window = window & ~(((1 << width) - 1) << first) | code << first
                memory[place : place + 16] = np.frombuffer(window.to_bytes(16, "little"), np.uint8)
                last = max(last, place)
        self.end = (last // 1024 + 2) * 1024
        return tcgen05.MatrixDescriptor(**fields)

    def product(self, target: str = "sm_100a") -> NDArray[Any]:
        """Codes of D from the matrix level."""
        return multiplied(self.ins, self.given, target)

    def expected(self, result: NDArray[Any], base: int = 0, kept: tuple[tuple[int, int], ...] = ()) -> NDArray[np.uint32]:
        after = self.tmem.copy()
        for row, line in enumerate(result.tolist()):
            for column, code in enumerate(line):
                cta, lane, place = facts.d_cell(self.ins, row, column)
                if (cta, lane + base) not in kept:
                    after[cta, lane + base, D + place] = code % (1 << 32)
        return after

    def run(self, d: int, a: Any, b: Any, ins: Any = None, **more: Any) -> NDArray[np.uint32]:
        pair = self.ins.cta_group == 2
        tmem, memory = (self.tmem, self.memory) if pair else (self.tmem[0], self.memory[0])
        found = tcgen05.mma(ins or self.ins, d, a, b, tmem=tmem, memory=memory, **more)
        return found if pair else found[None]


def extras(machine: Machine, base: int = 0) -> dict[str, int]:
    found = {"metadata": machine.put_metadata(base)} if machine.ins.sparse else {}
    return found | ({f"scale_{name}": machine.put_scales(name) for name in "ab"} if machine.ins.stype else {})


SIMPLE = instruction("f16", "f32", "f16", "f16", 128, 16)


def simple(ins: fastmma.Instruction = SIMPLE, seed: int = 7) -> tuple[Machine, tuple[int, Any, Any]]:
    machine = Machine(ins, seed)
    b, a, d = machine.put_shared("b", 0), machine.put_shared("a", 0), machine.put_d()
    return machine, (d, a, b)
