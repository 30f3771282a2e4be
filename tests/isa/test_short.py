"""Short opcodes: what they must mean, or what they can."""

from __future__ import annotations

import pytest

import fastmma
from fastmma import InstructionError, instruction, instructions

MEANT = {
    "mma.m16n8k16.f32.f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.m16n8k16.f32.f16.f16.f32;": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.m16n8k16.row.col.f32.f16.f16.f32": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.m16n8k16.bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.m8n8k4.f64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.m8n8k4.rz.f64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz",
    "mma.m8n8k4.col.row.f32.f16": "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32",
    "mma.m16n8k32.s32.s8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.m16n8k32.satfinite.s32.s8": "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32",
    "mma.m16n8k32.f32.e4m3.e5m2": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "mma.m16n8k256.s32.b1.xor": "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sp.m16n8k32.f32.f16": "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.m16n8k32.kind::f8f6f4.f32.e2m1": "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32",
    "wgmma.m64n256k16.f32.bf16": "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
    "wgmma.mma_async.m64n8k32.f32.e4m3": "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3",
    "wmma.row.col.m16n16k16.f32.f16": "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16",
    "ldmatrix.m8n8.x4.b16": "ldmatrix.sync.aligned.m8n8.x4.b16",
    "movmatrix.m8n8.trans.b16": "movmatrix.sync.aligned.m8n8.trans.b16",
}


@pytest.mark.parametrize("short", MEANT)
def test_the_one_that_it_must_mean(short: str) -> None:
    assert instruction(short).opcode == MEANT[short]


def test_every_opcode_without_sync_and_aligned() -> None:
    """The whole text but for the two words means the opcode itself."""
    for ins in instructions():
        text = ins.opcode.replace(".sync", "").replace(".aligned", "")
        assert instruction(text) is ins


@pytest.mark.parametrize(
    ("short", "count", "first"),
    [
        ("mma.f32.f16", 6, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.m16n8k16.f16", 4, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.m8n8k4.f32.f16", 4, "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"),
        ("wmma.m16n16k16.f32.f32", 4, "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
        ("mma.m8n8k128.s32.b1", 2, "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc"),
        ("mma.m16n8k16", 16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    ],
)
def test_the_candidates(short: str, count: int, first: str) -> None:
    with pytest.raises(InstructionError, match=rf"can mean {count} opcodes: {first}, ") as caught:
        instruction(short)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize(
    "text", ["mma.sync.m16n8k16.f32.f16", "mma.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.m16n8k16.f32.f32", "mma", "mma.f8"]
)
def test_what_is_no_short_opcode(text: str) -> None:
    with pytest.raises(InstructionError, match="is no legal opcode"):
        instruction(text)


def test_calls_take_short_opcodes() -> None:
    assert fastmma.arithmetic("mma.m16n8k16.f32.f16", "A100").align_bits == 24
    assert fastmma.mma_plan("wgmma.m64n8k16.f32.f16", target="H100").instruction == "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
