"""The first second: the import, and the first product with and without kernels on the disk, as docs/first_call.md has them.

``python -m bench.first_call`` prints the table.
"""

from __future__ import annotations

import os
import tempfile

from bench.process import python

_PRODUCT = """
import time
began = time.perf_counter()
import fastmma
imported = time.perf_counter()
import numpy
a = numpy.ones((512, 512), numpy.float16)
made = time.perf_counter()
fastmma.gemm(a, a, threads=1)
first = time.perf_counter()
fastmma.gemm(a, a, threads=1)
print(imported - began, first - made, time.perf_counter() - first)
"""
_ROUNDS = 5


def _measured(cache: str) -> list[float]:
    return [float(each) for each in python(_PRODUCT, NUMBA_CACHE_DIR=cache).split()]


def main() -> None:
    """Measure, and print the table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled to byte code
    cold = []
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(_measured(cache)[1])
            assert os.listdir(cache), "the process kept its kernels elsewhere, where it may have found them"
    with tempfile.TemporaryDirectory() as cache:
        _measured(cache)
        imported, warm, later = (min(each) for each in zip(*(_measured(cache) for _ in range(_ROUNDS)), strict=True))
    print("| | seconds |\n| --- | --- |")
    print(f"| `import fastmma` | {imported:.2f} |")
    print(f"| the first `gemm` (512 x 512 x 512, f16), kernels on the disk | {warm:.2f} |")
    print(f"| the same on a machine that has compiled nothing yet | {min(cold):.1f} |")
    print(f"| every later one | {later:.3f} |")


if __name__ == "__main__":
    main()
