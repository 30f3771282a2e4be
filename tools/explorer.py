"""The explorer and the page of one sum as pages of the site; MkDocs calls the functions of this module."""

from __future__ import annotations

from typing import Any

from fastmma.explanation.explorer.page import page, sum_page

PAGES = {"explorer.html": page, "sum.html": sum_page}
HOME = "index.html"
PLACE = 2  # among the tabs: after Start and Guide


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that `fastmma explorer` writes."""
    from mkdocs.structure.files import File

    for name, content in PAGES.items():
        files.append(File.generated(config, name, content=content({"fastmma's pages": HOME})))
    return files


def on_nav(nav: Any, **_: Any) -> Any:
    """Add the explorer to the navigation: `nav` of mkdocs.yml takes Markdown only."""
    from mkdocs.structure.nav import Link

    nav.items.insert(PLACE, Link("Explorer", "explorer.html"))
    return nav
