"""The explorer and the page of one sum as pages of the site; MkDocs calls `on_files` of this module."""

from __future__ import annotations

from typing import Any

from fastmma.explanation.explorer.page import page, sum_page

PAGES = {"explorer.html": page, "sum.html": sum_page}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that `fastmma explorer` writes."""
    from mkdocs.structure.files import File

    for name, content in PAGES.items():
        files.append(File.generated(config, name, content=content()))
    return files
