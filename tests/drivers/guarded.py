"""Drawn cases with a page that nobody may touch before or after every operand, result and scratch buffer: a process of its own.

``python guarded.py SEED CASES SECONDS`` runs so many cases, and more until the time is over, and prints the counts of both sides as JSON.
A stray access ends it by a signal, and the last line on standard error is the case and the side: guards lie after the memory, or before.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # where drivers and the reference are

import numpy as np

from drivers.arrangement import Array
from drivers.cases import OF_A_SEED, drawn
from drivers.checks import check
from drivers.kernel_cases import check_kernels, small_shape
from drivers.operations import name_of, operations
from fastmma.kernels.matrices.memory import LINE, AlignedMemory

PAGE = mmap.PAGESIZE
OPERATIONS = 6  # one of so many is computed by all kernels
NO_ACCESS, READ_AND_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
_library = ctypes.CDLL(None, use_errno=True)
_library.mmap.restype = ctypes.c_void_p
_library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_free: dict[int, list[int]] = {}  # regions of so many pages that are used no more
counts: Counter[str] = Counter()


class Region:
    """Whole pages between two that cannot be accessed; given back when no array lies in them any more."""

    def __init__(self, size: int) -> None:
        self.pages = max(1, -(-size // PAGE))
        free = _free.setdefault(self.pages, [])
        self.start = free.pop() if free else self._new()

    def _new(self) -> int:
        whole = (self.pages + 2) * PAGE
        address = _library.mmap(None, whole, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        if _library.mprotect(address + PAGE, whole - 2 * PAGE, READ_AND_WRITE):
            raise OSError(ctypes.get_errno(), "mprotect")
        return int(address) + PAGE

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "data": (self.start, False), "shape": (self.pages * PAGE,), "typestr": "|u1"}

    def __del__(self) -> None:
        _free[self.pages].append(self.start)


class Guards:
    """Memory whose first or last byte has an inaccessible neighbour."""

    def __init__(self, before: bool) -> None:
        self.before = before

    def memory(self, size: int) -> Array:
        """So many bytes, at one end of their pages; what they hold is no number that anyone computed."""
        whole = np.asarray(Region(size))
        whole[...] = 0xA5
        counts["guarded arrays and buffers"] += 1
        return whole[:size] if self.before else whole[len(whole) - size :]

    def scratch(self) -> None:
        """Put every part of the kernels' scratch memory, and every array that fastmma makes, between guards, too."""
        guards = self

        def guarded(this: AlignedMemory, *sizes: int, zeroed: bool = False) -> None:
            parts = [guards.memory(-(-size // LINE) * LINE) for size in sizes]
            for part in parts:
                part[...] = 0 if zeroed else 0xA5
            this.parts, this._bytes, this._start = parts, parts[0], 0  # type: ignore[attr-defined]
            this.addresses, this.size = [part.ctypes.data for part in parts], sum(len(part) for part in parts)

        AlignedMemory.__init__ = guarded  # type: ignore[method-assign]
        copied = np.ascontiguousarray

        def array(shape: Any, dtype: Any = float, order: str = "C", *, value: int | None = None) -> Array:
            dtype = np.dtype(dtype)
            shape = (int(shape),) if np.ndim(shape) == 0 else tuple(map(int, shape))
            if dtype.hasobject or order != "C" or not dtype.itemsize:
                return plain_empty(shape, dtype, order) if value is None else plain_zeros(shape, dtype, order)
            held = guards.memory(int(np.prod(shape)) * dtype.itemsize)
            if value is not None:
                held[...] = value
            return held.view(dtype).reshape(shape)

        def contiguous(values: Any, dtype: Any = None) -> Array:
            found = copied(values, dtype)
            if found is values or found.dtype.hasobject or not found.ndim:
                return found
            made = array(found.shape, found.dtype)
            made[...] = found
            return made

        plain_empty, plain_zeros = np.empty, np.zeros
        np.empty = array  # type: ignore[assignment]
        np.zeros = lambda shape, dtype=float, order="C": array(shape, dtype, order, value=0)  # type: ignore[assignment]
        np.ascontiguousarray = contiguous  # type: ignore[assignment]


def main() -> None:
    seed, cases, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    deadline = time.monotonic() + seconds
    guards = Guards(before=False)
    guards.scratch()
    sides: dict[str, Counter[str]] = {"after": Counter(), "before": Counter()}
    index = 0
    while index < cases or time.monotonic() < deadline:
        # those of test_fuzz.py, seed after seed
        place = seed + index // OF_A_SEED, index % OF_A_SEED
        known = None
        for side, found in sides.items():
            guards.before = side == "before"
            counts.clear()
            rng, family, case = drawn(*place)
            print(f"{family} {place}, guards {side}: {case.arguments}", file=sys.stderr, flush=True)
            known = check(rng, case, counts, guards.memory, known)
            found.update(counts)
        index += 1
    for number, operation in enumerate(operations()[seed % OPERATIONS :: OPERATIONS]):
        for side, found in sides.items():
            guards.before = side == "before"
            counts.clear()
            print(f"kernels {number}, guards {side}: {name_of(operation)}", file=sys.stderr, flush=True)
            rng = np.random.default_rng([seed, number])
            check_kernels(rng, operation, small_shape(rng, operation), counts, memory=guards.memory)
            found.update(counts)
    print(json.dumps(sides))


if __name__ == "__main__":
    main()
