"""Versions of Numba: those that `pyproject.toml` allows were tested, and a newer one is warned of and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import fastmma
from fastmma.host.versions import TESTED, check_version

ROOT = Path(__file__).parents[2]
NEWER = """
import numba
numba.__version__ = "0.69.0rc1"
import numpy as np
import fastmma
a = np.arange(4.0)[:, None] * np.ones((4, 4))
print(fastmma.gemm(a, a.T, target="A100").astype(int).tolist())
print(fastmma.gemm(a, a, target="A100", threads=1).sum().astype(int))
"""


def test_tested_versions_are_those_that_are_allowed() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for library, ((*first, least), (*last, most)) in TESTED.items():
        allowed = next(each for each in needed if re.match(rf"{library}\b", each))
        lowest, highest = (".".join(map(str, (*major, minor))) for major, minor in ((first, least), (last, most + 1)))
        assert allowed == f"{library}>={lowest},<{highest}"


@pytest.mark.parametrize("version", ["0.61.0", "0.68.1", "0.68.99", "0.68"])
def test_tested_versions_are_taken_silently(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version("numba", version)


@pytest.mark.parametrize("version", ["0.69.0", "0.69.0dev0+12.gabc", "0.100", "1.0.0rc1", "1"])
def test_newer_versions_are_warned_of(version: str) -> None:
    with pytest.warns(fastmma.VersionWarning, match=rf"^numba {re.escape(version)} is newer than 0\.68, the last version"):
        check_version("numba", version)


def test_a_newer_numba_computes_and_warns_once() -> None:
    done = subprocess.run([sys.executable, "-c", NEWER], capture_output=True, text=True, cwd=ROOT, env=os.environ, check=False)
    assert (done.returncode, done.stdout) == (0, "[[0, 0, 0, 0], [0, 4, 8, 12], [0, 8, 16, 24], [0, 12, 24, 36]]\n144\n"), done.stderr
    assert done.stderr.count("VersionWarning: numba 0.69.0rc1 is newer than 0.68") == 1
