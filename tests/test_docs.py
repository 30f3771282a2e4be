"""The pages in docs: their examples run, their tables are what the package prints, their commands exist, their pictures are fastmma's."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import fastmma
from fastmma import scaling
from fastmma.cli import main
from tools.commands import reference
from tools.names import MODULES, section
from tools.pictures import PICTURES

DOCS = Path(__file__).parents[1] / "docs"
TEXTS = {str(page.relative_to(DOCS)): page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
BLOCKS = {name: re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for name, text in TEXTS.items()}
# what the examples of a page need beside fastmma
LIBRARIES = {
    "agree.md": "torch",
    "torch.md": "torch",
    "training_steps.md": "torch",
    "triton.md": "triton",
    "gluon.md": "triton",
    "jax.md": "jax",
    "dask.md": "distributed",
}
WITH_EXAMPLES = [name for name, blocks in BLOCKS.items() if any(language == "pycon" for language, _ in blocks)]
# whole programs and tests, which begin with what they import, and what they print
PROGRAMS = {
    name: code
    for name, blocks in BLOCKS.items()
    for language, code in blocks
    if language == "python" and code.startswith(("import ", "from "))
}
PRINTED = {"dask.md": "6.7108864e+07", "testing.md": "2 passed"}
COMMANDS = sorted(
    {command for blocks in BLOCKS.values() for _, code in blocks for command in re.findall(r"^fastmma (\w+)", code, re.MULTILINE)}
)
BEGINNING_OF_A_COMMAND = re.compile(r"\s*(\w+=\S+ )*(fastmma|python|pip|pytest|tools/\w+|set|for|done)\b")
# each table stands between comments, of which the first names its command
TABLES = [
    table for text in TEXTS.values() for table in re.findall(r"<!-- (\w+): fastmma ([\w. -]+?) -->\n(.*?)<!-- /\1 -->", text, re.DOTALL)
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name], reason=f"the extra {name.removesuffix('.md')!r} is not installed")
    examples = "\n".join(code for language, code in BLOCKS[name] if language == "pycon")
    test = doctest.DocTestParser().get_doctest(examples, {}, name, str(DOCS / name), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    for library in ("torch", "distributed"):
        if library in PROGRAMS[name]:
            pytest.importorskip(library)
    (tmp_path / "test_program.py").write_text(PROGRAMS[name])
    plug_in = [] if entry_points(group="pytest11", name="fastmma") else ["-p", "fastmma.testing.plugin"]
    as_tests = ["-m", "pytest", "-q", "--golden-bits=write", *plug_in, "-p", "no:cacheprovider"]
    command = [sys.executable, *(as_tests if "def test_" in PROGRAMS[name] else ()), "test_program.py"]
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PRINTED[name] in done.stdout


def test_pages_with_programs_are_found() -> None:
    assert PROGRAMS.keys() == PRINTED.keys()


def test_pages_with_examples_are_found() -> None:
    assert "explain.md" in WITH_EXAMPLES


def test_the_reference_of_commands_is_printed_by_them() -> None:
    (printed,) = re.findall(r"<!-- commands -->\n(.*?)<!-- /commands -->", TEXTS["command_line.md"], re.DOTALL)
    assert printed == reference(), "the reference is out of date: 'python -m tools.pages' prints it anew"


def test_tables_are_marked() -> None:
    assert {"evidence", "mma"} <= {name for name, _, _ in TABLES}


@pytest.mark.parametrize(("name", "command", "table"), TABLES, ids=[name for name, _, _ in TABLES])
def test_table(name: str, command: str, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 0
    assert table == capsys.readouterr().out, f"the table {name!r} is out of date: 'python -m tools.pages' prints all of them anew"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_commands_are_those_of_any_shell() -> None:
    """What `sh` takes, without the braces that Bash expands."""
    scripts = [code for blocks in BLOCKS.values() for language, code in blocks if language == "sh"]
    done = subprocess.run(["sh", "-n"], input="\n".join(scripts), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [code for code in scripts if re.search(r"\{[^ }]*(\.\.|,)[^ }]*\}", code)] == []


def test_lines_of_shell_begin_with_commands() -> None:
    """No line has been run together with the next one, or broken within a command or a comment."""
    scripts = [code for blocks in BLOCKS.values() for language, code in blocks if language == "sh"]
    lines = "".join(scripts).replace("\\\n", "").splitlines()
    assert [line for line in lines if not BEGINNING_OF_A_COMMAND.match(line)] == []
    assert [line for line in lines if re.search(r"#.*(python -m|tools/|fastmma) ", line)] == []


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_up_to_date(name: str, tmp_path: Path) -> None:
    PICTURES[name](tmp_path / "picture.svg")
    assert (DOCS / name).read_text() == (tmp_path / "picture.svg").read_text(), "'python -m tools.pages' draws all of them anew"


@pytest.mark.parametrize("name", MODULES)
def test_the_index_has_every_public_name(name: str) -> None:
    pytest.importorskip(MODULES[name])
    assert section(name) in TEXTS["reference/index.md"], "the index is out of date: 'python -m tools.pages' prints it anew"


def test_the_reference_has_all_public_names() -> None:
    described = set(re.findall(r"^::: fastmma\.(\w+)", "\n".join(TEXTS.values()), re.MULTILINE))
    assert set(fastmma.__all__) - described == set() | {name for name in scaling.__all__ if name in fastmma.__all__}
    assert {"dask", "jax", "study", "testing", "torch", "triton"} <= described
