"""Compiled kernels on the disk: a file each, named after all that it was made of, and replaced when it is damaged."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

import llvmlite

from fastmma.host.errors import CacheWarning, OperandError
from fastmma.host.files import handle
from fastmma.host.permissions import name_other_writers
from fastmma.kernels.llvm import cpu, settings, sources

_LARGEST = 1 << 26  # bytes of a file; the largest kernel has less than 1 MiB
_CHECK_BYTES = 32  # at the start of a file: SHA-256 of the key and of what follows
_warned = Lock()  # taken for good by the thread that warns


def _folders() -> list[Path]:
    """Return where kernels are looked for: where ``NUMBA_CACHE_DIR`` says, else beside their sources, then in the user's cache."""
    if named := settings.cache_folder():
        return [Path(named)]
    user = settings.user_cache()
    return [sources.KERNELS / "__pycache__", *([] if user is None else [user])]


def _owners(folder: Path) -> tuple[int, ...]:
    """Who may own a folder beside this user and root: whoever owns the sources, of those beside them."""
    return (sources.KERNELS.stat().st_uid,) if folder.parent == sources.KERNELS else ()


def _refusal(folder: Path, *inside: str) -> str:
    """Say why kernels of a folder, or of folders in it, are not trusted, which are code: somebody else may write there."""
    for path in (folder, *(folder / name for name in inside)):
        with suppress(OSError):  # it is not there yet, or cannot be read or written either
            found = name_other_writers(path.stat(), _owners(folder))
            if found:
                return found
    return ""


def _folder_of(digest: str) -> str:
    """Name the folder of kernels that were made of the same sources."""
    return f"fastmma-{digest}"


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
        key, inside = self._key(compiled_for, digest), _folder_of(digest)
        places = ((folder / inside / self._file(key), _owners(folder)) for folder in _folders() if not _refusal(folder, inside))
        return next((content for path, owners in places if (content := _read(path, key, owners)) is not None), None)

    def keep(self, compiled_for: Sequence[Any], content: Callable[[], bytes]) -> None:
        """Keep what `content` returns in the first folder that takes it, or warn."""
        problem = ""
        try:
            digest = self._digest(compiled_for)
            refused = self._keep(_folder_of(digest), self._key(compiled_for, digest), content())
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
        for folder in _folders():
            if refusal := _refusal(folder, inside):
                refused.append(f"{folder}: {refusal}")
                continue
            try:
                _write(folder / inside / self._file(key), _check(key, content) + content)
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


def _check(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()


def _read(path: Path, key: bytes, owners: tuple[int, ...] = ()) -> bytes | None:
    """Return what was kept under a key, where there is such a regular file, nobody else may write to it, and it is whole."""
    try:
        with open(handle(path, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > _LARGEST or name_other_writers(status, owners):
                return None
            read = file.read(_LARGEST)
    except (OSError, OperandError):
        return None
    check, content = read[:_CHECK_BYTES], read[_CHECK_BYTES:]
    return content if check == _check(key, content) else None


def _make_folder(path: Path) -> None:
    """Make a folder, and those that it lies in, that others cannot write to, whatever this process lets them do elsewhere."""
    for each in (*reversed(path.parents), path):
        if not each.exists():
            each.mkdir(0o755, exist_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    _make_folder(path.parent)
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        unfinished.touch(0o644, exist_ok=False)
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink()
        # Windows replaces no file that another process has open: it keeps the same kernel just now
        if not (isinstance(error, PermissionError) and error.filename2 and path.exists()):
            raise


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
    return [_described(folder) for folder in _folders()]


def _described(folder: Path) -> KernelFolder:
    present = set(map(_folder_of, sources.list_digests()))
    sizes = [(path.parent.name in present, path.stat().st_size) for path in folder.glob("fastmma-*/*.kernel")]
    own = [size for now, size in sizes if now]
    return KernelFolder(folder, len(own), sum(own), sum(size for _, size in sizes), _takes_files(folder), _refusal(folder, *present))


def _takes_files(folder: Path) -> bool:
    """Tell whether a file can be written there; the folder need not exist."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    try:
        with TemporaryFile(dir=there):
            return True
    except OSError:
        return False
