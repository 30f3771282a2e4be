"""A drawing: rectangles and labels in pixels, and their SVG."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import NamedTuple

from fastmma.host.figures.style import INK, PAPER, SMALL, TEXT, TITLE

DPI = 100  # pixels an inch
LARGE, MIDDLE, LITTLE = (round(points * DPI / 72, 1) for points in (TITLE, TEXT, SMALL))  # sizes of text


class Rect(NamedTuple):
    """A filled rectangle; `note` is shown when a pointer rests on it."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    outline: str = ""
    note: str = ""


class Label(NamedTuple):
    """Text centred vertically on y; `anchor` is ``"start"``, ``"middle"`` or ``"end"``."""

    x: float
    y: float
    text: str
    size: float = MIDDLE
    bold: bool = False
    fill: str = INK
    anchor: str = "middle"
    fixed_pitch: bool = False


@dataclass
class Drawing:
    """A drawing for a renderer: sizes in pixels, and marks in the order of painting."""

    width: float = 0.0
    height: float = 0.0
    rects: list[Rect] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def svg(self) -> str:
        """The drawing as a standalone SVG document, which notebooks take inline too."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f'<rect width="100%" height="100%" fill="{PAPER}"/>']
        lines += map(_rect_svg, self.rects)
        for style, labels in groupby(self.labels, key=lambda label: label[3:]):
            lines += ["<g" + _style_svg(Label(0, 0, "", *style)) + ">", *map(_label_svg, labels), "</g>"]
        return "\n".join([*lines, "</svg>\n"])


def _rect_svg(rect: Rect) -> str:
    place = f'<rect x="{rect.x:g}" y="{rect.y:g}" width="{rect.width:g}" height="{rect.height:g}" fill="{rect.fill}"'
    if rect.outline:
        place += f' stroke="{rect.outline}" stroke-width="1.6"'
    return f"{place}><title>{escape(rect.note, quote=False)}</title></rect>" if rect.note else f"{place}/>"


def _style_svg(label: Label) -> str:
    family = "DejaVu Sans Mono, Menlo, Consolas, monospace" if label.fixed_pitch else "DejaVu Sans, Verdana, Arial, sans-serif"
    weight = ' font-weight="bold"' if label.bold else ""
    return f' font-family="{family}" font-size="{label.size:g}"{weight} fill="{label.fill}" text-anchor="{label.anchor}"'


def _label_svg(label: Label) -> str:
    # a baseline a third of the size below the middle: not every renderer knows dominant-baseline
    return f'<text x="{label.x:g}" y="{label.y + 0.35 * label.size:g}" xml:space="preserve">{escape(label.text, quote=False)}</text>'
