"""Recordings of AMD GPUs: against a stand-in of the program in C, whose GPU is the emulator."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import fastmma
from fastmma import BackendError, Instruction, warp
from fastmma.isa.amd.table import every
from fastmma.verification import hip
from fastmma.verification.replay import replay


def answered(command: Sequence[str]) -> str:
    """What the program does: its arguments are files of the kernel's source and of registers."""
    if len(command) == 1:
        return "AMD Instinct MI300X\ngfx942:sramecc+:xnack-\n"
    source, waves, lanes, *files = command[1:]
    found = re.search(r"one wave a block: (\S+)", Path(source).read_text())
    assert found
    ins = fastmma.instruction(found[1])
    assert isinstance(ins, Instruction)
    operands = [ins.operands[name] for name in "abc"]
    registers = [
        np.fromfile(file, operand.layout.register_dtype).reshape(int(waves), int(lanes), operand.registers)
        for file, operand in zip(files, operands, strict=False)
    ]
    warp.mma(ins, *registers, target="gfx942").tofile(files[3])
    return ""


def test_a_recording_replays_anywhere(tmp_path: Path) -> None:
    chosen = ("v_mfma_f32_16x16x16_f16", "v_mfma_f64_4x4x4_4b_f64", "v_mfma_i32_16x16x4_4b_i8")
    seen = list[tuple[int, int]]()
    with patch.object(hip, "is_recorded", lambda ins: ins.opcode in chosen), patch.object(hip, "_answer", answered):
        manifest = hip.record(tmp_path, program=["record_hip"], progress=lambda *each: seen.append(each))
    assert manifest.parent.name == "gfx942"
    assert seen[-1] == (3, 3)
    report = replay("gfx942", folder=tmp_path)
    assert (report.wrong, len(report.outcomes)) == (0, 3)


def test_what_a_program_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [sys.executable, "-c", "raise SystemExit('hipSetDevice(DEVICE): no ROCm-capable device is detected')"]
    with pytest.raises(BackendError, match="no ROCm-capable device"):
        hip.record(tmp_path, program=fails)
    with pytest.raises(BackendError, match="does not say which architecture"):
        hip.record(tmp_path, program=[sys.executable, "-c", ""])
    monkeypatch.setenv("CC", str(tmp_path / "compiler"))
    monkeypatch.setenv("ROCM_PATH", "/rocm")
    with pytest.raises(BackendError, match=r"compiler -O1 .*record_hip\.c -I/rocm/include -L/rocm/lib .*No such file"):
        hip.record(tmp_path)


def test_the_program_says_how_it_is_compiled() -> None:
    said = re.search(r"cc record_hip.c (.*)", hip.PROGRAM.read_text(encoding="utf-8"))
    assert said
    assert set(said[1].split()) <= {*hip.compilation(Path("record_hip")), "record_hip"}


def test_builtins_have_the_compilers_names() -> None:
    names = [re.findall(r"__builtin_amdgcn_(\w+)\(", hip.kernel_source(ins))[0] for ins in every() if hip.is_recorded(ins)]
    assert len(names) == len(set(names)) == 39
    named = {"mfma_f32_32x32x4bf16_1k", "mfma_f32_32x32x2bf16", "mfma_i32_16x16x32_i8", "mfma_f32_16x16x8_xf32", "mfma_f64_4x4x4f64"}
    assert named | {"mfma_f32_16x16x32_fp8_bf8", "mfma_f32_32x32x1f32", "mfma_i32_32x32x8i8"} <= set(names)


def test_everything_that_is_recorded_fits_into_memory() -> None:
    assert [len(list(hip.requests(target, 0))) for target in ("gfx908", "gfx90a", "gfx942")] == [20, 27, 32]
