"""`fastmma warm`: what it compiles, later processes find; and what a terminal is told of a long first call."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fastmma.cli import main
from fastmma.verification.warm import calls

IMPATIENT = """
import fastmma.host.notice
fastmma.host.notice._PATIENCE = 0.0
"""
PRODUCT = """
import sys, numpy as np, fastmma
from fastmma.kernels.llvm.disk_cache import kernel_folders
a = np.ones((264, 256), sys.argv[1])
assert fastmma.gemm(a, a.T, target="sm_80", threads=1)[1, 1] == 256
print(kernel_folders()[0].files)
"""


def printed(*arguments: str, folder: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True).stdout


def test_what_is_compiled_ahead_is_found(tmp_path: Path) -> None:
    said = printed("-m", "fastmma", "warm", "--target", "sm_80", "--format", "s8", "--jobs", "2", folder=tmp_path)
    kept = sorted(tmp_path.rglob("*.kernel"))
    assert said.startswith(f"{len(kept)} kernels, ")
    assert str(tmp_path) in said
    assert printed("-c", PRODUCT, "int8", folder=tmp_path).split() == [str(len(kept))]
    assert sorted(tmp_path.rglob("*.kernel")) == kept


def test_every_kind_of_call_is_there() -> None:
    found = calls(["sm_90a", "sm_120a"])
    assert len(set(found)) == len(found)
    assert {call.kind for call in found if call.target == "sm_90a"} == {"large", "small", "tiles", "scaled", "finished"}
    assert {call.name for call in found if call.kind == "large" and call.target == "sm_120a"} >= {"f16", "e2m1", "s8", "b1", "f64"}


def test_a_format_without_products_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", "--target", "sm_70", "--format", "e4m3"]) == 2
    assert "the targets have no products of e4m3; they have f16" in capsys.readouterr().err


def test_a_terminal_is_told_of_a_long_first_call_once(tmp_path: Path) -> None:
    terminal, other = pty.openpty()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for lines in (1, 0):
        program = [sys.executable, "-c", IMPATIENT + PRODUCT, "float16"]
        subprocess.run(program, env=environment, stderr=other, stdout=subprocess.DEVNULL, check=True)
        os.write(other, b"end\n")
        told = b""
        while b"end" not in told:
            told += os.read(terminal, 4096)
        assert told.count(b"fastmma compiles kernels once") == lines
        assert told.count(b"\n") == lines + 1
    os.close(terminal)
    os.close(other)
