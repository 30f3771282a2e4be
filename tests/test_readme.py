"""The README: its examples run, its tables are those of the package, its commands exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from fastmma.cli import main

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
# each table stands between comments, of which the first names its command
TABLES = re.findall(r"<!-- (\w+): fastmma ([\w -]+?) -->\n(.*?)<!-- /\1 -->", TEXT, re.DOTALL)


def test_examples() -> None:
    examples = "\n".join(code for language, code in BLOCKS if language == "pycon")
    test = doctest.DocTestParser().get_doctest(examples, {}, README.name, str(README), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    runner.run(test)
    assert test.examples
    assert runner.failures == 0


def test_every_python_block_is_an_example() -> None:
    assert {language for language, _ in BLOCKS} <= {"pycon", "sh"}


def test_tables_are_marked() -> None:
    assert [name for name, _, _ in TABLES] == ["evidence", "instructions"]


@pytest.mark.parametrize(("name", "command", "table"), TABLES, ids=[name for name, _, _ in TABLES])
def test_table(name: str, command: str, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 0
    assert table == capsys.readouterr().out, f"the table {name!r} is out of date: put the output of 'fastmma {command}' there"


@pytest.mark.parametrize("command", re.findall(r"^fastmma (\w+)", "".join(code for _, code in BLOCKS), re.MULTILINE))
def test_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert command in capsys.readouterr().out
