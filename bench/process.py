"""Measurements that need a process of their own: the first product, and the peak of memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

_FIRST = """
import numpy, fastmma
a = numpy.ones((256, 256), numpy.float16)
fastmma.gemm(a, a)
"""
_PEAK = """
import sys
import numpy, fastmma

def kibibytes(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))

n = int(sys.argv[1])
warm = numpy.ones((256, 256), numpy.float16)
fastmma.gemm(warm, warm)
before = kibibytes("VmRSS:")
a, b = numpy.ones((n, n), numpy.float16), numpy.ones((n, n), numpy.float16)
d = fastmma.gemm(a, b)
print((kibibytes("VmHWM:") - before) * 1024 / (a.nbytes + b.nbytes + d.nbytes))
"""


def python(program: str, *arguments: str, **environment: str) -> str:
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def first_product(rounds: int) -> tuple[float, float]:
    """Seconds from the start of a process to the end of its first product: nothing compiled before, and everything in the cache."""
    with tempfile.TemporaryDirectory() as cache:
        seconds = []
        for _ in range(1 + rounds):
            began = time.perf_counter()
            python(_FIRST, NUMBA_CACHE_DIR=cache)
            seconds.append(time.perf_counter() - began)
    return seconds[0], sorted(seconds[1:])[rounds // 2]


def peak_memory(n: int) -> float | None:
    """Peak memory of an n x n x n f16 product over the size of its operands and result; None where the system does not tell."""
    if not os.path.exists("/proc/self/status"):
        return None
    python(_FIRST)  # compiling has a peak of its own
    return float(python(_PEAK, str(n)))
