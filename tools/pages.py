"""What commands print into the pages in docs, and their pictures; ``python -m tools.pages`` brings both up to date."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from fastmma.cli import main
from tools.commands import reference
from tools.names import index
from tools.pictures import PICTURES

FOLDER = Path(__file__).parents[1] / "docs"
# each stands between comments, of which the first names its command
_SECTION = r"(<!-- {name}\b[^>]*-->\n).*?(<!-- /{name} -->)"
_MARKED = re.compile(r"<!-- (\w+): fastmma ([\w. -]+?) -->\n")


def pages() -> list[Path]:
    """All pages of the site that are kept as files."""
    return sorted(FOLDER.rglob("*.md"))


def fill(name: str, text: str) -> None:
    """Replace what stands between the comments ``name`` and ``/name``, which one page has."""
    section = re.compile(_SECTION.format(name=name), re.DOTALL)
    found = [(page, old, match) for page in pages() for old in [page.read_text(encoding="utf-8")] for match in section.finditer(old)]
    if len(found) != 1:
        raise ValueError(f"{FOLDER} has {len(found)} sections named {name}")
    page, old, match = found[0]
    page.write_text(old[: match.start()] + match[1] + text + match[2] + old[match.end() :], encoding="utf-8")


def output(command: str) -> str:
    """What a ``fastmma`` command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(command.split())
    if status:
        raise RuntimeError(f"fastmma {command} ended with status {status}")
    return printed.getvalue()


def tables() -> list[tuple[str, str]]:
    """Name and command of each section that a command of fastmma prints."""
    return [found for page in pages() for found in _MARKED.findall(page.read_text(encoding="utf-8"))]


def fill_tables() -> None:
    """Run the commands that the comments name, and put their output there."""
    for name, command in tables():
        fill(name, output(command))


def draw_pictures() -> None:
    """Draw the pictures of explained elements."""
    for name, draw in PICTURES.items():
        draw(FOLDER / name)


if __name__ == "__main__":
    fill_tables()
    fill("commands", reference())
    fill("names", index())
    draw_pictures()
