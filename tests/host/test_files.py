"""Files read within bounds and written whole, JSON taken at its word, and the memory that an array may take."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from fastmma.host import memory
from fastmma.host.errors import OperandError, OutOfMemoryError
from fastmma.host.files import content, filled, make_folder, opened, write_text, written
from fastmma.host.memory import array_bound, check_fits
from fastmma.host.strict_json import parsed

posix = pytest.mark.skipif(os.name == "nt", reason="modes and links are those of POSIX")


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with written(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


STOPS = [(ValueError(), ValueError), (KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "full"), OperandError)]


@pytest.mark.parametrize(("error", "kind"), STOPS)
@pytest.mark.parametrize("before", [None, b"old"])
def test_what_stops_it_leaves_what_was_there(before: bytes | None, error: BaseException, kind: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "x"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(kind), written(path) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(OperandError, match="x: cannot be written: No space left on device"), written(tmp_path / "x"):
        raise OSError(28, "No space left on device")


@posix
def test_modes_and_links_are_kept(tmp_path: Path) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to("x")
    write_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@posix
def test_devices_are_written_to(tmp_path: Path) -> None:
    before = os.stat("/dev/null").st_rdev
    write_text(Path("/dev/null"), "x")
    (tmp_path / "link").symlink_to("/dev/null")
    write_text(tmp_path / "link", "x")
    assert os.stat("/dev/null").st_rdev == before
    with pytest.raises(OperandError, match="cannot be written: Is a directory"):
        write_text(tmp_path, "x")


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may do everything")
def test_what_is_not_permitted(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(OperandError, match="cannot be written: Permission denied"):
        write_text(path, "new")
    path.chmod(0)
    with pytest.raises(OperandError, match="cannot be read: Permission denied"):
        content(path, 10)
    tmp_path.chmod(0o555)
    with pytest.raises(OperandError, match="cannot be written: Permission denied"):
        write_text(tmp_path / "y", "new")


@pytest.mark.parametrize("name", ["a\0b", chr(0xD800), "x" * 300])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    for call in (lambda path: write_text(path, ""), lambda path: content(path, 1), make_folder):
        with pytest.raises(OperandError):
            call(tmp_path / name)


def test_folders_where_there_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(OperandError, match="no folder can be made there: "):
        make_folder(tmp_path / "x" / "y")


def test_text_that_utf8_has_not(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "\N{EURO SIGN}\udcff")
    assert (tmp_path / "x").read_text("utf-8") == "\N{EURO SIGN}\\udcff"


def test_the_bound_is_said(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(11))
    assert content(tmp_path / "x", 11) == bytes(11)
    with pytest.raises(OperandError, match="x: has 11 bytes, and of such files no more than 10 bytes are read"):
        content(tmp_path / "x", 10)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(1000))
    with pytest.raises(OperandError, match="was changed while it was read"), opened(path), path.open("ab") as other:
        other.write(b"more")
    with pytest.raises(OperandError, match="ends after 10 bytes of 1,004 bytes"), opened(path) as file:  # noqa: PT012
        os.truncate(path, 10)
        filled(file, 1004, "x")
    with opened(path) as file:
        path.unlink()
        assert filled(file, 10, "x").tobytes() == bytes(10)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e400",
        b"-1e400",
        b'{"a": 1, "b": 2, "a": 3}',
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"\xff",
        b"\xef\xbb\xbf1",
        b"9" * 5000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        '{"a": 1}'.encode("utf-16"),
        b"1 2",
        b"'a'",
        b"[1,]",
        b'"\x01"',
    ],
)
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as found:
        parsed(text)
    assert isinstance(found.value, ValueError)


def test_what_is_json() -> None:
    text = '{"a": [1, -2.5, 1e300, true, null, "\\ud83d\\ude00"], "": {}}'
    assert parsed(text.encode()) == {"a": [1, -2.5, 1e300, True, None, "\U0001f600"], "": {}}


def test_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert 1 << 28 < array_bound() < 1 << 50
    check_fits(array_bound(), "x")
    with pytest.raises(OutOfMemoryError, match=r"^x takes .* of memory, and at most .*, half of what this machine has, may be taken$"):
        check_fits(array_bound() + 1, "x")
    limit = tmp_path / "limit"
    monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "none", limit))
    for text, bound in (("1048576\n", 1 << 19), ("max\n", array_bound())):
        limit.write_text(text)
        array_bound.cache_clear()
        assert array_bound() == bound
    monkeypatch.undo()
    array_bound.cache_clear()
    assert np.ones(3).nbytes < array_bound()
