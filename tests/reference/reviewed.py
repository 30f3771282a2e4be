"""Tables that a command prints, compared with the files in which they were reviewed."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastmma.cli.app import app


def check(command: str, file: Path) -> None:
    """Fail with the difference if a command of fastmma no longer prints what a file holds."""
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    place = str(file.relative_to(Path(__file__).parents[2]))
    before, now = file.read_text().splitlines(), result.stdout.splitlines()
    lines = list(difflib.unified_diff(before, now, place, "printed now", n=0, lineterm=""))
    if lines:
        update = f"python -m fastmma {command} > {place}"
        pytest.fail("\n".join((f"{file.name} holds another table. If the change is wanted, review this difference, then {update}", *lines)))
