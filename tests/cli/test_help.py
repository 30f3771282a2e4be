"""Every command says what it takes."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from reference.command_line import run

from fastmma.cli.app import COMMANDS, app


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*command, "--help", capsys=capsys)
    assert (status, err) == (0, "")
    assert out.split()[:3] == ["Usage:", "fastmma", *(command or ["[OPTIONS]"])]
    assert "--help" in out


def test_the_list_of_commands_has_the_first_word_of_each() -> None:
    context = click.Context(app)
    for name, entry in COMMANDS.items():
        command = app.get_command(context, name)
        assert command is not None
        assert (command.help or "").split()[0] == entry.summary.split()[0], name


@pytest.mark.parametrize("name", ["typer", "pydantic"])
def test_commands_need_no_package_that_brings_others(name: str) -> None:
    script = f"import sys; from fastmma.cli import main; main(['--help']); sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0
