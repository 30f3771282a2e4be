"""Addresses of a kernel's loads and stores: those that are no tensor's are an error or a note, and no crash."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.places import find_line, find_running_line
from fastmma.triton.report import Report

_LOWEST = 1 << 16  # below, no process has memory
_MAPS = Path("/proc/self/maps")  # of Linux


@dataclass(frozen=True)
class Memory:
    """The memory of a launch's tensors.

    Attributes
    ----------
    starts, ends : tuple of int
        Addresses, ascending.
    names : tuple of str
        The arguments that lie there.
    makes_pointers : bool
        Whether the kernel makes pointers of integers, which may lead anywhere.
    report : Report
        Where loads outside are noted.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    names: tuple[str, ...]
    makes_pointers: bool
    report: Report

    @classmethod
    def of(cls, arguments: Mapping[str, Iterable[Any]], report: Report, *, makes_pointers: bool) -> Memory:
        """Describe the memory of arguments, each of which has storages."""
        found = sorted((one.data_ptr(), one.data_ptr() + one.nbytes(), name) for name, storages in arguments.items() for one in storages)
        starts, ends, names = zip(*found, strict=True) if found else ((), (), ())
        return cls(starts, ends, names, makes_pointers, report)

    def holds(self, first: int, last: int) -> bool:
        """Tell whether one tensor holds both of these addresses."""
        index = bisect_right(self.starts, first) - 1
        return index >= 0 and last < self.ends[index]

    def describe(self, address: int) -> str:
        """Say how far from the nearest tensor an address is."""
        if not self.starts:
            return ""
        behind = [
            (address - end, f"{address - end} bytes behind the end of {name}") for end, name in zip(self.ends, self.names, strict=True)
        ]
        before = [(start - address, f"{start - address} bytes before {name}") for start, name in zip(self.starts, self.names, strict=True)]
        return min((one for one in (*behind, *before) if one[0] >= 0), default=(0, ""))[1]


_MEMORY: ContextVar[Memory | None] = ContextVar("fastmma.triton.addresses", default=None)


@contextmanager
def of_launch(memory: Memory) -> Iterator[None]:
    """Check addresses against the memory of a launch, until the block ends."""
    token = _MEMORY.set(memory)
    try:
        yield
    finally:
        _MEMORY.reset(token)


@contextmanager
def including(arrays: Mapping[str, NDArray[Any]]) -> Iterator[None]:
    """Count arrays of a kernel's own as memory of the launch, until the block ends."""
    memory = _MEMORY.get()
    if memory is None or not arrays:
        yield
        return
    found = [*zip(memory.starts, memory.ends, memory.names, strict=True)]
    found += [(one.ctypes.data, one.ctypes.data + one.nbytes, name) for name, one in arrays.items()]
    starts, ends, names = zip(*sorted(found), strict=True)
    with of_launch(replace(memory, starts=starts, ends=ends, names=names)):
        yield


def _is_mapped(address: int) -> bool:
    """Tell whether the process has memory at an address, as far as the system says."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return True
    pairs = (line.partition(" ")[0].partition("-") for line in lines)
    return any(int(first, 16) <= address < int(last, 16) for first, _, last in pairs)


def _place(line: tuple[str, int] | None) -> str:
    if line is None:
        frame = find_running_line()
        line = frame.f_code.co_filename, find_line(frame.f_code, frame.f_lasti)
    return f"{line[0]}:{line[1]}"


def check_addresses(pointers: NDArray[Any], mask: NDArray[Any], *, stores: bool = False, line: tuple[str, int] | None = None) -> None:
    """Raise where an address is no tensor's, so that a compiled kernel may never reach it; a load from other memory of ours is noted.

    Parameters
    ----------
    pointers, mask : array
    stores : bool
    line : (str, int), optional
        The kernel's file and line; by default those that run.

    Raises
    ------
    NotEmulatedError
    """
    memory = _MEMORY.get()
    active = pointers if mask.all() else pointers[np.broadcast_to(mask, pointers.shape)]
    if not active.size:
        return
    first, last = int(active.min()), int(active.max())
    if first >= _LOWEST and (memory is None or memory.holds(first, last)):
        return
    for address in map(int, np.unique(active)):
        if memory is not None and memory.holds(address, address):
            continue
        mapped = address >= _LOWEST and (memory is None or _is_mapped(address))
        if mapped and (memory is None or memory.makes_pointers):
            return
        verb = "stores to" if stores else "loads from"
        where = memory.describe(address) if memory is not None and address >= _LOWEST else ""
        text = f"the kernel {verb} memory at {address:#x}, where no tensor lies{f' ({where})' if where else ''}: is a mask missing?"
        if not mapped or stores:
            raise NotEmulatedError(f"{text} ({_place(line)})")
        assert memory is not None
        memory.report.notes[f"{text.replace(f' at {address:#x}', '')} ({_place(line)})"] += 1
        return
