"""``fastmma list``: everything, filtered, as JSON, and in short."""

from __future__ import annotations

import json
import math

import pytest
from reference.command_line import run

import fastmma
from fastmma.cli.listing import summary
from fastmma.isa.tcgen05.copies import COPIES, SHIFTS
from fastmma.isa.tcgen05.moves import MOVEMENTS


def listed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The opcodes that the command lists."""
    status, out, _ = run("list", *arguments, capsys=capsys)
    assert status == 0
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_list_is_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys=capsys) == [ins.opcode for ins in fastmma.instructions()]


def test_list_filters(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed("--target", "sm_89", "--type", "e5m2", "--shape", "m16n8k16", "--op", "mma", capsys=capsys)
    assert found == [
        ins.opcode
        for ins in fastmma.instructions("sm_89", op="mma")
        if isinstance(ins, fastmma.Instruction) and "e5m2" in (ins.atype, ins.btype) and ins.shape == "m16n8k16"
    ]
    assert found


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run("list", "--json", capsys=capsys)[1])
    assert [each["opcode"] for each in found] == [ins.opcode for ins in fastmma.instructions()]
    assert all(each["targets"] for each in found)


def test_summary_covers_every_instruction_once() -> None:
    everything = fastmma.instructions()
    count = 0
    for head, shapes, accumulators, atypes, btypes, modifiers, _ in summary(everything):
        shape_count = int(shapes.rsplit(": ", 1)[1].split()[0]) if "..." in shapes else len(shapes.split(", "))
        choices = (each.split(", ") for each in (head, accumulators, atypes, btypes))
        count += shape_count * math.prod(map(len, choices)) * max(1, len(modifiers.split()))
    assert count == len(everything)


@pytest.mark.parametrize("option", [("--type", "f12"), ("--shape", "m1n1k1"), ("--op", "dpas"), ("--target", "sm_1")])
def test_list_refuses_what_nothing_has(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("list", *option, capsys=capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert option[1] in err


def test_list_of_tcgen05(capsys: pytest.CaptureFixture[str]) -> None:
    """Its types and shapes stand in a descriptor: the largest shape of each form is listed."""
    found = json.loads(run("list", "--op", "tcgen05", "--target", "sm_103a", "--type", "ue4m3", "--json", capsys=capsys)[1])
    assert {row["op"] for row in found} == {"tcgen05"}
    assert "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 idesc=0x08400480" in [row["opcode"] for row in found]
    assert {"m128n256k64", "m128n256k128", "m256n256k64", "m256n256k128"} <= {row["shape"] for row in found}
    assert all(row["types"] == ["f32", "e2m1", "e2m1", "ue4m3"] for row in found)
    lines = run("list", "--op", "tcgen05", "--target", "sm_103f", "--summary", capsys=capsys)[1]
    assert "kind::i8" not in lines
    assert "tcgen05.mma.ws.cta_group::1.kind::f16" in lines


@pytest.mark.parametrize("op", ["tcgen05.ld", "tcgen05.ld.red", "tcgen05.st", "tcgen05.cp", "tcgen05.shift"])
def test_list_of_what_moves_tensor_memory(op: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row.opcode: row for row in (*MOVEMENTS, *COPIES, *SHIFTS) if row.op == op}
    found = json.loads(run("list", "--op", op, "--json", capsys=capsys)[1])
    assert [row["opcode"] for row in found] == list(rows)
    for row in found:
        assert (row["op"], row["shape"], row["targets"]) == (op, rows[row["opcode"]].shape, list(rows[row["opcode"]].targets))
        assert row["shape"] in row["opcode"]
        assert all(f".{each}" in row["opcode"] for each in row["types"])
    on_f = listed("--op", op, "--target", "sm_103f", capsys=capsys)
    assert on_f == ([] if op == "tcgen05.shift" else list(rows))
    assert listed("--op", op, "--target", "sm_90a", capsys=capsys) == []
    for form in ("--summary", "--families"):
        lines = run("list", "--op", op, form, capsys=capsys)[1].splitlines()
        assert any(line.startswith(op) for line in lines)
    assert listed("--op", "tcgen05.cp", "--shape", "4x256b", "--type", "b8x16", capsys=capsys) == [
        f"tcgen05.cp.cta_group::{group}.4x256b.b8x16.{packed}" for group in (1, 2) for packed in ("b6x16_p32", "b4x16_p64")
    ]
