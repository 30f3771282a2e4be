"""Grids of a layout as a drawing: rectangles, lines and labels in pixels, and their SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from fastmma.operands.pictures.grid import Box, Grid

_INK, _FAINT, _PAPER, _EDGE = "#1b1f24", "#a3a9b1", "#ffffff", "#59636e"
_MARGIN, _HEADING, _GAP = 18.0, 34.0, 24.0
_SEAM = 1.5  # white between boxes of different registers


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
    size: float = 10.0
    bold: bool = False
    fill: str = _INK
    anchor: str = "middle"
    fixed_pitch: bool = False


@dataclass
class Drawing:
    """What a renderer needs: sizes in pixels, and marks in the order of painting."""

    width: float = 0.0
    height: float = 0.0
    rects: list[Rect] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def svg(self) -> str:
        """The drawing as a standalone SVG document, which notebooks take inline too."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f'<rect width="100%" height="100%" fill="{_PAPER}"/>']
        lines += map(_rect_svg, self.rects)
        for style, labels in groupby(self.labels, key=lambda label: label[3:]):
            lines += ["<g" + _style_svg(Label(0, 0, "", *style)) + ">", *map(_label_svg, labels), "</g>"]
        return "\n".join([*lines, "</svg>\n"])


def _rect_svg(rect: Rect) -> str:
    place = f'<rect x="{rect.x:g}" y="{rect.y:g}" width="{rect.width:g}" height="{rect.height:g}" fill="{rect.fill}"'
    if rect.outline:
        place += f' stroke="{rect.outline}" stroke-width="1.6"'
    return f"{place}><title>{escape(rect.note)}</title></rect>" if rect.note else f"{place}/>"


def _style_svg(label: Label) -> str:
    family = "DejaVu Sans Mono, Menlo, Consolas, monospace" if label.fixed_pitch else "DejaVu Sans, Verdana, Arial, sans-serif"
    weight = ' font-weight="bold"' if label.bold else ""
    return f' font-family={quoteattr(family)} font-size="{label.size:g}"{weight} fill="{label.fill}" text-anchor="{label.anchor}"'


def _label_svg(label: Label) -> str:
    # a baseline a third of the size below the middle: not every renderer knows dominant-baseline
    return f'<text x="{label.x:g}" y="{label.y + 0.35 * label.size:g}" xml:space="preserve">{escape(label.text)}</text>'


@cache
def lane_colour(lane: int, faded: bool = False) -> str:
    """The colour of a lane: hue by groupID, tone by threadID_in_group, of even perceived lightness (OKLCH)."""
    group, thread = lane % 32 // 4, lane % 4
    lightness, chroma, hue = 0.94 - 0.055 * thread, 0.055 + 0.02 * thread, math.radians(45 * group + 22)
    if faded:
        lightness, chroma = 0.97, 0.008
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    roots = (lightness + 0.3963377774 * a + 0.2158037573 * b, lightness - 0.1055613458 * a - 0.0638541728 * b)
    long, medium, short = (root**3 for root in (*roots, lightness - 0.0894841775 * a - 1.2914855480 * b))
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    channels = (1.055 * max(each, 0.0) ** (1 / 2.4) - 0.055 if each > 0.0031308 else 12.92 * max(each, 0.0) for each in linear)
    return "#" + "".join(f"{round(255 * min(each, 1.0)):02x}" for each in channels)


def _note(box: Box, title: str) -> str:
    first, last = box.cells[0], box.cells[-1]
    bits = f"register {first.register}, bits {first.bit + first.bits - 1}:{first.bit}"
    if last.register != first.register:
        bits = f"registers {first.register} to {last.register}"
    elif last is not first:
        bits = f"register {first.register}, bits {last.bit + last.bits - 1}:{first.bit}"
    where = f"row {first.row}, column {first.col}" + (f" to row {last.row}, column {last.col}" if last is not first else "")
    return f"{title.split(',')[0]}: {where}; lane {box.lane}, {bits}"


def _one_register(box: Box | None, other: Box | None) -> bool:
    """Whether two neighbouring boxes lie in the same register of the same lane."""
    if box is None or other is None:
        return False
    return (box.lane, box.cells[0].register) == (other.lane, other.cells[-1].register)


def _edges(headings: Sequence[str | None], size: float, start: float) -> list[tuple[float, float]]:
    """Start and extent of each row or column."""
    spans = []
    for heading in headings:
        extent = _GAP if heading is None else size
        spans.append((start, extent))
        start += extent
    return spans


class _Painter:
    """Puts one grid into a drawing."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        boxes = [box for row in grid.boxes for box in row if box is not None]
        longest = max(max(len(box.head) * 7.4, len(box.tail) * 6.2) for box in boxes)
        longest = max(longest, *(len(heading) * 6.0 for heading in grid.cols if heading))
        self.box_width = max(34.0, longest + 8)
        self.box_height = 32.0 if any(box.tail for box in boxes) else 22.0
        self.heading = max(_HEADING, max(len(heading) for heading in grid.rows if heading) * 6.4 + 10)
        self.warps = [*self._warps()] if max(box.lane for box in boxes) >= 32 else []
        self.left = self.heading + (56.0 if self.warps else 0.0)
        self.cols = _edges(grid.cols, self.box_width, self.left)
        self.rows = _edges(grid.rows, self.box_height, 46.0)

    @property
    def width(self) -> float:
        return sum(self.cols[-1])

    @property
    def height(self) -> float:
        return sum(self.rows[-1])

    def _warps(self) -> Iterator[tuple[int, int, int]]:
        """(warp, first row, last row) of neighbouring rows that one warp holds."""
        holders = [{box.lane // 32 for box in row if box is not None} for row in self.grid.boxes]
        for held, group in groupby(range(len(holders)), key=lambda row: frozenset(holders[row])):
            rows = list(group)
            if len(held) == 1:
                yield next(iter(held)), rows[0], rows[-1]

    def paint(self, drawing: Drawing, x: float, y: float) -> None:
        """Add the grid with its upper left corner at (x, y)."""
        grid = self.grid
        drawing.labels.append(Label(x + self.left, y + 10, grid.title, 12, bold=True, anchor="start"))
        for (start, extent), heading in zip(self.cols, grid.cols, strict=True):
            drawing.labels.append(Label(x + start + extent / 2, y + 36, heading or "\u22ef", 10, fill=_EDGE))
        for (start, extent), heading in zip(self.rows, grid.rows, strict=True):
            drawing.labels.append(Label(x + self.left - 8, y + start + extent / 2, heading or "\u22ee", 10, fill=_EDGE, anchor="end"))
        for warp, first, last in self.warps:
            top, bottom = y + self.rows[first][0], y + sum(self.rows[last])
            drawing.rects.append(Rect(x, top, 50, bottom - top - 2 * _SEAM, "#eaeef2"))
            drawing.labels.append(Label(x + 25, (top + bottom) / 2, f"warp {warp}", 10, fill=_EDGE))
        for row, boxes in enumerate(grid.boxes):
            for col, box in enumerate(boxes):
                if box is not None:
                    self._box(drawing, x, y, row, col, box)

    def _box(self, drawing: Drawing, x: float, y: float, row: int, col: int, box: Box) -> None:
        grid = self.grid
        (left, width), (top, height) = self.cols[col], self.rows[row]
        lit = grid.highlight is None or not grid.highlight.isdisjoint(box.cells)
        right_joined = col + 1 < len(grid.cols) and _one_register(box, grid.boxes[row][col + 1])
        below_joined = row + 1 < len(grid.rows) and _one_register(box, grid.boxes[row + 1][col])
        drawing.rects.append(
            Rect(
                x + left,
                y + top,
                width - (0 if right_joined else _SEAM),
                height - (0 if below_joined else _SEAM),
                lane_colour(box.lane, faded=not lit),
                _INK if grid.highlight is not None and lit else "",
                _note(box, grid.title),
            )
        )
        middle, ink = x + left + (width - _SEAM) / 2, _INK if lit else _FAINT
        centre = y + top + (height - _SEAM) / 2
        drawing.labels.append(Label(middle, centre - (6.5 if box.tail else 0), box.head, 11, bold=bool(box.tail), fill=ink))
        if box.tail:
            drawing.labels.append(Label(middle, centre + 7.5, box.tail, 9.5, fill=ink))


def draw(grids: Sequence[Grid], *, title: str = "", notes: Iterable[str] = ()) -> Drawing:
    """Draw grids, two side by side where there are several.

    Parameters
    ----------
    grids : sequence of Grid
    title : str
        A heading over everything.
    notes : iterable of str
        Lines under the heading, in a font of fixed pitch.
    """
    drawing = Drawing()
    y = _MARGIN
    texts = [Label(_MARGIN, 0, title, 14, bold=True, anchor="start")] if title else []
    texts += [Label(_MARGIN, 0, note, 11, fill=_EDGE, anchor="start", fixed_pitch=True) for note in notes]
    for label in texts:
        y += 0.7 * label.size
        drawing.labels.append(label._replace(y=y))
        y += 0.9 * label.size
    y += 12 if texts else 0
    widest = max((_MARGIN + len(label.text) * label.size * (0.61 if label.fixed_pitch else 0.69) for label in texts), default=0.0)
    painters = [_Painter(grid) for grid in grids]
    second = _MARGIN + max(painter.width for painter in painters[::2]) + 2 * _MARGIN
    for start in range(0, len(painters), 2):
        pair = painters[start : start + 2]
        bottom = y + max(painter.height for painter in pair)
        for x, painter in zip((_MARGIN, second), pair, strict=False):
            painter.paint(drawing, x, bottom - painter.height)
            widest = max(widest, x + painter.width)
        y = bottom + 2 * _MARGIN
    drawing.width, drawing.height = math.ceil(widest + _MARGIN), math.ceil(y - _MARGIN)
    drawing.labels.sort(key=lambda label: label[3:])
    # outlines last, so that neighbours do not cover them
    drawing.rects.sort(key=lambda rect: bool(rect.outline))
    return drawing
