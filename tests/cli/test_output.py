"""What the command line does when its output goes nowhere: full disks, readers that have ended, closed streams, narrow encodings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastmma import FastmmaError
from fastmma.cli import main

OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
# one of each way to print
COMMANDS = [["--help"], ["--version"], ["list"], ["list", "--json"], ["list", "--markdown"], ["show", OPCODE], ["layout", OPCODE]]
FASTMMA = [sys.executable, "-m", "fastmma"]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes and devices are those of POSIX")


def one_line(said: str) -> bool:
    return said.startswith("fastmma: ") and said.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*FASTMMA, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "fastmma: the result cannot be written: No space left on device\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_has_ended(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*FASTMMA, *command], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", f'"$0" -m fastmma {line}', sys.executable]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def test_closed_streams() -> None:
    done = shell("list >&-")
    assert (done.returncode, one_line(done.stderr)) == (2, True)
    assert "standard output is closed" in done.stderr
    assert shell("show " + OPCODE + " 2>&-").returncode == 0
    for line in ("shew 2>&-", "shew 2>/dev/full", "list >&- 2>&-"):
        done = shell(line)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_characters_that_the_terminal_has_not() -> None:
    done = shell("--help", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


def stop_list_by(error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Status and message of a command that an error stops."""

    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr("fastmma.cli.listing.select", stop)
    status = main(["list"])
    printed = capsys.readouterr()
    assert printed.out == ""
    return status, printed.err


STOPS: list[tuple[BaseException, int, str]] = [
    (KeyboardInterrupt(), 130, "fastmma: interrupted\n"),
    (MemoryError(), 2, "fastmma: not enough memory\n"),
    (MemoryError("of 3 bytes"), 2, "fastmma: not enough memory: of 3 bytes\n"),
    (FastmmaError("a\n\x1b[31mb\u2028\udcffc"), 2, "fastmma: a \\x1b[31mb \\udcffc\n"),
    (PermissionError(13, "Permission denied", "x"), 2, "fastmma: x: Permission denied\n"),
    (OSError("unusual"), 2, "fastmma: the result cannot be written: unusual\n"),
]


@pytest.mark.parametrize(("error", "status", "said"), STOPS, ids=str)
def test_what_stops_a_command_is_one_line(
    error: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stop_list_by(error, monkeypatch, capsys) == (status, said)


def test_long_messages_are_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = stop_list_by(FastmmaError("a" * 10_000 + "z"), monkeypatch, capsys)
    assert status == 2
    assert len(said) < 2100
    assert said.endswith("az\n")


def test_mistakes_of_the_program_are_raised(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        stop_list_by(ZeroDivisionError(), monkeypatch, capsys)
