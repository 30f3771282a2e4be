"""The pages as single HTML files, which need no server, no network and no other file: the explorer, and one sum on two GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from fastmma.explanation.explorer.layouts import layouts
from fastmma.explanation.explorer.rules import formats, gpus, kinds
from fastmma.explanation.explorer.sums import sums
from fastmma.host.figures.style import BAND, BITS, EDGE, INK, MARK, PAPER, RULE

# in the order in which a browser reads them
_SCRIPTS = ("choices.js", "layout.js", "grid.js", "layouts.js", "bars.js", "sums.js", "dom.js", "page.js")
_SUM_SCRIPTS = ("bars.js", "adder.js", "element.js", "dom.js", "sum.js")


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


def _links(links: Mapping[str, str]) -> str:
    """Write links, by their texts."""
    return " ".join(f'<a href="{escape(address)}">{escape(text)}</a>' for text, address in links.items())


def _filled(name: str, scripts: tuple[str, ...], data: dict[str, str], links: Mapping[str, str]) -> str:
    """Put styles, links, data and scripts into a page."""
    parts = {"palette": _palette(), "style": _read("style.css"), "links": _links(links), **data, "script": "\n".join(map(_read, scripts))}
    text = _read(name)
    for part, content in parts.items():
        text = text.replace(f"<!-- {part} -->", content)
    return text


@cache
def _layouts_and_sums() -> dict[str, str]:
    return {"layouts": _json(layouts()), "sums": _json(sums())}


def page(links: Mapping[str, str] = MappingProxyType({})) -> str:
    """The explorer, with links to other pages by their texts."""
    return _filled("page.html", _SCRIPTS, _layouts_and_sums(), links)


def sum_page(links: Mapping[str, str] = MappingProxyType({})) -> str:
    """The page of one sum on two GPUs, with links to other pages by their texts."""
    return _filled("sum.html", _SUM_SCRIPTS, {"known": _json({"kinds": kinds(), "formats": formats(), "gpus": gpus()})}, links)
