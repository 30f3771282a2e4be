"""Files that are none, never end, or grow when they are read: every reader answers in one line, in little memory and time."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.children import python

pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="devices and limits are those of Linux")

STUDY = ["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x32"]
LIMIT = 3 << 29  # bytes of memory that a command may add to what it has when it starts
SECONDS = 60
# runs commands one after the other in one process, whose address space ends a little above what the first needed
RUNNER = f"""
import contextlib, io, json, resource, sys, time
from fastmma.cli import main
commands = json.load(sys.stdin)
with contextlib.redirect_stdout(io.StringIO()):
    main({STUDY})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {LIMIT}, used + {LIMIT}))
found = []
for arguments in commands:
    out, err = io.StringIO(), io.StringIO()
    start = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    found.append([status, out.getvalue(), err.getvalue(), time.monotonic() - start])
most = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss counts the parent
print(json.dumps([found, most]))
"""


def outcomes(commands: list[list[str]]) -> list[str]:
    """What commands that must be refused say: one line each, from a process with little memory."""
    done = python("-c", RUNNER, input=json.dumps(commands), timeout=10 * SECONDS)
    assert done.returncode == 0, done.stderr
    found, most = json.loads(done.stdout)
    for arguments, (status, out, err, seconds) in zip(commands, found, strict=True):
        assert (status, out, err.count("\n")) == (2, "", 1), (arguments, err)
        assert err.startswith("fastmma: ")
        assert seconds < SECONDS, arguments
    assert most < LIMIT
    return [err for _, _, err, _ in found]


def sparse(path: Path, head: bytes, size: int) -> None:
    """A file of any size, zero after its head, that takes no room on the disk."""
    path.write_bytes(head)
    os.truncate(path, size)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


# what can lie where a file is expected, and what is said of it
PLACES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda _: None, "no such file"),
    "a folder": (Path.mkdir, "is a folder"),
    "a pipe": (os.mkfifo, "is a pipe"),
    "a socket": (bound_socket, "is a device or a socket"),
    "zeros without end": (lambda path: path.symlink_to("/dev/zero"), "is a device or a socket"),
    "a terminal": (lambda path: path.symlink_to("/dev/tty"), "is a device or a socket"),
    "nowhere": (lambda path: path.symlink_to("/dev/null"), "is a device or a socket"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "symbolic links"),
    "a link to nothing": (lambda path: path.symlink_to("nothing at all"), "no such file"),
    "an empty file": (Path.touch, ""),
    "a terabyte of zeros": (lambda path: sparse(path, b"", 1 << 40), ""),
    "the kernel's memory": (lambda path: path.symlink_to("/proc/kcore"), ""),
    "a file that is longer than it says": (lambda path: path.symlink_to("/proc/self/maps"), ""),
}


def put(path: Path, place: str) -> None:
    make, _ = PLACES[place]
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    make(path)


def test_tensors_of_a_study(tmp_path: Path) -> None:
    cases = [(tmp_path / f"{number}{suffix}", place) for suffix in (".npy", ".npz", ".safetensors") for number, place in enumerate(PLACES)]
    for file, place in cases:
        put(file, place)
    said = outcomes([["study", "--format", "e4m3", "--target", "sm_90a", "--input", str(file)] for file, _ in cases])
    for (_, place), line in zip(cases, said, strict=True):
        assert PLACES[place][1] in line


def test_operands_of_gemm(tmp_path: Path) -> None:
    good, cases = tmp_path / "good.npy", [(tmp_path / str(number), place) for number, place in enumerate(PLACES)]
    np.save(good, np.ones((4, 4), np.float16))
    for file, place in cases:
        put(file, place)
    said = outcomes([["gemm", *first, str(file)] for first in ([str(good)], []) for file, _ in cases])
    for (_, place), line in zip(cases * 2, said, strict=True):
        assert PLACES[place][1] in line


def test_records_of_a_study(tmp_path: Path) -> None:
    """No file and an empty one are the beginning of a study, and so is a link to where nothing is yet; the table is made anew."""
    beginning = ("nothing", "an empty file", "a link to nothing", "the kernel's memory")
    replaced = ("a terabyte of zeros", "a file that is longer than it says")
    commands = []
    for number, place in enumerate(PLACES):
        for name in ("results.jsonl", "results.csv"):
            if place in beginning or (place in replaced and name == "results.csv"):
                continue
            folder = tmp_path / f"{name} {number}"
            folder.mkdir()
            put(folder / name, place)
            commands.append([*STUDY, "--output", str(folder)])
    outcomes(commands)


def test_recordings(tmp_path: Path) -> None:
    about = {"gpu": "", "driver": "", "target": "sm_90a", "seed": 0, "files": {"mma.npz": {"sha256": "", "trials": {}}}}
    commands = []
    for number, place in enumerate(PLACES):
        for name in ("manifest.json", "mma.npz"):
            folder = tmp_path / f"{name} {number}" / "sm_90a"
            folder.mkdir(parents=True)
            (folder / "manifest.json").write_text(json.dumps(about))
            put(folder / name, place)
            commands.append(["verify", "--folder", str(folder.parent)])
    outcomes(commands)


def huge_array(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


def inflating(head: bytes, zeros: int) -> bytes:
    """An archive with one deflated array, of a head and then zeros, in little room: blocks of zeros deflate to the same bytes."""
    block = bytes(1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = deflate.compress(head) + deflate.flush(zlib.Z_FULL_FLUSH)
    piece = deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)
    data = start + piece * (zeros >> 20) + deflate.flush()
    checksum = zlib.crc32(head)
    for _ in range(zeros >> 20):
        checksum = zlib.crc32(block, checksum)
    return one_member(data, len(head) + zeros, checksum)


def one_member(data: bytes, size: int, checksum: int) -> bytes:
    """An archive of one deflated member, whatever that claims, with sizes of 64 bits."""
    sizes = struct.pack("<HHQQ", 1, 16, size, len(data))
    common = struct.pack("<HHHHHLLL", 45, 0, 8, 0, 0, checksum, 0xFFFFFFFF, 0xFFFFFFFF)
    local = b"PK\3\4" + common + struct.pack("<HH", 5, len(sizes)) + b"a.npy" + sizes
    listed = b"PK\1\2" + struct.pack("<H", 45) + common + struct.pack("<HHHHHLL", 5, len(sizes), 0, 0, 0, 0, 0) + b"a.npy" + sizes
    end = b"PK\5\6" + struct.pack("<HHHHLLH", 0, 0, 1, 1, len(listed), len(local) + len(data), 0)
    return local + data + listed + end


def test_bombs(tmp_path: Path) -> None:
    """Files that are small, or take no room, and claim or hold more than there is memory."""
    terabyte = huge_array(f"({1 << 20}, {1 << 18})")
    sparse(tmp_path / "terabyte.npy", terabyte, len(terabyte) + (1 << 40))
    gigabytes = huge_array(f"({1 << 14}, {1 << 15})")
    sparse(tmp_path / "gigabytes.npy", gigabytes, len(gigabytes) + (2 << 30))
    (tmp_path / "inflates.npz").write_bytes(inflating(gigabytes, 2 << 30))
    assert (tmp_path / "inflates.npz").stat().st_size < 4 << 20
    (tmp_path / "claims.npz").write_bytes(one_member(zlib.compress(terabyte + bytes(1 << 14))[2:-4], len(terabyte) + (1 << 40), 0))
    # a list of members of two gigabytes, at the end of a file of which nothing else is true
    end = b"PK\5\6" + struct.pack("<HHHHLLH", 0, 0, 65535, 65535, 2 << 30, 0, 0)
    sparse(tmp_path / "list.npz", b"PK\3\4", 2 << 30)
    with (tmp_path / "list.npz").open("ab") as file:
        file.write(end)
    for name, size in (("gigabytes", 2 << 30), ("terabyte", 1 << 40)):
        header = json.dumps({"t": {"dtype": "F32", "shape": [1 << 10, size >> 12], "data_offsets": [0, size]}}).encode()
        head = len(header).to_bytes(8, "little") + header
        sparse(tmp_path / f"{name}.safetensors", head, len(head) + size)
    for name, header in (("objects", b'{"":0},' * (4 << 20)), ("lists", b"[]," * (10 << 20)), ("deep", b"[" * (30 << 20))):
        (tmp_path / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    files = sorted(tmp_path.iterdir())
    commands = [["study", "--format", "e4m3", "--target", "sm_90a", "--input", str(file)] for file in files]
    said = dict(zip((file.name for file in files), outcomes(commands), strict=True))
    for name in ("terabyte.npy", "claims.npz"):
        assert "takes 1,024 GiB of memory, and at most" in said[name]
    for name in ("gigabytes.npy", "inflates.npz", "gigabytes.safetensors", "terabyte.safetensors"):
        assert "memory" in said[name]
    assert "its list of arrays has 2 GiB" in said["list.npz"]
    operands = [["gemm", str(file), str(file)] for file in files if file.suffix == ".npy"] + [
        ["gemm", str(file)] for file in files if file.suffix == ".npz"
    ]
    outcomes(operands)


def test_bombs_of_json(tmp_path: Path) -> None:
    commands = []
    for number, content in enumerate(
        (b"[" * (16 << 20), b"[]," * (5 << 20), b'{"a":' * (3 << 20), b'"' + b"\\u0000" * (2 << 20), b" " * (17 << 20))
    ):
        folder = tmp_path / str(number)
        (folder / "sm_90a").mkdir(parents=True)
        (folder / "sm_90a" / "manifest.json").write_bytes(content)
        (folder / "results.jsonl").write_bytes(content + b"\n")
        commands.append(["verify", "--folder", str(folder)])
        commands.append([*STUDY, "--output", str(folder)])
    outcomes(commands)
