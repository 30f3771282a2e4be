"""Grids as a drawing: each box in the colour of its lane, what repeats beside a map of the whole matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from fastmma.operands.pictures.colours import EDGE, FAINT, INK, SHADE, lane_colour
from fastmma.operands.pictures.drawing import Drawing, Label, Rect
from fastmma.operands.pictures.grid import Box, Grid

_MARGIN, _HEADING, _GAP, _LINE = 18.0, 30.0, 24.0, 16.0
_TOP, _STRIP = 46.0, 56.0  # pixels over the first row, and of the names of warps
_SEAM = 1.5  # white between boxes of different registers
_MAP_WIDTH, _MAP_HEIGHT = 180.0, 72.0


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
    """Puts one grid into a drawing, with boxes and headings of the sizes that all grids of the drawing need."""

    def __init__(self, grid: Grid, sizes: tuple[float, float, float]) -> None:
        box_width, box_height, heading = sizes
        self.grid = grid
        boxes = [box for row in grid.boxes for box in row if box is not None]
        self.warps = [*self._warps()] if max(box.lane for box in boxes) >= 32 else []
        self.left = heading + (_STRIP if self.warps else 0.0)
        self.cols = _edges(grid.cols, box_width, self.left)
        self.rows = _edges(grid.rows, box_height, _TOP)

    @staticmethod
    def sizes(grid: Grid) -> tuple[float, float, float]:
        """Width and height of boxes, and width of the rows' headings."""
        boxes = [box for row in grid.boxes for box in row if box is not None]
        longest = max(max(len(box.head) * 7.4, len(box.tail) * 6.2) for box in boxes)
        longest = max(longest, *(len(heading) * 5.2 for heading in grid.cols if heading))
        heading = max(len(heading) for heading in grid.rows if heading) * 6.4 + 10
        return max(34.0, longest + 6), 32.0 if any(box.tail for box in boxes) else 22.0, max(_HEADING, heading)

    @property
    def _wide(self) -> float:
        return sum(self.cols[-1])

    @property
    def width(self) -> float:
        title = self.left + len(self.grid.title) * 8.4
        return max(self._wide, title, *(self.left + max(len(note) * 6.9, _MAP_WIDTH + 30) for note in self.grid.notes or ("",)))

    @property
    def height(self) -> float:
        return sum(self.rows[-1]) + (12 + len(self.grid.notes) * _LINE + _map_size(self.grid)[1] if self.grid.notes else 0.0)

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
            drawing.labels.append(Label(x + start + extent / 2, y + 36, heading or "\u22ef", 9, fill=EDGE))
        for (start, extent), heading in zip(self.rows, grid.rows, strict=True):
            drawing.labels.append(Label(x + self.left - 8, y + start + extent / 2, heading or "\u22ee", 10, fill=EDGE, anchor="end"))
        for warp, first, last in self.warps:
            top, bottom = y + self.rows[first][0], y + sum(self.rows[last])
            drawing.rects.append(Rect(x, top, 50, bottom - top - 2 * _SEAM, SHADE))
            drawing.labels.append(Label(x + 25, (top + bottom) / 2, f"warp {warp}", 10, fill=EDGE))
        for row, boxes in enumerate(grid.boxes):
            for col, box in enumerate(boxes):
                if box is not None:
                    self._box(drawing, x, y, row, col, box)
        if grid.notes:
            self._repeats(drawing, x + self.left, y + sum(self.rows[-1]) + 12)

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
                INK if grid.highlight is not None and lit else "",
                _note(box, grid.title),
            )
        )
        middle, ink = x + left + (width - _SEAM) / 2, INK if lit else FAINT
        centre = y + top + (height - _SEAM) / 2
        drawing.labels.append(Label(middle, centre - (6.5 if box.tail else 0), box.head, 11, bold=bool(box.tail), fill=ink))
        if box.tail:
            drawing.labels.append(Label(middle, centre + 7.5, box.tail, 9.5, fill=ink))

    def _repeats(self, drawing: Drawing, x: float, y: float) -> None:
        """The repeats in words, and a map of the whole matrix in which the block that is drawn is dark."""
        for note in self.grid.notes:
            drawing.labels.append(Label(x, y + 6, note, 10.5, fill=EDGE, anchor="start", fixed_pitch=True))
            y += _LINE
        width, height = _map_size(self.grid)
        counts = {each.axis: each.count for each in self.grid.repeats}
        across, down = counts.get("columns", 1), counts.get("rows", 1)
        if height:
            for row in range(down):
                for col in range(across):
                    fill = EDGE if row == col == 0 else SHADE
                    wide, high = (width - _SEAM) / across, (height - 10 - _SEAM) / down
                    drawing.rects.append(Rect(x + col * wide, y + 4 + row * high, wide - _SEAM, high - _SEAM, fill))


def _map_size(grid: Grid) -> tuple[float, float]:
    """Pixels of the map of the whole matrix; none where nothing repeats along a side."""
    sides = {each.axis: each.size * each.count for each in grid.repeats if each.axis in ("rows", "columns")}
    if not sides:
        return 0.0, 0.0
    return _MAP_WIDTH, 10 + _MAP_HEIGHT * (1.0 if "rows" in sides else 0.25)


def draw(grids: Sequence[Grid | None], *, title: str = "", notes: Iterable[str] = ()) -> Drawing:
    """Draw grids, two side by side where there are several.

    Parameters
    ----------
    grids : sequence of Grid or None
        None leaves its place empty.
    title : str
        A heading over everything.
    notes : iterable of str
        Lines under the heading, in a font of fixed pitch.
    """
    drawing = Drawing()
    y = _MARGIN
    texts = [Label(_MARGIN, 0, title, 14, bold=True, anchor="start")] if title else []
    texts += [Label(_MARGIN, 0, note, 11, fill=EDGE, anchor="start", fixed_pitch=True) for note in notes]
    for label in texts:
        y += 0.7 * label.size
        drawing.labels.append(label._replace(y=y))
        y += 0.9 * label.size
    y += 12 if texts else 0
    widest = max((_MARGIN + len(label.text) * label.size * (0.61 if label.fixed_pitch else 0.69) for label in texts), default=0.0)
    every = [_Painter.sizes(grid) for grid in grids if grid is not None]
    sizes = max(each[0] for each in every), max(each[1] for each in every), max(each[2] for each in every)
    painters = [None if grid is None else _Painter(grid, sizes) for grid in grids]
    second = _MARGIN + max((painter.width for painter in painters[::2] if painter is not None), default=0.0) + 2 * _MARGIN
    for start in range(0, len(painters), 2):
        pair = painters[start : start + 2]
        # two matrices of as many rows stand beside each other row by row
        grid_bottom = y + max(sum(painter.rows[-1]) for painter in pair if painter is not None)
        bottom = grid_bottom
        for x, painter in zip((_MARGIN, second), pair, strict=False):
            if painter is not None:
                top = grid_bottom - sum(painter.rows[-1])
                painter.paint(drawing, x, top)
                widest, bottom = max(widest, x + painter.width), max(bottom, top + painter.height)
        y = bottom + 2 * _MARGIN
    drawing.width, drawing.height = math.ceil(widest + _MARGIN), math.ceil(y - _MARGIN)
    drawing.labels.sort(key=lambda label: label[3:])
    # outlines last, so that neighbours do not cover them
    drawing.rects.sort(key=lambda rect: bool(rect.outline))
    return drawing


def on_paper(names: Iterable[str]) -> list[str | None]:
    """The operands of a product as one writes them down: b over d, a to the left of d, c in the corner, all else below."""
    given = list(names)
    if "d" not in given or "a" not in given:
        return list(given)
    corner: list[str | None] = ["c" if "c" in given else None, "b"] if "b" in given else []
    below = [name for name in given if name not in ("a", "b", "d") and name not in corner]
    return [*corner, "a", "d", *below]
