"""Recordings of AMD GPUs: against stand-ins of HIP's runtime and of hipRTC, whose GPU is the emulator."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import fastmma
from fastmma import BackendError, Instruction, warp
from fastmma.isa.amd.table import every
from fastmma.verification import hip
from fastmma.verification.replay import replay

Arguments = tuple[Any, ...]


class FakeHip:
    """Both libraries: memory is the process's, and a kernel is what its source says in a comment."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.kept, self.source, self.options = fails, dict[int, Any](), "", b""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: 700) if name == self.fails else getattr(FakeHip, f"_{name}", lambda *_: 0).__get__(self)

    def _hipGetDevicePropertiesR0600(self, properties: Any, _device: int) -> int:  # noqa: N802
        ctypes.memmove(properties, b"AMD Instinct MI300X".ljust(1160, b"\0") + b"gfx942:sramecc+:xnack-\0", 1184)
        return 0

    def _hiprtcCreateProgram(self, _program: Any, source: bytes, *_: Any) -> int:  # noqa: N802
        self.source = source.decode()
        return 0

    def _hiprtcCompileProgram(self, _program: Any, _count: int, options: Any) -> int:  # noqa: N802
        self.options = options[0]
        return 0

    def _hiprtcGetCodeSize(self, _program: Any, size: Any) -> int:  # noqa: N802
        size._obj.value = 1
        return 0

    def _hipMalloc(self, place: Any, size: Any) -> int:  # noqa: N802
        memory = ctypes.create_string_buffer(size.value)
        place._obj.value = ctypes.addressof(memory)
        self.kept[ctypes.addressof(memory)] = memory
        return 0

    def _hipMemcpy(self, to: Any, source: Any, size: Any, _kind: int) -> int:  # noqa: N802
        ctypes.memmove(to, source, size.value)
        return 0

    def _hipFree(self, place: Any) -> int:  # noqa: N802
        del self.kept[place.value]
        return 0

    def _hipModuleLaunchKernel(self, _function: Any, waves: int, *rest: Any) -> int:  # noqa: N802
        found = re.search(r"one wave a block: (\S+)", self.source)
        assert found
        ins = fastmma.instruction(found[1])
        assert isinstance(ins, Instruction)
        registers = []
        for place, name in zip(rest[-2], "abcd", strict=True):
            operand = ins.operands[name]
            dtype = operand.layout.register_dtype
            size = waves * 64 * operand.registers * dtype.itemsize
            memory = (ctypes.c_char * size).from_address(ctypes.c_void_p.from_address(place).value or 0)
            registers.append(np.frombuffer(memory, dtype).reshape(waves, 64, operand.registers))
        a, b, c, d = registers
        d[...] = warp.mma(ins, a, b, c, target="gfx942")
        return 0


def test_a_recording_replays_anywhere(tmp_path: Path) -> None:
    chosen = ("v_mfma_f32_16x16x16_f16", "v_mfma_f64_4x4x4_4b_f64", "v_mfma_i32_16x16x4_4b_i8")
    fake, seen = FakeHip(), list[tuple[int, int]]()
    with patch.object(hip, "is_recorded", lambda ins: ins.opcode in chosen):
        manifest = hip.record(tmp_path, hip=hip.Hip(fake, fake), progress=lambda *each: seen.append(each))
    assert manifest.parent.name == "gfx942"
    assert seen[-1] == (3, 3)
    assert fake.options == b"--offload-arch=gfx942:sramecc+:xnack-"
    assert not fake.kept
    report = replay("gfx942", folder=tmp_path)
    assert (report.wrong, len(report.outcomes)) == (0, 3)


def test_what_a_library_answers() -> None:
    for name in ("hipInit", "hiprtcCompileProgram", "hipMalloc", "hipModuleLaunchKernel"):
        fake = FakeHip(name)
        ins = fastmma.instruction("v_mfma_f32_16x16x4_f32")
        assert isinstance(ins, Instruction)
        with pytest.raises(BackendError, match=f"{name} answers 700"):
            hip.Hip(fake, fake).multiply(ins, *(np.zeros((1, 64, count), np.uint32) for count in (1, 1, 4)))
    with patch.object(ctypes, "CDLL", side_effect=OSError), pytest.raises(BackendError, match="ROCm brings"):
        hip.Hip()


def test_builtins_have_the_compilers_names() -> None:
    names = [re.findall(r"__builtin_amdgcn_(\w+)\(", hip.kernel_source(ins))[0] for ins in every() if hip.is_recorded(ins)]
    assert len(names) == len(set(names)) == 39
    named = {"mfma_f32_32x32x4bf16_1k", "mfma_f32_32x32x2bf16", "mfma_i32_16x16x32_i8", "mfma_f32_16x16x8_xf32", "mfma_f64_4x4x4f64"}
    assert named | {"mfma_f32_16x16x32_fp8_bf8", "mfma_f32_32x32x1f32", "mfma_i32_32x32x8i8"} <= set(names)
