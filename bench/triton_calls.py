"""Calls of Triton kernels in `fastmma.triton.interpret`: the first in a process, and later ones over Triton's own interpreter.

``python -m bench.triton_calls`` prints the table of docs/triton.md: CPU time of a process and of those that it starts, the least of some
rounds. Words after it choose kernels.
"""

from __future__ import annotations

import sys
import tempfile

from bench.process import python

_FIRST = """
import resource, fastmma.triton
from bench.triton_kernels import launches
def spent():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
launch = launches()[{name!r}]
with fastmma.triton.interpret("H100"):
    began = spent()
    launch()
    print(spent() - began)
"""
_LATER = """
import time, fastmma.triton
from bench.triton_kernels import launches
launch = launches()[{name!r}]
def timed():
    began = time.process_time()
    launch()
    return time.process_time() - began
with fastmma.triton.interpret("H100"):
    timed(), timed()
plain, ours = [], []
for _ in range(8):
    plain.append(timed())
    with fastmma.triton.interpret("H100"):
        ours.append(timed())
print(min(plain), min(ours))
"""
_ROUNDS = 2


def _first(name: str, kernels: str | None) -> float:
    """CPU time of the first call, with nothing that Triton compiled on the disk."""
    with tempfile.TemporaryDirectory() as compiled:
        environment = {"TRITON_CACHE_DIR": compiled} | ({"NUMBA_CACHE_DIR": kernels} if kernels else {})
        return float(python(_FIRST.format(name=name), **environment))


def _cold(name: str) -> float:
    with tempfile.TemporaryDirectory() as kernels:
        return _first(name, kernels)


def main(words: list[str]) -> None:
    """Measure, and print the rows of kernels whose names have one of some words; all without any."""
    from bench.triton_kernels import launches

    print("| kernel | first call, seconds | the same, nothing compiled yet | later calls, over Triton's interpreter |")
    print("| --- | --- | --- | --- |")
    for name in (name for name in launches() if not words or any(word in name for word in words)):
        _first(name, None)
        warm, cold = min(_first(name, None) for _ in range(_ROUNDS)), min(_cold(name) for _ in range(_ROUNDS))
        plain, ours = (float(each) for each in python(_LATER.format(name=name), TRITON_INTERPRET="1").split())
        print(f"| {name} | {warm:.1f} | {cold:.1f} | {ours / plain:.2f} ({plain * 1e3:.0f} ms) |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
