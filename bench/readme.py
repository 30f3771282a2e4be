"""The README's generated sections; ``python -m bench.readme`` brings the tables of instructions and of evidence up to date."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from fastmma.cli import main

PATH = Path(__file__).parents[1] / "README.md"
_MARKED = re.compile(r"<!-- (\w+): fastmma ([\w -]+?) -->\n")


def fill(name: str, text: str) -> None:
    """Replace what stands between the comments ``name`` and ``/name``."""
    old = PATH.read_text(encoding="utf-8")
    section = re.compile(rf"(<!-- {name}\b[^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new, count = section.subn(lambda found: found[1] + text + found[2], old)
    if count != 1:
        raise ValueError(f"{PATH} has {count} sections named {name}")
    PATH.write_text(new, encoding="utf-8")


def output(command: str) -> str:
    """What a ``fastmma`` command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(command.split())
    if status:
        raise RuntimeError(f"fastmma {command} ended with status {status}")
    return printed.getvalue()


def fill_tables() -> None:
    """Run the commands that the comments name, and put their output there."""
    for name, command in _MARKED.findall(PATH.read_text(encoding="utf-8")):
        fill(name, output(command))


if __name__ == "__main__":
    fill_tables()
