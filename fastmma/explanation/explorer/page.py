"""The explorer as one HTML file, which needs no server, no network and no other file."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from fastmma.explanation.explorer.layouts import layouts
from fastmma.explanation.explorer.sums import sums
from fastmma.host.figures.style import BAND, BITS, EDGE, INK, MARK, PAPER, RULE

# in the order in which a browser reads them
_SCRIPTS = ("layout.js", "grid.js", "layouts.js", "bars.js", "sums.js", "page.js")


def _read(name: str) -> str:
    return files("fastmma.explanation.explorer").joinpath("web", name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _palette() -> str:
    """The colours of pictures as the page's by day."""
    named = {"paper": PAPER, "ink": INK, "on-colours": INK, "faint": EDGE, "line": RULE, "panel": BAND, "unit": MARK}
    named |= {name + part: colour for name, pair in BITS.items() for part, colour in zip(("", "-zero"), pair, strict=True)}
    return f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in named.items())} }}"


@cache  # the same each time
def page() -> str:
    """The page."""
    parts = {
        "palette": _palette(),
        "style": _read("style.css"),
        "layouts": _json(layouts()),
        "sums": _json(sums()),
        "script": "\n".join(map(_read, _SCRIPTS)),
    }
    text = _read("page.html")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text
