"""Memory that a product takes beyond its operands and its result: ``python -m bench.memory [MxNxK ...]``."""

from __future__ import annotations

import os
import subprocess
import sys

FORMATS = ("f16", "e4m3", "s8", "f64")
SIZES = ("4096x4096x4096", "16384x4096x1024", "4096x1024x16384")
_PEAK = """
import sys
import numpy, fastmma
from fastmma.isa.formats import FORMATS

def mebibytes(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024

fmt = FORMATS[sys.argv[1]]
m, n, k = map(int, sys.argv[2].split("x"))
threads = int(sys.argv[3])
options = {"target": "sm_90a", "threads": threads}
warm = numpy.ones((160, 1536), fmt.dtype)
fastmma.gemm(warm, warm.T, **options)
a, b = numpy.ones((m, k), fmt.dtype), numpy.ones((k, n), fmt.dtype)
d = fastmma.gemm(a[:1], b[:, :1], **options)
d = numpy.ones((m, n), d.dtype)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is counted from here
before = mebibytes("VmRSS:")
fastmma.gemm(a, b, out=d, **options)
print(mebibytes("VmHWM:") - before)
"""


def peak(fmt: str, size: str, threads: int) -> float:
    """Mebibytes at the peak of a product, operands and result not counted."""
    command = [sys.executable, "-c", _PEAK, fmt, size, str(threads)]
    return float(subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True).stdout)


def main(sizes: list[str]) -> None:
    """Print a table."""
    print("| MiB, 1 and 2 threads |", " | ".join(size.replace("x", " x ") for size in sizes), "|")
    print("| --- |" + " --- |" * len(sizes))
    for fmt in FORMATS:
        cells = [f"{peak(fmt, size, 1):.0f}, {peak(fmt, size, 2):.0f}" for size in sizes]
        print(f"| {fmt} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(SIZES))
