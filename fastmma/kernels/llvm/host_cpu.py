"""LLVM's names of this CPU and its features, kept on the disk by what the CPU says of itself: LLVM's import takes longer than a product."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import llvmlite

from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm import folders, sources
from fastmma.kernels.llvm.cpuid import identity


class HostCpu(NamedTuple):
    """LLVM's target triple of this process, its name of the CPU, and its features, `+` before those that the CPU has, `-` before others."""

    triple: str
    name: str
    features: str


@cache
def host_cpu() -> HostCpu:
    """Return what LLVM finds, by itself or in another process on the same CPU."""
    return call_uninterrupted(_host_cpu)  # a signal handler amid LLVM's lock would have kernels wait that are compiled for it


def _host_cpu() -> HostCpu:
    told = None
    with suppress(OSError):
        told = identity()
    if told is None:
        return _asked()
    with suppress(OSError):  # of sources that cannot be read
        digest = sources.digest_of([__name__])
        key = "\n".join((digest, llvmlite.__version__, told.hex())).encode()
        inside, name = folders.folder_of(digest), f"{hashlib.sha256(key).hexdigest()[:32]}.cpu"
        kept = folders.find(inside, name, key)
        if kept is not None:
            return HostCpu(*kept.decode().split("\n"))
        found = _asked()
        _keep(inside, name, key, "\n".join(found).encode())
        return found
    return _asked()


def _keep(inside: str, name: str, key: bytes, content: bytes) -> None:
    """Keep what LLVM said in the first folder that takes it; where none does, kernels are not kept either, which is told there."""
    for folder in folders.list_folders():
        if not folders.refusal(folder, inside):
            with suppress(OSError):
                folders.write(folder / inside / name, key, content)
                return


def _asked() -> HostCpu:
    from fastmma.kernels.llvm.library import binding

    return HostCpu(binding.get_process_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
