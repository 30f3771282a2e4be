"""Damaged and lying records of studies: a study goes on from those that are whole, or is refused and changes nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from reference.hostile import JUNK, TOKENS, mutated, retyped, seeds, truncations
from reference.studies import check_files

from fastmma import study
from fastmma.cli import main
from fastmma.host.errors import FastmmaError
from fastmma.study.grid import CASE_FIELDS
from fastmma.study.records import Record
from fastmma.study.report import markdown

SEEDS, MUTATIONS = 3, 80  # mutations a seed
KNOWN = ("case", *CASE_FIELDS, "instruction", "evidence")
GRID = study.Grid(("e4m3",), ("sm_90a",), ((4, 4, 32), (4, 4, 64)))
ARGUMENTS = ["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x32", "--shape", "4x4x64"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Record]]:
    """The file of records of a study, and its results."""
    folder = tmp_path_factory.mktemp("study")
    results = study.run(GRID, folder)
    return (folder / "results.jsonl").read_bytes(), list(results)


def resumed(folder: Path, content: bytes, expected: list[Record]) -> bool:
    """Whether the study went on from a file with this content; else it was refused, and the file is as it was.

    Another number in the place of a number is not noticed; what names the case, and the types of all values, are those of a study.
    """
    file = folder / "results.jsonl"
    file.write_bytes(content)
    try:
        results = study.run(GRID, folder)
    except FastmmaError:
        assert file.read_bytes() == content
        return False
    for record, other in zip(results, expected, strict=True):
        assert list(record) == list(other)
        assert all(value is None or type(value) is type(other[name]) for name, value in record.items())
        assert {name: record[name] for name in KNOWN} == {name: other[name] for name in KNOWN}
    markdown(results, title="")
    assert {json.loads(line)["case"] for line in file.read_bytes().splitlines()} >= {record["case"] for record in expected}
    assert not list(folder.glob(".*"))
    return True


def test_records_that_are_cut_off(whole: tuple[bytes, list[Record]], tmp_path: Path) -> None:
    """What a crash left of the last line is replaced, wherever it ended; anything else after the last line is kept, and refused."""
    content, expected = whole
    for size in range(0, len(content), 37):
        assert resumed(tmp_path, content[:size], expected)
        check_files(tmp_path, expected)
    for _, other in zip(range(3), truncations(content, len(content)), strict=False):
        resumed(tmp_path, other, expected)
    for more in (b"x", b"\0" * 5000, b"{", b'{"case": "x"}', b'[{"a": 1}]'):
        assert resumed(tmp_path, content + more, expected) == more.startswith(b"{")
    for precious in (b"precious", b'{"cases": 3}', b"\xef\xbb\xbf", b"\0"):
        assert not resumed(tmp_path, precious, expected)


@pytest.mark.parametrize("change", [mutated, retyped])
def test_changed_records(change: Any, whole: tuple[bytes, list[Record]], tmp_path: Path) -> None:
    content, expected = whole
    seen = set()
    for seed in seeds(SEEDS):
        rng = random.Random(f"{change.__name__} {seed}")
        for _ in range(MUTATIONS):
            lines = content.splitlines()
            place = rng.randrange(len(lines))
            lines[place] = change(lines[place], rng)
            seen.add(resumed(tmp_path, b"\n".join(lines) + b"\n", expected))
    assert seen == {False, True} or change is retyped


def test_every_value_of_a_record_with_every_junk(whole: tuple[bytes, list[Record]], tmp_path: Path) -> None:
    content, expected = whole
    first, rest = content.split(b"\n", 1)
    for name in expected[0]:
        for junk in random.Random(name).sample(JUNK, 8):
            line = json.dumps(json.loads(first) | {name: junk}).encode()
            resumed(tmp_path, line + b"\n" + rest, expected)
        for token in random.Random(name).sample(TOKENS, 2):
            line = json.dumps(json.loads(first) | {name: "a mark"}).encode().replace(b'"a mark"', token)
            assert not resumed(tmp_path, line + b"\n" + rest, expected)


def test_long_lines(whole: tuple[bytes, list[Record]], tmp_path: Path) -> None:
    content, expected = whole
    for line in (b'{"case": "x", "a": [' + b"[],[],[]," * 10_000 + b"0]}\n", b'{"case": "x", "a": "' + b"x" * 70_000 + b'"}\n', b"\n" * 3):
        assert not resumed(tmp_path, content + line, expected)


def test_what_the_command_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.jsonl").write_text('{"case": NaN}\n')
    assert main([*ARGUMENTS, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"fastmma: {tmp_path / 'results.jsonl'}, line 1 is no record of a study: remove the line, or choose another folder\n"
    )
