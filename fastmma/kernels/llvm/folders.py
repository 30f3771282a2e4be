"""Folders of compiled kernels: where they are, whom they are trusted by, and files that are whole and nobody else's."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from fastmma.host.errors import OperandError
from fastmma.host.files import handle
from fastmma.host.permissions import name_other_writers
from fastmma.kernels.llvm import settings, sources

LARGEST = 1 << 26  # bytes of a file; the largest kernel has less than 1 MiB
_CHECK_BYTES = 32  # at the start of a file: SHA-256 of the key and of what follows


def list_folders() -> list[Path]:
    """Return where kernels are looked for: where ``NUMBA_CACHE_DIR`` says, else beside their sources, then in the user's cache."""
    if named := settings.cache_folder():
        return [Path(named)]
    user = settings.user_cache()
    return [sources.KERNELS / "__pycache__", *([] if user is None else [user])]


def owners_of(folder: Path) -> tuple[int, ...]:
    """Who may own a folder beside this user and root: whoever owns the sources, of those beside them."""
    return (sources.KERNELS.stat().st_uid,) if folder.parent == sources.KERNELS else ()


def refusal(folder: Path, *inside: str) -> str:
    """Say why kernels of a folder, or of folders in it, are not trusted, which are code: somebody else may write there."""
    for path in (folder, *(folder / name for name in inside)):
        with suppress(OSError):  # it is not there yet, or cannot be read or written either
            found = name_other_writers(path.stat(), owners_of(folder))
            if found:
                return found
    return ""


def folder_of(digest: str) -> str:
    """Name the folder of kernels that were made of the same sources."""
    return f"fastmma-{digest}"


def _check(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()


def read(path: Path, key: bytes, owners: tuple[int, ...] = ()) -> bytes | None:
    """Return what was kept under a key, where there is such a regular file, nobody else may write to it, and it is whole."""
    try:
        with open(handle(path, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > LARGEST or name_other_writers(status, owners):
                return None
            found = file.read(LARGEST)
    except (OSError, OperandError):
        return None
    digest, content = found[:_CHECK_BYTES], found[_CHECK_BYTES:]
    return content if digest == _check(key, content) else None


def find(inside: str, name: str, key: bytes) -> bytes | None:
    """Return what was kept under a key in a file of this name, in the first folder that is trusted and has it."""
    places = ((folder / inside / name, owners_of(folder)) for folder in list_folders() if not refusal(folder, inside))
    return next((content for path, owners in places if (content := read(path, key, owners)) is not None), None)


def _make_folder(path: Path) -> None:
    """Make a folder, and those that it lies in, that others cannot write to, whatever this process lets them do elsewhere."""
    for each in (*reversed(path.parents), path):
        if not each.exists():
            each.mkdir(0o755, exist_ok=True)


def write(path: Path, key: bytes, content: bytes) -> None:
    """Keep something under a key in a file, which appears whole or not at all."""
    _make_folder(path.parent)
    unfinished = path.with_name(f"{path.name}.{os.urandom(16).hex()}")
    try:
        unfinished.touch(0o644, exist_ok=False)
        unfinished.write_bytes(_check(key, content) + content)
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink()
        # Windows replaces no file that another process has open: it keeps the same kernel just now
        if not (isinstance(error, PermissionError) and error.filename2 and path.exists()):
            raise
