"""A process whose kernels are those of a CPU with narrower vectors than this one has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fastmma.kernels.llvm import cpu

_TESTS = Path(__file__).parents[1]


def narrower(program: str, *arguments: str) -> str:
    """What a program prints that may import what tests of kernels do; for the CPU as it is where it has no AVX2."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, (_TESTS / "kernels", _TESTS, _TESTS.parent))))
    if "avx2" in cpu.features():
        environment["FASTMMA_CPU"] = "avx2"
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
