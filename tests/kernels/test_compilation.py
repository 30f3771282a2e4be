"""The cache of compiled kernels outlives changes of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fastmma

SCRIPT = """
import numpy as np, fastmma
opcode = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
a, b, c = np.ones((16, 8), np.float16), np.ones((8, 8), np.float16), np.ones((16, 8), np.float32)
print(float(fastmma.mma(opcode, a, b, c, target="sm_90a")[3, 3]))
"""


def run(folder: Path, cache: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment, cwd=folder).stdout


def test_kernels_of_another_version_are_compiled_anew(tmp_path: Path) -> None:
    package, cache = tmp_path / "fastmma", tmp_path / "cache"
    shutil.copytree(Path(fastmma.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    assert run(tmp_path, cache) == "9.0\n"
    first = set(cache.glob("*/*.nbi"))
    # the classes that the old files hold have gone
    for path in package.rglob("*.py"):
        path.write_text(path.read_text().replace("Element", "ElementFormat").replace("Fused", "FusedSteps"))
    assert run(tmp_path, cache) == "9.0\n"
    second = set(cache.glob("*/*.nbi"))
    assert first < second
    assert run(tmp_path, cache) == "9.0\n"
    assert set(cache.glob("*/*.nbi")) == second
