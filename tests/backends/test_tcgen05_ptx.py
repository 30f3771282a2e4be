"""The kernel that executes one tcgen05.mma on raw images: ptxas assembles it for every kind and form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from reference.ptxas import complaints, known_targets, needs_ptxas

import fastmma
from fastmma import Instruction, OperandError, TargetError, tcgen05
from fastmma.backends.gpu.tensor_memory_ptx import PARAMETERS, dynamic_bytes, tensor_kernel

FORMS: list[dict[str, Any]] = [
    {"m": 128},
    {"m": 64},
    {"m": 32, "ws": True},
    {"m": 256, "cta_group": 2},
    {"m": 128, "sparse": True},
    {"m": 64, "n": 128, "ws": True, "sparse": True},
    {"m": 256, "cta_group": 2, "sparse": True},
]
TYPES = (
    ("f16", "f32", "bf16", "bf16"),
    ("tf32", "f32", "tf32", "tf32"),
    ("f8f6f4", "f16", "e4m3", "e2m1"),
    ("i8", "s32", "u8", "s8"),
    ("mxf8f6f4", "f32", "e5m2", "e3m2"),
    ("mxf4", "f32", "e2m1", "e2m1"),
    ("mxf4nvf4", "f32", "e2m1", "e2m1"),
)


def instructions() -> list[Instruction]:
    every = [(types, form) for types in TYPES for form in FORMS]
    return [
        tcgen05.instruction(*types, **form)
        for types, form in every
        if not (types[0].startswith("mx") and (form.get("ws") or form["m"] == 64))
    ]


@needs_ptxas
@pytest.mark.parametrize("target", ["sm_100a", "sm_100f", "sm_103a", "sm_110a", "sm_107a"])
def test_ptxas_assembles_every_form(target: str, tmp_path: Path) -> None:
    if target not in known_targets():
        pytest.skip(f"this ptxas does not know {target}")
    tried = [(ins, in_tensor) for ins in instructions() if target in ins.targets for in_tensor in (False, True)]
    kernels = [tensor_kernel(ins, target, image_bytes=65536, a_in_tensor_memory=in_tensor) for ins, in_tensor in tried]
    assert complaints(kernels, target, tmp_path) == "", tried
    assert len(tried) > 40


def test_the_text_follows_from_the_instruction() -> None:
    ins = tcgen05.instruction("mxf8f6f4", "f32", "e4m3", "e4m3", sparse=True, m=256, cta_group=2)
    text = tensor_kernel(ins, "sm_103a", image_bytes=1024)
    assert ".reqnctapercluster 2" in text
    assert re.search(r"tcgen05\.mma\.sp\.cta_group::2\.kind::mxf8f6f4\.block_scale\.block32 \[%d\], %da, %db, \[%metadata\], %idesc,", text)
    assert [f".param .u64 p_{name}" in text for name in PARAMETERS] == [True] * len(PARAMETERS)
    assert dynamic_bytes(1024) > 1024
    with pytest.raises(TargetError, match="illegal on sm_120a"):
        tensor_kernel(ins, "sm_120a", image_bytes=1024)
    with pytest.raises(OperandError, match="image_bytes must be a multiple of 512"):
        tensor_kernel(ins, "sm_103a", image_bytes=1000)
    other = fastmma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    with pytest.raises(OperandError, match="the instruction is no tcgen05"):
        tensor_kernel(other, "sm_100a", image_bytes=512)
