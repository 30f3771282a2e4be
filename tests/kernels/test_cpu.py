"""Kernels for another kind of CPU than this one."""

from __future__ import annotations

import os
import re
import subprocess
import sys


def test_an_unknown_kind() -> None:
    program = "import numpy, fastmma; fastmma.gemm(numpy.ones((4, 4), numpy.float16), numpy.ones((4, 4), numpy.float16))"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "FASTMMA_CPU": "avx3"}, capture_output=True, check=False)
    assert done.returncode == 1
    assert re.search(b"BackendError: FASTMMA_CPU must be (avx2 or avx512|neon or dotprod), not 'avx3'", done.stderr)
