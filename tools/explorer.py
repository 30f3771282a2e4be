"""The explorer as a page of the site; MkDocs calls `on_files` of this module."""

from __future__ import annotations

from typing import Any

from fastmma.explanation.explorer.page import page

NAME = "explorer.html"


def on_files(files: Any, config: Any) -> Any:
    """Add the page that `fastmma explorer` writes."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, NAME, content=page()))
    return files
