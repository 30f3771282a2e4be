"""ptxas referees the table of sparse, block-scaled, wmma and sparse wgmma instructions, and of those that move matrices.

As in test_ptxas: many more candidates than are legal.
"""

from __future__ import annotations

import itertools
import random
from functools import cache
from pathlib import Path

import pytest
from reference.fragments import CONTAINER_BITS
from reference.ptxas import accepted, needs_ptxas, registers
from test_ptxas import ACCUMULATORS, KNOWN, WGMMA, disagreements, mma_candidates, share, table
from test_table import SPELLINGS as DENSE_SPELLINGS
from test_table import variants

import fastmma
from fastmma import InstructionError, instruction

pytestmark = needs_ptxas

NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
PAIRS = (
    *((t, t) for t in ("f64", "f32", "tf32", "f16", "bf16", "b1")),
    *itertools.product(NARROW, NARROW),
    *itertools.product(("s8", "u8"), repeat=2),
    *itertools.product(("s4", "u4"), repeat=2),
    *(("f16", "bf16"), ("e4m3", "s8"), ("s8", "s4"), ("f16", "e4m3")),
)
SPACES = ("", ".shared", ".shared::cta", ".global", ".local", ".shared::cluster", ".const", ".param")
SPARSE = ("sp", "sp::ordered_metadata")


def words(count: int, bits: int) -> int:
    """Registers a lane needs for so many elements."""
    return max(1, count * bits // 1024)


def statement(opcode: str, counts: tuple[int, int, int, int], prefix: str, rest: str) -> str:
    """Registers of d, a, b and c, then the other operands."""
    return f"{opcode} " + ", ".join(registers(prefix, 128 * place, count) for place, count in enumerate(counts)) + rest + ";"


@cache
def sparse_candidates() -> dict[str, str]:
    found = {}
    shapes = [(16, 8, k) for k in (4, 8, 16, 32, 64, 128, 256)] + [(8, 8, 16), (16, 16, 16), (16, 16, 64)]
    modifiers = ("", ".satfinite", ".kind::f8f6f4")
    for sparse, (m, n, k), (a, b), (d, c), modifier in itertools.product(SPARSE, shapes, PAIRS, ACCUMULATORS, modifiers):
        if (modifier == ".satfinite" and a[0] not in "sufb") or (modifier == ".kind::f8f6f4" and a[0] != "e"):
            continue
        opcode = f"mma.{sparse}.sync.aligned.m{m}n{n}k{k}.row.col{modifier}.{d}.{a}.{b}.{c}"
        counts = (
            words(m * n, CONTAINER_BITS[d]),
            words(m * k // 2, CONTAINER_BITS[a]),
            words(k * n, CONTAINER_BITS[b]),
            words(m * n, CONTAINER_BITS[c]),
        )
        found[opcode] = statement(opcode, counts, "d" if "f64" in (a, d) else "r", ", %r500, 0x0")
    for sparse, layouts in itertools.product(SPARSE, ("row.row", "col.row", "col.col")):
        opcode = f"mma.{sparse}.sync.aligned.m16n8k32.{layouts}.f32.f16.f16.f32"
        found[opcode] = statement(opcode, (4, 4, 4, 4), "r", ", %r500, 0x0")
    return found


@cache
def scaled_candidates() -> dict[str, str]:
    found = {}
    shapes = [(16, 8, k) for k in (16, 32, 64, 128)]
    vectors = ("", *(f".scale_vec::{size}X" for size in (1, 2, 4, 8)), ".block16", ".block32")
    kinds = ("mxf8f6f4", "mxf4", "mxf4nvf4", "f8f6f4", "nvf4")
    pairs = (*itertools.product(NARROW, NARROW), ("f16", "f16"), ("s8", "s8"), ("e4m3", "f16"))
    types = (*(("f32", *pair, "f32") for pair in pairs), ("f16", "e2m1", "e2m1", "f16"), ("f16", "e4m3", "e4m3", "f16"))
    operations = ("sync", *(f"{sparse}.sync" for sparse in SPARSE))
    for operation, (m, n, k), (d, a, b, c), kind, vector, stype in itertools.product(
        operations, shapes, types, kinds, vectors, ("ue8m0", "ue4m3", "e4m3", "")
    ):
        opcode = f"mma.{operation}.aligned.m{m}n{n}k{k}.row.col.kind::{kind}.block_scale{vector}.{d}.{a}.{b}.{c}" + f".{stype}" * bool(
            stype
        )
        if (a, b) not in (("e2m1", "e2m1"), ("e4m3", "e4m3")) and not share(opcode, "", 6) and opcode not in table():
            continue
        sparse = operation != "sync"
        width = 4 if "mxf4" in kind and a == "e2m1" else CONTAINER_BITS[a]
        counts = (
            words(m * n, CONTAINER_BITS[d]),
            words(m * k // (2 if sparse else 1), width),
            words(k * n, 4 if width == 4 else CONTAINER_BITS[b]),
            words(m * n, CONTAINER_BITS[c]),
        )
        scales = ", %r500, {0, 0}, %r501, {0, 0}"
        found[opcode] = statement(opcode, counts, "r", (", %r502, 0x0" if sparse else "") + scales)
    return found


# registers of a and b: PTX's table "Matrix Fragments for WMMA"
_WMMA_REGISTERS = {
    **{("f16", shape): (8, 8) for shape in ("m16n16k16", "m8n32k16", "m32n8k16")},
    ("bf16", "m16n16k16"): (4, 4),
    ("bf16", "m8n32k16"): (2, 8),
    ("bf16", "m32n8k16"): (8, 2),
    ("tf32", "m16n16k8"): (4, 4),
    ("s8", "m16n16k16"): (2, 2),
    ("s8", "m8n32k16"): (1, 4),
    ("s8", "m32n8k16"): (4, 1),
}
WMMA_SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8k4", "m8n8k32", "m8n8k128", "m16n8k16", "m8n8k16", "m32n32k16")
WMMA_ACCUMULATORS = {"f16": 4, "f32": 8, "s32": 8, "f64": 2, "bf16": 4}


def wmma_multiplicand_registers(fmt: str, shape: str) -> tuple[int, int]:
    return _WMMA_REGISTERS.get(("s8" if fmt == "u8" else fmt, shape), (1, 1))


def wmma_accumulator_registers(fmt: str, shape: str) -> int:
    return 2 if shape.startswith("m8n8") else WMMA_ACCUMULATORS[fmt]


@cache
def wmma_candidates() -> dict[str, str]:
    found = {}
    layouts = list(itertools.product(("row", "col"), repeat=2))
    multiplicands = ("f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "u4", "b1", "e4m3", "f32")

    def add(opcode: str, shape: str, d: str, a: str, c: str) -> None:
        many = wmma_multiplicand_registers(a, shape)
        counts = wmma_accumulator_registers(d, shape), *many, wmma_accumulator_registers(c, shape)
        found[opcode] = statement(opcode, counts, "d" if a == "f64" else "r", "")

    for shape, (alayout, blayout) in itertools.product(WMMA_SHAPES, layouts):
        head = f"wmma.mma.sync.aligned.{alayout}.{blayout}.{shape}"
        for (d, c), modifier in itertools.product(itertools.product(("f16", "f32", "s32", "bf16"), repeat=2), ("", ".satfinite", ".rn")):
            add(f"{head}.{d}.{c}{modifier}", shape, d, "f16", c)
        for a, (d, c) in itertools.product(multiplicands, ACCUMULATORS):
            for b in {a, {"s8": "u8", "u8": "s8", "s4": "u4", "f16": "bf16"}.get(a, a)}:
                for modifier in ("", ".satfinite", *((".xor.popc", ".and.popc") if a == "b1" else ())):
                    add(f"{head}.{d}.{a}.{b}.{c}{modifier}", shape, d, a, c)
        for rounding in (".rn", ".rz", ".rm", ".rp"):
            add(f"{head}{rounding}.f64.f64.f64.f64", shape, "f64", "f64", "f64")
        for operation in ("xor.popc", "and.popc", "or.popc"):
            opcode = f"wmma.mma.{operation}.sync.aligned.{alayout}.{blayout}.{shape}.s32.b1.b1.s32"
            add(opcode, shape, "s32", "b1", "s32")
    return found


@cache
def wmma_move_candidates() -> dict[str, str]:
    found = {}
    formats = ("f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s4", "u4", "b1", "s32", "e4m3")
    for shape, fmt, layout, space, stride in itertools.product(WMMA_SHAPES, formats, ("row", "col"), SPACES, ("", ", %r500")):
        for operand in "abcd":
            opcode = f"wmma.{'store' if operand == 'd' else 'load'}.{operand}.sync.aligned.{layout}.{shape}{space}.{fmt}"
            if stride and not share(opcode, "stride", 6):
                continue
            if operand in "ab":
                count = wmma_multiplicand_registers(fmt, shape)[operand == "b"]
            else:
                count = wmma_accumulator_registers(fmt if fmt in WMMA_ACCUMULATORS else "s32", shape)
            held = registers("d" if fmt == "f64" else "r", 0, count)
            found[opcode] = f"{opcode} {held}, [%q0]{stride};" if operand != "d" else f"{opcode} [%q0], {held}{stride};"
    return found


@cache
def matrix_move_candidates() -> dict[str, str]:
    """ldmatrix, stmatrix and movmatrix; the formats that expand also with source and destination swapped."""
    found = {}
    formats = [
        *("b16", "b8", "b32", "b8x16.b6x16_p32", "b8x16.b4x16_p64", "b6x16_p32.b8x16", "b4x16_p64.b8x16"),
        *("b8x16", "b6x16_p32", "b4x16_p64", "s8.s4", "u8.u4", "s8.u4", "s4.s8"),
    ]
    shapes = {"m8n8": 64, "m8n16": 128, "m16n8": 128, "m16n16": 256, "m8n32": 256}
    for op, shape, num, trans, space, fmt in itertools.product(
        ("ldmatrix", "stmatrix"), shapes, (1, 2, 4, 8), ("", ".trans"), SPACES, formats
    ):
        opcode = f"{op}.sync.aligned.{shape}.x{num}{trans}{space}.{fmt}"
        held = registers("r", 0, num * words(shapes[shape], 16 if fmt == "b16" else 8))
        found[opcode] = f"{opcode} {held}, [%q0];" if op == "ldmatrix" else f"{opcode} [%q0], {held};"
    for shape, trans, fmt in itertools.product(shapes, ("", ".trans"), ("b16", "b8", "b32")):
        opcode = f"movmatrix.sync.aligned.{shape}{trans}.{fmt}"
        found[opcode] = f"{opcode} %r0, %r1;"
    return found


CANDIDATES = {
    "sparse": sparse_candidates,
    "scaled": scaled_candidates,
    "wmma": wmma_candidates,
    "wmma moves": wmma_move_candidates,
    "matrix moves": matrix_move_candidates,
}
EVERY = CANDIDATES | {"mma": mma_candidates, **{f"wgmma, {form}": lambda form=form: WGMMA[form] for form in WGMMA}}


@pytest.mark.parametrize("name", EVERY)
def test_the_parser_knows_the_legal_ones(name: str) -> None:
    candidates = list(EVERY[name]())
    known = [opcode for opcode in candidates if opcode in table()]
    assert known
    for opcode in known + random.Random(name).sample(candidates, 40):
        try:
            assert instruction(opcode).targets == table()[opcode]
        except InstructionError:
            assert opcode not in table()


def test_every_opcode_is_a_candidate() -> None:
    assert {ins.opcode for ins in fastmma.instructions()} <= set().union(*(each() for each in EVERY.values()))


@pytest.mark.parametrize("target", KNOWN)
@pytest.mark.parametrize("name", CANDIDATES)
def test_table(name: str, target: str, tmp_path: Path) -> None:
    assert disagreements(CANDIDATES[name](), target, tmp_path) == []


# opcodes with every kind of modifier, the target on which their spellings are tried, and their operands
_M16N8 = "{%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9, %r10, %r11}, {%r12, %r13, %r14, %r15}"
_FOUR, _TWO = "{%r0, %r1, %r2, %r3}", "{%r0, %r1}"


def dense(ins: fastmma.Instruction) -> tuple[str, str]:
    """The target of a dense mma, and registers of its operands."""
    counts = ins.operands["d"].registers, *(ins.operands[name].registers for name in "abc")
    target = "sm_90a" if "sm_90a" in ins.targets else "sm_120a"
    return target, statement("", counts, "d" if ins.dtype == "f64" else "r", "")[1:-1]


SPELLINGS = {opcode: dense(instruction(opcode)) for opcode in DENSE_SPELLINGS} | {
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": ("sm_90a", f"{_M16N8}, %r20, 0x0"),
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.u8.s32": ("sm_90a", f"{_M16N8}, %r20, 0x0"),
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32": ("sm_120a", f"{_M16N8}, %r20, 0x0"),
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3": (
        "sm_120a",
        "{%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%r12, %r13, %r14, %r15}, %r20, {0, 0}, %r21, {0, 0}",
    ),
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0": (
        "sm_120a",
        f"{_M16N8}, %r20, 0x0, %r21, {{0, 0}}, %r22, {{0, 0}}",
    ),
    "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32": (
        "sm_90a",
        ", ".join((registers("r", 0, 8), registers("r", 8, 4), registers("r", 12, 4), registers("r", 16, 8))),
    ),
    "wmma.mma.sync.aligned.col.row.m8n32k16.s32.s8.s8.s32.satfinite": (
        "sm_90a",
        ", ".join((registers("r", 0, 8), registers("r", 8, 1), registers("r", 12, 4), registers("r", 16, 8))),
    ),
    "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32": ("sm_90a", "{%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}"),
    "wmma.mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64": ("sm_90a", "{%d0, %d1}, {%d2}, {%d3}, {%d4, %d5}"),
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.s8": ("sm_90a", f"{_TWO}, [%q0]"),
    "wmma.store.d.sync.aligned.col.m16n16k16.global.f16": ("sm_90a", f"[%q0], {_FOUR}"),
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": ("sm_90a", f"{_FOUR}, [%q0]"),
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared::cta.b8x16.b6x16_p32": ("sm_120a", f"{_TWO}, [%q0]"),
    "stmatrix.sync.aligned.m16n8.x2.trans.b8": ("sm_120a", f"[%q0], {_TWO}"),
    "movmatrix.sync.aligned.m8n8.trans.b16": ("sm_90a", "%r0, %r1"),
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.satfinite.s32.s8.u8": ("sm_90a", f"{_FOUR}, {registers('r', 8, 4)}, %q0, %r20, 0, %p1"),
}


@pytest.mark.parametrize("opcode", SPELLINGS)
def test_spellings_are_those_of_ptxas(opcode: str, tmp_path: Path) -> None:
    def held(ins: fastmma.Instruction) -> list[int]:
        return [operand.registers for operand in getattr(ins, "operands", {}).values()]

    target, operands = SPELLINGS[opcode]
    spelled = list(dict.fromkeys(variants(opcode)))
    taken = []
    for text in spelled:
        try:
            taken.append(target in instruction(text).targets and held(instruction(text)) == held(instruction(opcode)))
        except InstructionError:
            taken.append(False)
    verdicts = accepted([f"{text} {operands};" for text in spelled], target, tmp_path)
    assert [text for text, ours, theirs in zip(spelled, taken, verdicts, strict=True) if ours != theirs] == []
