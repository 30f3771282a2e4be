"""The explorer as one HTML file, which needs no server, no network and no other file."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from fastmma.explorer.layouts import layouts
from fastmma.explorer.sums import sums

# in the order in which a browser reads them
_SCRIPTS = ("layout.js", "grid.js", "layouts.js", "bars.js", "sums.js", "page.js")


def _read(name: str) -> str:
    return files("fastmma.explorer").joinpath("web", name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def page() -> str:
    """The page."""
    parts = {
        "style": _read("style.css"),
        "layouts": _json(layouts()),
        "sums": _json(sums()),
        "script": "\n".join(map(_read, _SCRIPTS)),
    }
    text = _read("page.html")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text
