"""What the command line does when its output goes nowhere: full disks, readers that have ended, closed streams, narrow encodings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference.children import python

import fastmma
from fastmma import FastmmaError
from fastmma.cli import main

OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
# one of each way to print
COMMANDS = [["--help"], ["--version"], ["list"], ["list", "--json"], ["layout", OPCODE]]
FASTMMA = ("-m", "fastmma")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes and devices are those of POSIX")


def one_line(said: str) -> bool:
    return said.startswith("fastmma: ") and said.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = python(*FASTMMA, *command, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (2, "fastmma: the result cannot be written: No space left on device\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_has_ended(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = python(*FASTMMA, *command, stdout=write)
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


# what writes a file, and the name that it has
WRITERS = {
    "d.npy": ["gemm", "--random", "64x64x16"],
    "l.txt": ["layout", OPCODE],
    "l.csv": ["layout", OPCODE],
    "l.md": ["layout", OPCODE],
    "l.adoc": ["layout", OPCODE],
    "l.json": ["layout", OPCODE],
    "l.svg": ["layout", OPCODE],
    "l.png": ["layout", OPCODE],
    "f.json": ["layout", OPCODE, "--formula"],
    "t.svg": ["trace", OPCODE, "--d", "1,2"],
    "t.csv": ["trace", OPCODE, "--d", "1,2"],
}
STUDY = ["study", "--format", "e4m3", "--target", "sm_90a", *(f"--shape=4x4x{k}" for k in (32, 64, 96))]


# commands in one process that can write so many bytes to a file, and what they say
LIMITED = f"""
import contextlib, io, json, os, resource, sys
from fastmma.cli import main
with contextlib.redirect_stdout(io.StringIO()):  # compiles what it needs
    main({WRITERS["d.npy"]} if "d.npy" in sys.argv[2] else {STUDY})
sys.dont_write_bytecode = True  # of what is imported later: Python would keep a part of a module
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
for arguments in json.load(sys.stdin):
    print(json.dumps([main(arguments)]), flush=True)
    print("-", file=sys.stderr, flush=True)
"""


def limited(size: int, *commands: list[str]) -> list[str]:
    """What commands say when a file can have so many bytes."""
    done = python("-c", LIMITED, str(size), str(commands), input=json.dumps(commands))
    assert (done.returncode, done.stdout.split()) == (0, ["[2]"] * len(commands)), done.stderr
    assert done.stderr.count("\n") == 2 * len(commands)
    return done.stderr.splitlines()[::2]


def test_a_disk_that_fills_up_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib.font_manager")  # which keeps its list of fonts the first time, while there is room
    for before in (None, "precious"):
        if before is not None:
            for name in WRITERS:
                (tmp_path / name).write_text(before)
        said = limited(100, *([*WRITERS[name], "--output", str(tmp_path / name)] for name in WRITERS))
        assert said == [f"fastmma: {tmp_path / name}: cannot be written: File too large" for name in WRITERS]
        assert {each.name: each.read_text() for each in tmp_path.iterdir()} == ({} if before is None else dict.fromkeys(WRITERS, before))


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_cannot_be_made(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / name).mkdir()
    for place in (tmp_path / "none" / name, tmp_path / "file" / name, tmp_path / name, tmp_path / ("x" * 300 + name)):
        assert main([*WRITERS[name], "--output", str(place)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert one_line(printed.err)
        assert "cannot be written: " in printed.err
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["file", name])


@pytest.mark.parametrize("name", ["l.csv", "l.svg", "d.npy"])
def test_devices_are_no_files_to_replace(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    done = python(*FASTMMA, *WRITERS[name], "--output", str(tmp_path / name))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fastmma: {tmp_path / name}: cannot be written: No space left on device\n"
    assert (tmp_path / name).is_symlink()


@pytest.mark.parametrize("size", [0, 300, 600, 1500, 2500, 10_000])  # the last stops the first picture
def test_a_study_on_a_disk_that_fills_up_goes_on(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib.font_manager")  # which keeps its list of fonts the first time, while there is room
    full, whole = tmp_path / "full", tmp_path / "whole"
    (said,) = limited(size, [*STUDY, "--output", str(full)])
    assert said.startswith(f"fastmma: {full}")
    assert "File too large" in said or "No space left on device" in said
    for line in (full / "results.jsonl").read_bytes().splitlines(keepends=True):
        assert line.endswith(b"\n")
        json.loads(line)
    assert {each.name for each in full.iterdir()} <= {"results.jsonl", "results.csv"}
    monkeypatch.setattr("fastmma.study.pictures.save", lambda *_: [])
    for folder in (full, whole):
        assert main([*STUDY, "--output", str(folder)]) == 0
    for name in ("results.jsonl", "results.csv"):
        assert (full / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("width", [60, 80, 400])
def test_show_fits_the_terminal(width: int, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"COLUMNS": str(width), **({"FORCE_COLOR": "1", "TERM": "xterm"} if terminal else {})}.items():
        monkeypatch.setenv(name, value)
    assert main(["show", "mma.m16n8k16.f32.f16"]) == 0
    shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= width
    assert "CuTe SM80_16x8x16_F32F16F16F32_TN" in shown
    for fact in ("(lane % 4) * 2 + i % 2 + (i / 4) * 8", "L = 16, F = 25", "4 x 32 bits", "sm_120a"):
        assert fact in shown
    assert ("operand" in shown) == (width == 400)


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "list --families",
        "layout mma.m16n8k16.f32.f16",
        "layout wgmma.m64n256k16.f32.f16.f16 --operand d",
        "layout mma.m16n8k16.f32.f16 --operand all --formula",
        "layout mma.m16n8k16.f32.f16 --lane 5",
        "trace mma.m16n8k16.f32.f16 --d 4,5",
        "gpus",
        "evidence --arithmetic",
        "doctor --kernels",
        "doctor --route 16x4096x4096",
        "bench --size 32x32x32 --rounds 1 --peer none",
        "agree H100 H200 --layer 4096x4096 --rows 2-4",
        "gemm a.npy b.npy",
        "compare a.npy b.npy --target H100 --against A100",
        "explain a.npy b.npy --row 3 --col 5 --target H100 --against A100",
        "identify d.npy a.npy b.npy",
        "invariance 4096 14336 --target H200",
        "study --format e4m3 --target H100 --shape 16x16x64 --promote-every 0 --promote-every 32",
    ],
)
def test_nothing_is_wider_than_a_narrow_terminal(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (np.random.default_rng(seed).standard_normal((32, 32)).astype(np.float16) for seed in (0, 1))
    for name, values in {"a": a, "b": b, "d": fastmma.gemm(a, b, target="H100")}.items():
        np.save(f"{name}.npy", values)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(command.split()) in (0, 1, 3)
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if len(line) > 60] == []
