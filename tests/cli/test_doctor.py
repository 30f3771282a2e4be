"""fastmma doctor: what it prints is true of this machine, and problems are said, not raised."""

from __future__ import annotations

import json
import platform

import numpy as np
import pytest

import fastmma
from fastmma.cli import main
from fastmma.verification import machine


def test_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    lines = {line.split()[0]: line for line in printed.splitlines() if line[:1].strip()}
    assert fastmma.__version__ in lines["fastmma"]
    assert platform.python_version() in lines["python"]
    assert f"numpy {np.__version__}" in printed
    assert "FASTMMA_STRICT=1" in printed
    assert lines["check"].rstrip().endswith(": right")


def test_json_with_problems(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_NUM_THREADS", "many")
    monkeypatch.setattr(machine, "gemm", lambda *_, backend="numba", **__: np.float32(backend == "numba"))
    monkeypatch.setattr(machine, "installed", lambda name: {"jax": "0.10"}.get(name))
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["system"]["threads"]["problem"].startswith("FASTMMA_NUM_THREADS must be an integer")
    assert found["libraries"]["jax"] == {"jax": "0.10", "jaxlib": None}
    assert found["check"]["right"] is False
    assert found["environment"]["FASTMMA_NUM_THREADS"] == "many"
    assert [folder for folder in found["cache"] if folder["writable"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kernels", "--route", "2x2x2"), "--kernels prints the table of kernels"),
        (("--kernels", "--type", "f16"), "--type belongs to --route MxNxK: give both"),
        (("--instruction", "m16n8k16", "--target", "A100"), "--instruction and --target belong to --route"),
        (("--target", "H100"), "--target belongs to --route"),
        (("--route", "2x2x2", "--markdown"), "--markdown is for the table of kernels"),
        (("--markdown",), "give it with --kernels"),
    ],
)
def test_options_that_nothing_would_read(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *options]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert said in " ".join(printed.err.replace("\u2502", " ").split())
