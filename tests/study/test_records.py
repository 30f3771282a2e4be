"""Records of studies on disk: resumed, shared, cut off, killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.studies import SMALL, check_files, lines

import fastmma
from fastmma import study
from fastmma.cli import main
from fastmma.study.distributions import generator
from fastmma.study.records import csv_text
from fastmma.study.tensors import digest_of


def test_a_study_is_written_and_not_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = study.run(SMALL, tmp_path)
    check_files(tmp_path, results)
    before = (tmp_path / "results.jsonl").read_bytes()
    monkeypatch.setattr("fastmma.study.runner.measure", None)
    assert study.run(SMALL, tmp_path) == results
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_what_a_record_says_of_itself() -> None:
    """The version, the arithmetic in full, what it stands on, and hashes of the operands and of the product."""
    case = study.Case("f16", "sm_90a", 4, 3, 64, arithmetic="align_bits=20")
    own, usual, ieee = study.run([case, replace(case, arithmetic=""), replace(case, arithmetic="", target=study.IEEE)])
    assert own["version"] == fastmma.__version__
    assert own["arithmetic_in_full"] == usual["arithmetic_in_full"].replace("align_bits=25", "align_bits=20") != usual["arithmetic_in_full"]
    known = fastmma.arithmetic(usual["instruction"], "sm_90a")
    assert f"terms={known.terms},align_bits={known.align_bits}," in usual["arithmetic_in_full"]
    assert usual["evidence_sources"] == [known.evidence.source, *map(str, known.evidence.sources)]
    assert usual["plan"][0] == "f16 x f16 on sm_90a"
    assert ieee["arithmetic_in_full"] == "method=ieee-f32"
    a, b = (generator(0, name).standard_normal(shape, dtype=np.float32) for name, shape in (("a", (4, 64)), ("b", (3, 64))))
    d = fastmma.gemm(a, b.T, target="sm_90a", cast=True, instruction=usual["instruction"])
    assert [usual[f"sha256_{name}"] for name in "abd"] == [digest_of(each) for each in (a, b, d)]
    assert usual["sha256_d"] != own["sha256_d"]


def test_a_folder_holds_more_than_one_study(tmp_path: Path) -> None:
    first = study.run(study.Case("e4m3", "sm_90a", 4, 4, 32), tmp_path)
    second = study.run(study.Case("e4m3", "sm_89", 4, 4, 32), tmp_path)
    check_files(tmp_path, [*first, *second])


def test_a_record_without_all_columns_is_computed_again(tmp_path: Path) -> None:
    results = study.run(SMALL, tmp_path)
    file = tmp_path / "results.jsonl"
    first, rest = file.read_bytes().split(b"\n", 1)
    file.write_bytes(json.dumps({name: value for name, value in json.loads(first).items() if name != "cosine"}).encode() + b"\n" + rest)
    assert study.run(SMALL, tmp_path) == results
    assert lines(tmp_path)[1:] == [*results[1:], results[0]]


def test_a_line_cut_off_is_computed_again(tmp_path: Path) -> None:
    results = study.run(SMALL, tmp_path)
    file = tmp_path / "results.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[:-40])
    (tmp_path / "results.csv").unlink()
    assert study.run(SMALL, tmp_path) == results
    assert file.read_bytes() == content
    check_files(tmp_path, results)


def test_what_is_no_record_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text('{"case": "x"}\nnot json\n')
    with pytest.raises(fastmma.FastmmaError, match="line 2 is no record"):
        study.run(SMALL, tmp_path)
    assert file.read_text() == '{"case": "x"}\nnot json\n'


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fastmma.FastmmaError, match="cannot write results there"):
        study.run(SMALL, tmp_path / "file")


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = study.run(SMALL)
    synced: list[int] = []

    def sync(file: int) -> None:
        synced.append(file)
        if len(synced) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", sync)
    with pytest.raises(fastmma.FastmmaError, match="cannot write results there: No space left"):
        study.run(SMALL, tmp_path)
    monkeypatch.undo()
    check_files(tmp_path, whole[:3])
    assert study.run(SMALL, tmp_path) == whole
    check_files(tmp_path, whole)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")

    def nested(*_: Any) -> None:
        study.run(SMALL, tmp_path)

    with pytest.raises(fastmma.FastmmaError, match="another study is writing"):
        study.run(SMALL, tmp_path, progress=nested)


def test_csv_of_awkward_values() -> None:
    text = csv_text([{"a": 'x, "y"', "b": [1], "c": None, "d": True}], ["a", "b", "c", "d"])
    assert list(csv.reader(text.splitlines())) == [["a", "b", "c", "d"], ['x, "y"', "[1]", "", "True"]]


LONG = ["study", "--format", "e4m3", "--format", "f16", "--target", "sm_90a", "--target", "ieee-f32"]
LONG += [word for k in range(32, 160, 32) for word in ("--shape", f"16x16x{k}")]


# the command, which stands still when its fourth record is being written
STOPPING = """
import os, signal, sys, time
from fastmma.cli import main, study
study.save = lambda *_: []
signal.signal(signal.SIGINT, signal.default_int_handler)
sync, calls = os.fsync, []
def fsync(file):
    calls.append(file)
    time.sleep(600 if len(calls) == 4 else 0)
    sync(file)
os.fsync = fsync
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
@pytest.mark.parametrize("kill", ["SIGKILL", "SIGINT"])
def test_a_killed_study_goes_on_where_it_was(kill: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastmma.study.pictures.save", lambda *_: [])
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*LONG, "--output", str(whole)]) == 0
    expected = lines(whole)
    command = [sys.executable, "-c", STOPPING, *LONG, "--output", str(broken)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    file = broken / "results.jsonl"
    while process.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") == 4):
        time.sleep(0.01)
    process.send_signal(signal.Signals[kill])
    _, said = process.communicate(timeout=60)
    assert lines(broken) == expected[:4]
    if kill == "SIGINT":
        assert process.returncode == 130
        last = said.splitlines()[-1]  # others say how far it was
        assert last == f"fastmma: interrupted; what was computed is in {file}; the same command goes on from there"
        check_files(broken, expected[:4])
    assert main([*LONG, "--output", str(broken)]) == 0
    check_files(broken, expected)
    for name in ("results.jsonl", "results.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


# files of tensors
