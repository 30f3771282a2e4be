"""Compiled kernels are found on the disk again; whatever is wrong there, they are compiled."""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import CacheWarning
from fastmma.host import permissions
from fastmma.kernels.llvm import disk_cache, folders, numba_kernels, sources
from fastmma.kernels.llvm.compilation import compiled, inner, separate

PACKAGE = Path(fastmma.__file__).parent
NO_FOLDER = "/dev/null/kernels"
SCRIPT = """
import numpy as np, fastmma
b = fastmma.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").operands["b"]
registers = np.arange(32 * b.registers, dtype=np.uint32).reshape(32, b.registers) * np.uint32(0x9E3779B1)
codes = fastmma.gather(registers, b)
print((fastmma.scatter(codes, b) == registers).all(), codes[:2].tolist())
"""
VALUES = np.arange(5.0)
GONE = b"cfastmma.gone\nGone\n."  # a pickle of what no module holds


def total() -> Any:
    """A kernel, as a new process has it: not compiled yet."""

    @compiled
    def total(values: Any) -> Any:
        result = values[0]
        for value in values[1:]:
            result += value
        return result

    return total


def is_found(values: Any = VALUES) -> bool:
    """Whether a new process finds the kernel on the disk; what it computes is right either way."""
    kernel = total()
    assert kernel(values) == values.sum()
    found, missed = (sum(counted.values()) for counted in (kernel.dispatcher.stats.cache_hits, kernel.dispatcher.stats.cache_misses))
    assert found + missed == 1
    return bool(found)


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kernel"))


def test_what_only_kernels_call_has_no_code_of_its_own(folder: Path) -> None:
    first = total()

    @separate
    def last(values: Any) -> Any:
        return values[len(values) - 1]

    @inner
    def both(values: Any) -> Any:
        return first(values), last(values)

    @compiled
    def ends(values: Any) -> Any:
        return both(values)

    @compiled
    def ends_of_rest(values: Any) -> Any:
        return both(values[1:])

    assert ends(VALUES) == (VALUES.sum(), VALUES[-1])
    assert ends_of_rest(VALUES) == (VALUES.sum(), VALUES[-1])
    assert not first.dispatcher.overloads
    assert len(kept(folder)) == 2
    (result,) = both.jitted.overloads.values()
    assert result.library.get_pointer_to_function(result.fndesc.llvm_func_name) == 0
    assert first(VALUES) == VALUES.sum()
    assert len(first.dispatcher.overloads) == 1


def test_a_kernel_is_kept_for_each_signature(folder: Path) -> None:
    assert not is_found()
    assert is_found()
    assert not is_found(np.arange(5))
    assert is_found(np.arange(5))
    assert is_found()
    assert len(kept(folder)) == 2


def another_signature(path: Path) -> None:
    is_found(np.arange(5))
    [other] = set(kept(path.parents[1])) - {path}
    other.replace(path)


def special(path: Path, kind: str) -> None:
    """Put a pipe, or a link to one or to a device, in the place of a file."""
    path.unlink()
    pipe = path.with_name("pipe") if "link" in kind else path
    if "pipe" in kind:
        os.mkfifo(pipe)
    if "link" in kind:
        path.symlink_to("/dev/zero" if "device" in kind else pipe)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "one byte": lambda content: content[:1],
    "only the check": lambda content: content[:32],
    "half": lambda content: content[: len(content) // 2],
    "all but the last byte": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "zeros at the end": lambda content: content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
    "garbage": lambda content: random.Random(0).randbytes(len(content)),
    "text": lambda _: b"not a kernel\n" * 100,
    "a pickle": lambda _: pickle.dumps({"version": 1}),
    "another program's pickle of a class": lambda _: GONE,
}
PLACES: dict[str, Callable[[Path], None]] = {"a kernel of another signature": another_signature}
if os.name != "nt":  # which has neither such files nor such permissions
    PLACES |= {kind: partial(special, kind=kind) for kind in ("a pipe", "a link to a pipe", "a link to a device")}
    PLACES["a file that others may write"] = lambda path: path.chmod(0o666)


@pytest.mark.parametrize("damage", [*DAMAGES, *PLACES])
def test_a_damaged_file_is_a_miss_at_once_and_is_replaced(folder: Path, damage: str) -> None:
    """A pipe would be waited for, and an endless device be read."""
    is_found()
    [path] = kept(folder)
    if damage in PLACES:
        PLACES[damage](path)
    else:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert not is_found()
    assert is_found()
    assert kept(folder) == [path]
    assert stat.S_ISREG(path.lstat().st_mode)
    assert path.lstat().st_mode & 0o022 == 0


def test_a_flipped_bit_is_a_miss_wherever_it_is(folder: Path) -> None:
    is_found()
    [path] = kept(folder)
    whole = path.read_bytes()
    key = b"another key"
    assert folders.read(path, key) is None
    folders.write(path, key, whole)
    assert folders.read(path, key) == whole
    checked = path.read_bytes()
    for place in (*range(64), *random.Random(1).sample(range(len(checked)), 200)):
        path.write_bytes(checked[:place] + bytes([checked[place] ^ 1 << place % 8]) + checked[place + 1 :])
        assert folders.read(path, key) is None


@pytest.mark.parametrize("content", [pickle.dumps(None), pickle.dumps((1, 2)), b"no pickle", GONE])
@pytest.mark.usefixtures("folder")
def test_a_whole_file_that_holds_no_kernel_is_a_miss(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(numba_kernels, "dump_kernel", lambda _: content)
        assert not is_found()
    assert not is_found()
    assert is_found()


@pytest.mark.usefixtures("folder")
def test_kernels_of_other_sources_and_versions_are_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    is_found()
    changes: dict[str, Any] = {
        "disk_cache.sources.digest_of": lambda _: "0" * 16,
        "numba_kernels.numba.__version__": "0.1",
        "disk_cache.llvmlite.__version__": "0.1",
    }
    for name, value in changes.items():
        with monkeypatch.context() as patch:
            patch.setattr(f"fastmma.kernels.llvm.{name}", value)
            assert not is_found()
            assert is_found()
    assert is_found()


@pytest.mark.usefixtures("folder")
def test_no_folder_that_can_be_written_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", NO_FOLDER)
    with pytest.warns(CacheWarning, match=f"cannot be kept.*{NO_FOLDER}: Not a directory.*NUMBA_CACHE_DIR"):
        assert not is_found()
    assert not is_found()  # in silence, as any warning is an error here
    assert not is_found(np.arange(5))


def test_sources_that_cannot_be_read_are_said_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "KERNELS", tmp_path / "kernels.zip" / "kernels")
    sources._read.cache_clear()
    sources._digest.cache_clear()
    with pytest.warns(CacheWarning, match="no source of .* is in"):
        assert not is_found()
    assert not is_found()
    assert kept(folder) == []


def test_a_full_disk_leaves_nothing_unfinished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:1000])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.warns(CacheWarning, match=os.strerror(errno.ENOSPC)):
            assert not is_found()
    assert kept(folder) == []
    assert not is_found()
    assert is_found()


def test_ctrl_c_leaves_nothing_unfinished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, _content: bytes) -> None:
        path.touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(KeyboardInterrupt):
            is_found()
    assert kept(folder) == []


def test_a_file_that_cannot_be_replaced_is_said_once(folder: Path) -> None:
    is_found()
    [path] = kept(folder)
    path.unlink()
    path.mkdir()
    with pytest.warns(CacheWarning, match="Is a directory|denied"):
        assert not is_found()
    assert not is_found()
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_too_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_found()
    [path] = kept(folder)
    monkeypatch.setattr(folders, "LARGEST", path.stat().st_size)
    assert is_found()
    monkeypatch.setattr(folders, "LARGEST", path.stat().st_size - 1)
    assert not is_found()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such permissions")
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize(
    ("mode", "refusal"),
    [(0o777, "everybody may write to it"), (0o702, "everybody may write to it"), (0o770, "group 54321 may write to it")],
)
def test_a_folder_that_others_may_write_is_refused(
    folder: Path, mode: int, refusal: str, below: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels in it are not loaded, which are code, and none is kept there; the call is right, and one warning says so."""
    is_found()
    [path] = kept(folder)
    exposed = path.parent if below else folder
    monkeypatch.setattr(permissions, "_is_own_group", lambda group: group != exposed.stat().st_gid)
    refusal = refusal.replace("54321", str(exposed.stat().st_gid))
    exposed.chmod(mode)
    with pytest.warns(CacheWarning, match=f"cannot be kept.*{folder}: {refusal}.*NUMBA_CACHE_DIR"):
        assert not is_found()
    assert not is_found(np.arange(5))  # in silence, as any warning is an error here
    assert kept(folder) == [path]
    [described] = disk_cache.kernel_folders()
    assert described.refusal == refusal
    exposed.chmod(0o755)
    assert is_found()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such permissions")
def test_a_folder_or_a_file_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this user is root; what belongs to root is trusted."""
    is_found()
    [path] = kept(folder)
    owner = folder.stat().st_uid
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: owner + 1000)
        assert permissions.name_other_writers(path.stat()) == ("" if owner == 0 else f"it belongs to user {owner}")
        assert permissions.name_other_writers(path.stat(), (owner,)) == ""
    if os.geteuid() != 0:
        return
    for each in (folder, path.parent):
        os.chown(each, 4321, 0)
        with monkeypatch.context() as patch:
            patch.setattr(disk_cache, "_warned", threading.Lock())
            with pytest.warns(CacheWarning, match=f"{folder}: it belongs to user 4321"):
                assert not is_found()
        os.chown(each, 0, 0)
    assert is_found()
    os.chown(path, 4321, 0)
    assert not is_found()  # and it is replaced
    assert is_found()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such permissions")
def test_folders_that_are_usual_are_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One where others cannot replace what is not theirs, such as /tmp; one of the user's own group; one that was made without a umask."""
    folder.mkdir(mode=0o700)
    folder.chmod(0o1777)
    assert not is_found()
    assert is_found()
    folder.chmod(0o775)
    monkeypatch.setattr(permissions, "_is_own_group", lambda group: group == folder.stat().st_gid)
    assert is_found()
    before = os.umask(0)
    try:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder / "new" / "kernels"))
        assert not is_found()
    finally:
        os.umask(before)
    assert is_found()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such permissions")
def test_the_users_own_group_has_no_other_members(monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd

    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann"))
    for number, name, members, own in (
        *((1000, "ann", [], True), (1000, "ann", ["ann"], True), (1000, "ann", ["bob"], False)),
        *((100, "users", [], False), (0, "root", [], True), (0, "wheel", ["root"], True), (0, "wheel", ["root", "bob"], False)),
    ):
        monkeypatch.setattr(grp, "getgrgid", lambda _, name=name, members=members: SimpleNamespace(gr_name=name, gr_mem=members))
        assert permissions._is_own_group(number) == own
    monkeypatch.setattr(grp, "getgrgid", {}.__getitem__)
    assert not permissions._is_own_group(1000)  # a group without a name


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such permissions")
@pytest.mark.usefixtures("folder")
def test_a_refused_folder_is_said_also_where_another_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    first.chmod(0o777)
    monkeypatch.setattr(folders, "list_folders", lambda: [first, second])
    with pytest.warns(CacheWarning, match=f"neither read from this folder nor kept there: {first}: everybody"):
        assert not is_found()
    assert is_found()
    assert kept(first) == []


@pytest.mark.usefixtures("folder")
def test_the_second_folder_serves_where_the_first_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "list_folders", lambda: [Path(NO_FOLDER), tmp_path / "second"])
    assert not is_found()
    assert is_found()
    monkeypatch.setattr(folders, "list_folders", lambda: [tmp_path / "second", tmp_path / "third"])
    assert is_found()
    assert len(kept(tmp_path / "second")) == 1


def test_folders_without_numba_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    beside, *user = folders.list_folders()
    assert beside == PACKAGE / "kernels" / "__pycache__"
    assert len(user) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", "~/nobody")  # what Python makes of ~ for a user without a home
    if sys.platform == "linux":
        assert folders.list_folders() == [beside]


def test_kernels_that_hold_addresses_are_not_kept(folder: Path) -> None:
    class Result:
        class library:  # noqa: N801
            has_dynamic_globals = True

    with pytest.warns(CacheWarning, match="holds addresses"):
        numba_kernels.DiskCache(test_kernels_that_hold_addresses_are_not_kept).save_overload((), Result)
    assert kept(folder) == []


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path, key = tmp_path / "kernel", b"key"
    contents = {bytes([byte]) * 300_000 for byte in range(4)}
    writers = [threading.Thread(target=lambda: [folders.write(path, key, each) for each in [*contents] * 10]) for _ in range(3)]
    for writer in writers:
        writer.start()
    seen = [folders.read(path, key) for _ in range(300)]
    for writer in writers:
        writer.join()
    assert set(seen) - {None} <= contents
    assert folders.read(path, key) in contents
    assert list(tmp_path.iterdir()) == [path]


def python(script: str, root: Path = PACKAGE.parent, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "always", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(root), **environment}
    return subprocess.Popen(command, env=environment, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def expected() -> str:
    status, out, err = outcome(python(SCRIPT))
    assert (status, err) == (0, "")
    return out


def copied(folder: Path) -> Path:
    """A folder with a copy of the package that no kernel was compiled of."""
    shutil.copytree(PACKAGE, folder / "fastmma", ignore=shutil.ignore_patterns("__pycache__", "golden"))
    return folder


@pytest.mark.parametrize(("changed", "again"), [("llvm/compilation.py", 3), ("matrices/permutation.py", 1), ("integer/panels.py", 0)])
def test_kernels_are_compiled_anew_where_a_source_of_theirs_changes(changed: str, again: int, tmp_path: Path, expected: str) -> None:
    root, folder = copied(tmp_path), str(tmp_path / "kernels")
    assert outcome(python(SCRIPT, root, NUMBA_CACHE_DIR=folder)) == (0, expected, "")
    assert len(kept(Path(folder))) == 3
    source = root / "fastmma" / "kernels" / changed
    source.write_text(source.read_text() + "\n")
    for _ in range(2 if again == 1 else 1):  # what is compiled anew is kept
        assert outcome(python(SCRIPT, root, NUMBA_CACHE_DIR=folder)) == (0, expected, "")
        assert len(kept(Path(folder))) == 3 + again


def test_a_home_and_a_package_that_are_read_only(tmp_path: Path, expected: str) -> None:
    root = copied(tmp_path)
    (root / "fastmma" / "kernels" / "__pycache__").touch()  # a file, so that no folder can be made there, even by root
    status, out, err = outcome(python(SCRIPT, root, NUMBA_CACHE_DIR="", HOME="/dev/null", XDG_CACHE_HOME=NO_FOLDER))
    assert (status, out) == (0, expected)
    assert err.count("CacheWarning: compiled kernels cannot be kept") == 1
    assert "Traceback" not in err


def test_kernels_are_kept_beside_their_sources(tmp_path: Path, expected: str) -> None:
    root = copied(tmp_path)
    assert outcome(python(SCRIPT, root, NUMBA_CACHE_DIR="", HOME="/dev/null", XDG_CACHE_HOME=NO_FOLDER)) == (0, expected, "")
    first = [path for path in kept(root / "fastmma" / "kernels" / "__pycache__") if path.suffix == ".kernel"]
    assert first
    assert outcome(python(SCRIPT, root, NUMBA_CACHE_DIR="", HOME="/dev/null", XDG_CACHE_HOME=NO_FOLDER)) == (0, expected, "")


def test_processes_that_start_at_once_share_a_folder(tmp_path: Path, expected: str) -> None:
    for processes in (3, 1):
        running = [python(SCRIPT, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(processes)]
        assert [outcome(process) for process in running] == [(0, expected, "")] * processes
        assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".kernel", ".cpu"}


def test_the_command_line_says_it_in_one_line() -> None:
    command = [sys.executable, "-m", "fastmma", "gemm", "--random", "4x4x4", "--type", "s8"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": NO_FOLDER}
    done = subprocess.run(command, env=environment, cwd=PACKAGE.parent, text=True, capture_output=True, check=True)
    assert done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith("fastmma: compiled kernels cannot be kept")
