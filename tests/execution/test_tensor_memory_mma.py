"""tcgen05.mma on shared memory and Tensor Memory, against matrices put there one element at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import sparsity
from reference import tensor_memory as facts
from reference.descriptor import UNITS, byte_offset

import fastmma
from fastmma import FORMATS, BackendError, FastmmaError, InstructionError, OperandError, OperandTypeError, TargetError, tcgen05
from fastmma.isa.codes import from_codes
from fastmma.isa.tcgen05.tensor_memory import metadata_layout

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


def codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Codes of any finite numbers; f32, tf32 and s32 of moderate size."""
    fmt = FORMATS[name]
    if fmt.bits >= 19 and fmt.kind == "float":
        return rng.normal(size=shape).astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000 if name == "tf32" else 0xFFFFFFFF)
    drawn = rng.integers(0, 1 << min(fmt.bits, 20), shape).astype(fmt.code_dtype)
    if fmt.kind == "float":
        with np.errstate(invalid="ignore"):
            drawn[~np.isfinite(fastmma.decode(drawn, fmt).astype(np.float64))] = 1
    return drawn


def bits_of(name: str) -> int:
    return 32 if name == "tf32" else FORMATS[name].bits


class Machine:
    """Tensor Memory and shared memory of the CTAs, full of noise, into which operands are put."""

    def __init__(self, ins: fastmma.Instruction, seed: int) -> None:
        self.ins, rng = ins, np.random.default_rng(seed)
        self.tmem = rng.integers(0, 1 << 32, (ins.cta_group, 128, 512), dtype=np.uint32)
        self.memory = rng.integers(0, 256, (ins.cta_group, 1 << 16), dtype=np.uint8)
        a, b = (codes(rng, name, shape) for name, shape in ((ins.atype, (ins.m, ins.stored_k)), (ins.btype, (ins.k, ins.n))))
        self.given: dict[str, NDArray[Any]] = {"a": a, "b": b, "c": codes(rng, ins.ctype, (ins.m, ins.n))}
        if ins.sparse:
            name = {"tf32": "1:2", "e2m1": "4:8" if ins.kind.startswith("mxf4") else "2:4"}.get(ins.atype, "2:4")
            words = np.array(sparsity.words(name, ordered=True), np.uint8)
            self.given["metadata"] = rng.choice(words, (ins.m, ins.k // sparsity.GRANULARITIES[name].chunk))
        if ins.stype:
            low, high = (120, 134) if ins.stype == "ue8m0" else (1, 0x7F)
            self.given["scale_a"] = rng.integers(low, high, (ins.m, ins.scale_vec_size), dtype=np.uint8)
            self.given["scale_b"] = rng.integers(low, high, (ins.scale_vec_size, ins.n), dtype=np.uint8)
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

    def product(self) -> NDArray[Any]:
        """Codes of D from the matrix level."""
        ins, given = self.ins, self.given
        a, b, c = (from_codes(given[name], fmt) for name, fmt in (("a", ins.atype), ("b", ins.btype), ("c", ins.ctype)))
        extra: dict[str, Any] = {"metadata": given.get("metadata")}
        if ins.stype:
            extra |= {name: from_codes(given[name], ins.stype) for name in ("scale_a", "scale_b")}
        return np.ascontiguousarray(fastmma.mma(ins, a, b, c, target="sm_100a", **extra)).view(FORMATS[ins.dtype].code_dtype)

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
        assert isinstance(ins, fastmma.Instruction)
        machine = Machine(ins, 6)
        places = {name: machine.put_shared(name, swizzle, f"transpose_{name}" in turned) for name in "ab"}
        machine.given["metadata"] = machine.given.get("metadata", np.zeros(0))
        address, extra = machine.put_d(), extras(machine)
        machine.ins = plain  # matrices are matrices, however they lie
        if not plain.sparse:
            del machine.given["metadata"]
        result = machine.product()
        np.testing.assert_array_equal(machine.run(address, places["a"], places["b"], ins=ins, **extra), machine.expected(result))


SIMPLE = instruction("f16", "f32", "f16", "f16", 128, 16)


def simple(ins: fastmma.Instruction = SIMPLE, seed: int = 7) -> tuple[Machine, tuple[int, Any, Any]]:
    machine = Machine(ins, seed)
    b, a, d = machine.put_shared("b", 0), machine.put_shared("a", 0), machine.put_d()
    return machine, (d, a, b)


def test_input_d() -> None:
    machine, where = simple()
    machine.tmem[0, :, :16] = 0x7FFFFFFF  # NaNs
    result = machine.run(*where, enable_input_d=False)
    machine.given["c"] = np.zeros_like(machine.given["c"])
    np.testing.assert_array_equal(result, machine.expected(machine.product()))
    assert np.isnan(machine.run(*where)[0, :, :16].view(np.float32)).all()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_scaled_input_d(dtype: str) -> None:
    machine, where = simple(instruction("f16", dtype, "f16", "f16", 128, 16))
    fmt = FORMATS[dtype]
    values = np.array([1.5, -3.0, 0.0, -0.0, np.inf, 1024.0, -0.25, 7.0] * 256, fmt.dtype).reshape(128, 16)
    machine.given["c"] = values.view(fmt.code_dtype)
    machine.put_d()
    result = machine.run(*where, scale_input_d=5)
    machine.given["c"] = (values / fmt.dtype.type(32)).view(fmt.code_dtype)
    np.testing.assert_array_equal(result, machine.expected(machine.product()))
    machine.tmem[0, 3, 2] = 0x00800000 if dtype == "f32" else 0x0400  # the least normal number
    with pytest.raises(OperandError, match=r"scale_input_d: .* times 2 \*\* -1 is no normal number .*not known"):
        machine.run(*where, scale_input_d=1)
    with pytest.raises(TargetError, match="illegal with scale_input_d on sm_110a"):
        machine.run(*where, scale_input_d=1, target="sm_110a")


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
        machine.given["a"] = codes(np.random.default_rng(part), ins.atype, machine.given["a"].shape)
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


@pytest.mark.parametrize("ins", all_shapes(), ids=str)
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


HALF = instruction("f16", "f32", "f16", "f16", 64, 16)
TURNED = fastmma.instruction(SIMPLE.opcode.split()[0], idesc=SIMPLE.idesc | 1 << 15)
MX = instruction("mxf4", "f32", "e2m1", "e2m1", 128, 16)
PAIRED_MX = instruction("mxf4", "f32", "e2m1", "e2m1", 128, 32, cta_group=2)
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
        (
            SIMPLE,
            {"ins": "tcgen05.mma.cta_group::1.kind::f16.ashift idesc=0x08040010"},
            InstructionError,
            "what .ashift shifts is not known",
        ),
        (SP, {"metadata": None}, OperandError, "needs metadata"),
        (SP, {"metadata": 30}, OperandError, "d and metadata overlap in lane 0, column 30"),
        (SP, {"disable_output_lane": [0] * 4}, InstructionError, "takes no lane_mask"),
        (MX, {"scale_b": None}, OperandError, "needs scale_b"),
        (MX, {"scale_a": 1 << 16}, OperandError, "scale_a: it must begin in lane 0, not 1"),
        (MX, {"scale_a": 510}, OperandError, "scale_a reaches column 513"),
        (MX, {"scale_b": 3}, OperandError, "d and scale_b overlap in lane 0, column 3"),
        (PAIRED_MX, {}, OperandError, "where scale_b lies is known for N of a multiple of 64 only"),
        (MX, {"scale_input_d": 1}, InstructionError, "takes no scale_input_d"),
        (
            instruction("f16", "f32", "f16", "f16", 64, 64, ws=True),
            {"zero_column_mask": 5},
            OperandError,
            "which columns it zeroes is not known",
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
