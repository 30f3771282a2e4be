"""The name of the machine, for tables."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """Processor, its widest vectors, cores, and the versions of what was measured."""
    import numba
    import numpy

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = fields.get("flags", "").split()
    vectors = next((text for flag, text in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), platform.machine())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {vectors}, {cores} cores; Python {platform.python_version()}, NumPy {numpy.__version__}, Numba {numba.__version__}"
