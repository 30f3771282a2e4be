"""The README: it is short, its examples run, its commands and the files that it links to exist."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fastmma.cli import main

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
# the examples under each heading, and what they need beside fastmma
EXAMPLES = {
    title: "\n".join(re.findall(r"^```pycon\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    for title, section in re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
}
LIBRARIES = {"PyTorch": "torch", "Triton": "triton"}


def test_it_is_short() -> None:
    assert len(TEXT.encode()) <= 8000


def test_it_answers_in_the_order_in_which_one_asks() -> None:
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == ["Start", "Is it right?", "Is it fast?", "Six examples", "More"]


def test_speeds_are_those_of_the_page() -> None:
    (table,) = re.findall(r"^## Is it fast\?\n.*?\| --- [^\n]+\n(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    page = (README.parent / "docs" / "speed.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in table.splitlines() if row not in page] == []


@pytest.mark.parametrize("title", [title for title, code in EXAMPLES.items() if code])
def test_examples(title: str) -> None:
    if title in LIBRARIES:
        pytest.importorskip(LIBRARIES[title], reason=f"the extra {LIBRARIES[title]!r} is not installed")
    imports = "\n".join(line for line in EXAMPLES["NumPy"].splitlines() if line.startswith(">>> import"))
    test = doctest.DocTestParser().get_doctest(f"{imports}\n{EXAMPLES[title]}", {}, title, str(README), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    runner.run(test)
    assert runner.failures == 0


def test_six_examples() -> None:
    assert list(EXAMPLES) == ["NumPy", "PyTorch", "Triton", "pytest", "A study", "Explain"]
    assert {language for language, _ in BLOCKS} == {"pycon", "python", "sh"}


def test_the_test_of_the_example_passes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    (code,) = (code for language, code in BLOCKS if language == "python")
    (tmp_path / "test_example.py").write_text(code)
    plug_in = [] if entry_points(group="pytest11", name="fastmma") else ["-p", "fastmma.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plug_in, "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(README.parent)}, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\bfastmma (\w+)(?= --)", TEXT))))
def test_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_links_are_files() -> None:
    links = re.findall(r"\]\(([\w./]+)\)", TEXT)
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
