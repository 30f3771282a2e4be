"""The table: what it lists, how opcodes may be spelled, and what is said about illegal ones."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from reference import reviewed
from reference.cases import cases
from reference.fragments import CONTAINER_BITS

import fastmma
from fastmma import FORMATS, FastmmaError, Instruction, InstructionError, TargetError, instruction, instructions
from fastmma.isa.targets import PTX_TARGETS

DENSE = [ins for ins in instructions(op="mma") if not ins.sparse and not ins.scale_vec_size]
WGMMA = [ins for ins in instructions(op="wgmma") if not ins.sparse]
# opcodes with every kind of modifier; test_ptxas_rest.py tries their spellings
SPELLINGS = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16",
    "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64.rn",
    "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32",
)
LAYOUTS = ("row", "col")
OPERATIONS = ("xor", "and", "popc")


def test_every_opcode_is_a_reviewed_one() -> None:
    reviewed.check("list --families --markdown", Path(__file__).parent / "instructions.md")


def test_instructions_filters() -> None:
    everything = instructions()
    for target in PTX_TARGETS:
        assert [ins for ins in everything if target in ins.targets] == list(instructions(target))
    assert {ins.op for ins in instructions("sm_90", op="mma")} == {"mma"}
    assert instructions("sm_90", op="wgmma") == ()
    assert instructions("sm_90a", op="no such op") == ()


@pytest.mark.parametrize("bad", ["sm_60", "sm_90f", "SM_90", "90", "", 90, [], b"sm_90"])
def test_unknown_targets(bad: Any) -> None:
    with pytest.raises(TargetError, match="unknown target"):
        instructions(bad)


@cases("ins", DENSE)
def test_an_instruction_says_what_its_opcode_says(ins: Instruction) -> None:
    tokens = ins.opcode.split(".")
    assert tokens[:3] == ["mma", "sync", "aligned"]
    assert tokens[3] == ins.shape == f"m{ins.m}n{ins.n}k{ins.k}"
    assert tokens[4:6] == [ins.alayout, ins.blayout]
    types = [token for token in tokens if token in FORMATS]
    assert types == [ins.dtype, ins.atype, ins.btype, ins.ctype] == ins.types.split(".")
    rest = tokens[6:]
    assert ins.satfinite == ("satfinite" in rest)
    assert ins.kind == ("f8f6f4" if "kind::f8f6f4" in rest else "")
    written = next((token for token in rest if token in ("rn", "rz", "rm", "rp")), "")
    assert ins.rounding == (written or ("rn" if ins.dtype == "f64" else ""))
    assert ins.bit_op == (rest[-2] if ins.atype == "b1" else "")
    assert str(ins) == ins.opcode
    assert ins.op == "mma"
    assert ins.lanes == 32
    assert ins.sparse == ins.stype == ""
    assert ins.stored_k == ins.k
    assert ins.tiles == (4 if ins.shape == "m8n8k4" and ins.atype == "f16" else 1)
    assert instruction(ins) is ins
    assert instruction(ins.opcode) is ins
    assert instruction(f"  {ins.opcode} ;\n") is ins


@cases("ins", DENSE)
def test_register_counts(ins: Instruction) -> None:
    """Rows times columns times bits, over 32 lanes of 32 bits (64 for f64)."""
    elements = {"a": ins.m * ins.k, "b": ins.k * ins.n, "c": ins.m * ins.n, "d": ins.m * ins.n}
    names = {"a": ins.atype, "b": ins.btype, "c": ins.ctype, "d": ins.dtype}
    assert list(ins.operands) == list("abcd")
    for name, operand in ins.operands.items():
        assert operand.name == name
        assert operand.format is FORMATS[names[name]]
        bits = CONTAINER_BITS[names[name]]
        assert operand.registers * 32 * max(bits, 32) == elements[name] * bits * ins.tiles


def shuffled(opcode: str, generator: random.Random, *, keep_order: bool) -> str:
    """Tokens in another order; those whose order matters may keep theirs."""
    op, *tokens = opcode.split(".")
    ordered = [[t for t in tokens if t in kind] for kind in (tuple(FORMATS), LAYOUTS, OPERATIONS)]
    mixed = generator.sample(tokens, len(tokens))
    if keep_order:
        rest = [iter(group) for group in ordered]
        kinds = (tuple(FORMATS), LAYOUTS, OPERATIONS)
        mixed = [next((next(group) for kind, group in zip(kinds, rest, strict=True) if token in kind), token) for token in mixed]
    return ".".join([op, *mixed])


@pytest.mark.parametrize("opcode", SPELLINGS)
def test_modifiers_in_any_order(opcode: str) -> None:
    generator = random.Random(opcode)
    for _ in range(20):
        assert instruction(shuffled(opcode, generator, keep_order=True)) is instruction(opcode)


def variants(opcode: str) -> list[str]:
    """Spellings, most of them illegal: shuffled, with a token twice, without one, with a foreign one."""
    generator = random.Random(opcode)
    op, *tokens = opcode.split(".")
    found = [shuffled(opcode, generator, keep_order=keep) for keep in (True, False) for _ in range(15)]
    # ptxas lets surplus 4-bit types pass, which the table does not
    own = [token for token in tokens if token not in ("s4", "u4")]
    foreign = (*own, "rn", "rz", "satfinite", "xor", "and", "popc", "kind::f8f6f4", "sp", "relu", "m16n8k16", "")
    for token in dict.fromkeys(foreign):
        found += [".".join([op, *tokens, token]), ".".join([op, token, *tokens])]
    found += [".".join([op, *(tokens[:index] + tokens[index + 1 :])]) for index in range(len(tokens))]
    return found


def test_defaults_may_be_written() -> None:
    plain = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    assert instruction(plain + ".rn") is instruction(plain)
    assert instruction("mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64") is instruction(plain)
    assert instruction(plain + ".rz").rounding == "rz"
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    assert instruction(wgmma.replace(".aligned", "")) is instruction(wgmma)


ILLEGAL = {
    "mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32": "there is no .m16n8k9",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32": "the types .f32.f16.bf16.f32 do not go together",
    "mma.sync.aligned.m16n8k8.row.col.f32.e4m3.e4m3.f32": "m16n8k8 does not take the types .f32.e4m3.e4m3.f32",
    "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32": "needs the layouts .row.col",
    "mma.sync.aligned.m16n8k16.f32.f16.f16.f32": "needs the layouts .row.col",
    "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32": ".satfinite is not allowed here",
    "mma.sync.m16n8k16.row.col.f32.f16.f16.f32": ".aligned is missing",
    "mma.sync.aligned.row.col.f32.f16.f16.f32": "the shape is missing",
    "mma.sync.aligned.m16n8k16.row.col": "the types are missing",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.rn": ".rn is not allowed here",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn.rn": ".rn is written twice",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn.rz": "is not allowed here",
    "mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32": ".kind::f8f6f4 is missing",
    "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32": "needs .and.popc or .xor.popc",
    "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.popc.xor": "not .popc.xor",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.relu": "there is no .relu",
    "mma.sync.aligned.m16n8k9.row.col.f32.f16.f16.f32.tanh.gelu.relu": "there is no .gelu, there is no .m16n8k9, there is no .relu, there",
    "MMA.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "there is no instruction 'MMA'",
    "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8": "",
    "wgmma.sync.aligned.m64n8k16.f32.f16.f16": "there is no instruction 'wgmma.sync'",
    "fma.rn.f64": "there is no instruction 'fma'",
    "mma": "",
    "mma.": "",
    ".": "",
    "": "(empty)",
    "   ;": "(empty)",
    "\x00": "",
    "mma..sync": "",
    "é" * 100_000: "",
    "mma." + ".".join(["f32"] * 50_000): "",
}


@pytest.mark.parametrize("text", ILLEGAL, ids=lambda text: text[:60] or "(empty)")
def test_illegal_opcodes(text: str) -> None:
    with pytest.raises(InstructionError) as caught:
        instruction(text)
    message = str(caught.value)
    assert ILLEGAL[text] in message
    assert len(message) < 1500
    nearest = re.search(r"The nearest are (\S+) and (\S+)$", message)
    first, second = nearest.groups()
    assert first != second
    assert instruction(first).opcode == first
    assert instruction(second).opcode == second


def test_nearest_opcodes() -> None:
    with pytest.raises(InstructionError, match=r"The nearest are mma\.sync\.aligned\.m16n8k16\.\S+ and mma\.sync\.aligned\.m16n8k8\.\S+$"):
        instruction("mma.sync.aligned.m16n8k12.row.col.f32.f16.f16.f32")


@pytest.mark.parametrize("bad", [None, 3, b"mma", ["mma"], object(), 1.5, ("mma", "sync")])
def test_what_is_no_text(bad: Any) -> None:
    with pytest.raises(InstructionError, match="must be a string"):
        instruction(bad)


def test_errors_are_fastmmas() -> None:
    assert issubclass(InstructionError, FastmmaError)
    assert issubclass(InstructionError, ValueError)
    assert issubclass(fastmma.OperandTypeError, TypeError)
