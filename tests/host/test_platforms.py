"""What Windows and macOS lack or have instead, played on this machine."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from fastmma.host import float_mode
from fastmma.host.locks import lock
from fastmma.kernels.llvm import disk_cache, folders

# neither Windows nor, in part, macOS has these
PLAIN_SYSTEM = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "register_at_fork", "sysconf", "O_NONBLOCK", "fork"):
    delattr(os, name)
import numpy as np
import fastmma
from fastmma import study
from fastmma.cli import main
a = np.ones((200, 64), np.float16)
assert (fastmma.gemm(a, a.T, threads=2) == 64).all()
assert main(["list", "--target", "sm_75"]) == 0
grid = study.Grid(formats=("fp8_1x128",), targets=("sm_90a",), shapes=((16, 16, 128),), distributions=("normal",))
assert len(list(study.run(grid))) == 1
"""


def test_a_system_without_what_linux_has() -> None:
    subprocess.run([sys.executable, "-c", PLAIN_SYSTEM], check=True, capture_output=True, timeout=300)


class Locks(types.ModuleType):
    """msvcrt's locks: of bytes of a file, by whoever comes first."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.locked: set[tuple[int, int]] = set()

    def locking(self, handle: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        place = os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR)
        if place in self.locked:
            raise OSError(13, "Permission denied")
        self.locked.add(place)


def test_files_are_locked_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Locks())
    with (tmp_path / "a").open("ab", buffering=0) as first, (tmp_path / "a").open("ab", buffering=0) as second:
        first.write(b"begun")
        assert lock(first)
        assert not lock(second)
        first.write(b", ended")
    assert (tmp_path / "a").read_bytes() == b"begun, ended"


def test_files_are_locked_here(tmp_path: Path) -> None:
    with (tmp_path / "a").open("ab") as first, (tmp_path / "a").open("ab") as second:
        assert lock(first)
        assert not lock(second)
    with (tmp_path / "a").open("ab") as third:
        assert lock(third)


class ControlWord:
    """ucrtbase's ``_controlfp_s`` on a word of our own: what the mask names becomes new, and the whole word is told."""

    def __init__(self, word: int) -> None:
        self.word = word

    def _controlfp_s(self, current: Any, new: Any, mask: int) -> int:
        wanted = new.value if isinstance(new, ctypes.c_uint) else new
        self.word = self.word & ~mask | wanted & mask
        current._obj.value = self.word
        return 0


def test_the_mode_of_floats_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    flush_and_truncate, other = 0x01000000 | 0x00000300, 0x0008001F
    library = ControlWord(flush_and_truncate | other)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "PyDLL", {"ucrtbase": library}.__getitem__)
    monkeypatch.setattr(float_mode, "is_default", lambda: library.word == other)
    float_mode._control.cache_clear()
    try:
        assert float_mode.in_default_mode(lambda: library.word) == other
    finally:
        float_mode._control.cache_clear()
    assert library.word == flush_and_truncate | other


def test_kernels_that_another_process_reads_are_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuses(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Access is denied", str(self), None, str(target))

    files = disk_cache.KernelFiles(test_kernels_that_another_process_reads_are_left)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    files.keep(("first",), lambda: b"code")
    monkeypatch.setattr(Path, "replace", refuses)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files.keep(("first",), lambda: b"code")
    assert files.found(("first",)) == b"code"
    assert [path.suffix for path in tmp_path.rglob("*.*")] == [".kernel"]
    assert [(each.files, each.bytes, each.writable) for each in disk_cache.kernel_folders()] == [(1, 36, True)]


def test_kernels_of_a_python_without_gil_are_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = disk_cache.KernelFiles(test_kernels_of_a_python_without_gil_are_others)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "abiflags", "", raising=False)
    files.keep(("first",), lambda: b"code")
    assert files.found(("first",)) == b"code"
    monkeypatch.setattr(sys, "abiflags", "t", raising=False)
    assert files.found(("first",)) is None


@pytest.mark.parametrize(
    ("platform", "where"),
    [("darwin", "Library/Caches/numba"), ("linux", ".cache/numba"), ("win32", "AppData/numba/Cache")],
)
def test_the_users_cache(platform: str, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "AppData"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert where in folders.list_folders()[1].as_posix()
