"""The command line, run in this process."""

from __future__ import annotations

import pytest

from fastmma.cli import main


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Status, standard output and standard error."""
    capsys.readouterr()
    status = main(arguments)
    printed = capsys.readouterr()
    return status, printed.out, printed.err
