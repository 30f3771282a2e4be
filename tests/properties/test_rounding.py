"""The caller's float rounding mode changes no result, and is left as it was: on its own thread and on the pool's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastmma.host.float_mode import _environment

ROOT = Path(__file__).parents[2]
# FE_DOWNWARD, FE_UPWARD and FE_TOWARDZERO of x86 (and of Arm, in another order)
MODES = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}

# a process of its own: its pool of threads starts while the mode is another one
SCRIPT = """
import ctypes, hashlib, json, sys
import ml_dtypes, numpy as np, fastmma
from fastmma.verification.trials import draw
libm, mode, threads = ctypes.CDLL(None), int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
x, y = rng.standard_normal((70, 200)), rng.standard_normal((200, 90))
x32, y32 = x.astype(np.float32), y.astype(np.float32)
f64 = "mma.sync.aligned.m16n8k16.row.col{}.f64.f64.f64.f64"
cases = [
    ("f16", "f16", {}, ("sm_70", "sm_80", "sm_90a")),
    ("f16", "f16", {"instruction": "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16"}, ("sm_90a",)),
    ("f16", "f16", {"instruction": "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "split_k": 3}, ("sm_90a",)),
    ("bf16", "bf16", {"promote_every": 32}, ("sm_90a",)),
    ("e4m3", "e5m2", {}, ("sm_89", "sm_90a", "sm_120a")),
    ("e4m3", "e4m3", {"promote_every": 128}, ("sm_90a",)),
    ("e4m3", "e4m3", {"instruction": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"}, ("sm_90a",)),
    ("tf32", "tf32", {"instruction": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"}, ("sm_80", "sm_90a")),
    *(("f64", "f64", {"instruction": f64.format(way)}, ("sm_90a",)) for way in ("", ".rz", ".rm", ".rp")),
]
libm.fesetround(mode)
found = {}
def note(name, array):
    found[name] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
for atype, btype, options, targets in cases:
    for target in targets:
        a, b = (fastmma.encode(v, f).view(fastmma.FORMATS[f].dtype) for v, f in ((x, atype), (y, btype)))
        d = fastmma.gemm(a, b, target=target, threads=threads, **options)
        note(f"{atype} {btype} {options} {target}", d)
a, b = (fastmma.scaling.quantize(v, "nvfp4", axis=k, threads=threads) for v, k in ((x32, 1), (y32, 0)))
note("nvfp4", a.elements.view(np.uint8)); note("scales", a.scales.view(np.uint8)); note("values", a.dequantize())
note("scaled", fastmma.scaled_matmul(a, b, target="sm_120a", threads=threads))
a, b = (fastmma.scaling.quantize(v, "fp8_1x128", axis=k) for v, k in ((x32, 1), (y32, 0)))
note("promoted", fastmma.scaled_matmul(a, b, target="sm_90a", threads=threads, out_dtype=ml_dtypes.bfloat16))
ins = fastmma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
for target in ("sm_80", "sm_90a"):
    registers = draw(ins, ("mid/mid", "special/special"), 800, 0).operands
    note(f"warp {target}", fastmma.warp.mma(ins, **registers, target=target, threads=threads))
found["mode"] = libm.fegetround() == mode
print(json.dumps(found))
"""


def results(mode: int, threads: int, portable: bool) -> dict[str, object]:
    environment = {**os.environ, "FASTMMA_PORTABLE": "1" if portable else "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(mode), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(_environment() is None or os.uname().machine not in MODES, reason="the C library shows no fesetround here")
@pytest.mark.parametrize("portable", [False, True], ids=["fast", "portable"])
def test_results_do_not_depend_on_the_rounding_mode(portable: bool) -> None:
    nearest = results(0, 1, portable)
    for mode, threads in zip(MODES[os.uname().machine], (3, 1, 3), strict=True):
        assert results(mode, threads, portable) == nearest
