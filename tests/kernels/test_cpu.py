"""Kernels for another kind of CPU than this one."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import fastmma

PROGRAM = """
import sys
import numpy as np
import fastmma

rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 300), (300, 90)))
fastmma.gemm(a, b).tofile(sys.stdout.buffer)
from fastmma.kernels.llvm import cpu

assert "avx512f" not in cpu.features() and "avx2" in cpu.features()
assert cpu.machine()[1] == "haswell" and "+avx512f" not in cpu.machine()[2]
"""


def run(kind: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "FASTMMA_CPU": kind}, capture_output=True, check=False)


def test_avx2() -> None:
    from fastmma.kernels.llvm import cpu

    if "avx2" not in cpu.features():
        pytest.skip("needs a CPU with AVX2")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 300), (300, 90)))
    done = run("avx2")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.float32).reshape(70, 90), fastmma.gemm(a, b))


def test_an_unknown_kind() -> None:
    done = run("avx3")
    assert done.returncode == 1
    assert re.search(b"BackendError: FASTMMA_CPU must be (avx2|neon or dotprod), not 'avx3'", done.stderr)
