"""Compiled kernels on the disk: a file each, named after all that it was made of, and replaced when it is damaged."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import llvmlite

from fastmma.host.errors import CacheWarning
from fastmma.kernels.llvm import cpu, folders, settings, sources

_warned = Lock()  # taken for good by the thread that warns


class KernelFiles:
    """The files of one kernel, each for what it was compiled for.

    A failure of the disk is no failure of the call. A file that is missing, damaged or made of something else is a miss, and so is one that
    somebody else may write; a kernel that cannot be kept is compiled by every process, and the first of them in a process is warned of.
    Files appear whole or not at all, so that any number of processes may share a folder.
    """

    def __init__(self, kernel: Callable[..., Any], compilers: Sequence[str] = (), made_by: Sequence[Any] = ()) -> None:
        """Name a kernel, the modules that compile it, and what else its code depends on."""
        self.name = f"{kernel.__module__}.{kernel.__qualname__}"
        self._modules, self._made_by = (kernel.__module__, *compilers), made_by

    def found(self, compiled_for: Sequence[Any]) -> bytes | None:
        """Return what was kept for these types or records, or None."""
        try:
            digest = self._digest(compiled_for)
        except OSError:  # sources that cannot be read
            return None
        key = self._key(compiled_for, digest)
        return folders.find(folders.folder_of(digest), self._file(key), key)

    def keep(self, compiled_for: Sequence[Any], content: Callable[[], bytes]) -> None:
        """Keep what `content` returns in the first folder that takes it, or warn."""
        problem = ""
        try:
            digest = self._digest(compiled_for)
            refused = self._keep(folders.folder_of(digest), self._key(compiled_for, digest), content())
            if refused:
                problem = f"compiled kernels are neither read from this folder nor kept there: {refused}"
        except Exception as error:  # of the disk, or of a Numba that is made otherwise
            why = f"{error}" or type(error).__name__
            problem = f"compiled kernels cannot be kept, so that every process compiles them anew ({why})"
        if problem and _warned.acquire(blocking=False):
            warnings.warn(f"{problem}; NUMBA_CACHE_DIR names another folder for them", CacheWarning, stacklevel=2)

    def _keep(self, inside: str, key: bytes, content: bytes) -> str:
        """Write a file, and name the folders before it that are refused; other reasons not to take a folder are no danger."""
        refused, failures = [], []
        for folder in folders.list_folders():
            if refusal := folders.refusal(folder, inside):
                refused.append(f"{folder}: {refusal}")
                continue
            try:
                folders.write(folder / inside / self._file(key), key, content)
            except OSError as error:
                failures.append(f"{folder}: {error.strerror or error}")
            else:
                return ", ".join(refused)
        raise OSError(", ".join(refused + failures))

    def _digest(self, compiled_for: Sequence[Any]) -> str:
        """Return the digest of the kernel's sources, and of those that define the records that it is compiled for."""
        return sources.digest_of((*self._modules, *(type(getattr(each, "value", each)).__module__ for each in compiled_for)))

    def _key(self, compiled_for: Sequence[Any], digest: str) -> bytes:
        """Return all that the compiled code depends on."""
        # objects of a Python without GIL lie in memory in another way, and its cache tag is the same
        python = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
        versions = (llvmlite.__version__, python, settings.OPTIMIZATION, *self._made_by)
        return "\n".join((digest, self.name, *map(str, (*compiled_for, *cpu.machine(), *versions)))).encode()

    def _file(self, key: bytes) -> str:
        """Name the file."""
        name = self.name.rpartition(".")[2]
        return f"{name}-{hashlib.sha256(key).hexdigest()[:32]}.kernel"


class KernelFolder(NamedTuple):
    """A folder of compiled kernels: of the present sources, and of all versions together."""

    path: Path
    files: int
    bytes: int
    all_bytes: int
    writable: bool
    refusal: str  # why kernels there are not trusted, if they are not


def kernel_folders() -> list[KernelFolder]:
    """The folders where kernels are looked for, in that order; the first that can be written takes new ones."""
    return [_described(folder) for folder in folders.list_folders()]


def _described(folder: Path) -> KernelFolder:
    present = set(map(folders.folder_of, sources.list_digests()))
    sizes = [(path.parent.name in present, path.stat().st_size) for path in folder.glob("fastmma-*/*.kernel")]
    own = [size for now, size in sizes if now]
    return KernelFolder(folder, len(own), sum(own), sum(size for _, size in sizes), _takes_files(folder), folders.refusal(folder, *present))


def _takes_files(folder: Path) -> bool:
    """Tell whether a file can be written there; the folder need not exist."""
    from tempfile import TemporaryFile

    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    try:
        with TemporaryFile(dir=there):
            return True
    except OSError:
        return False
