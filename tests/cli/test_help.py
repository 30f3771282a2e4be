"""Every command says what it takes."""

from __future__ import annotations

import pytest
from reference.command_line import run

from fastmma.cli.app import commands


@pytest.mark.parametrize("command", [[], *([name] for name in commands().commands)])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*command, "--help", capsys=capsys)
    assert (status, err) == (0, "")
    assert out.split()[:3] == ["Usage:", "fastmma", *(command or ["[OPTIONS]"])]
    assert "--help" in out
