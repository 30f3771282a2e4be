"""Grids as a drawing: each box in the colour of its lane, what repeats beside a map of the whole matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from fastmma.host.figures.drawing import LARGE, LITTLE, MIDDLE, Drawing, Label, Rect
from fastmma.host.figures.style import BAND, EDGE, FAINT, INK, RULE
from fastmma.operands.pictures.colours import lane_colour
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
    """Tell whether two neighbouring boxes lie in the same register of the same lane."""
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
        longest = max(max(len(box.head) * 0.68 * MIDDLE, len(box.tail) * 0.65 * LITTLE) for box in boxes)
        longest = max(longest, *(len(heading) * 0.58 * LITTLE for heading in grid.cols if heading))
        heading = max(len(heading) for heading in grid.rows if heading) * 0.64 * LITTLE + 10
        return max(34.0, longest + 6), 32.0 if any(box.tail for box in boxes) else 22.0, max(_HEADING, heading)

    @property
    def _wide(self) -> float:
        return sum(self.cols[-1])

    @property
    def width(self) -> float:
        title = self.left + len(self.grid.title) * 0.7 * LARGE
        return max(self._wide, title, *(self.left + max(len(note) * 0.62 * LITTLE, _MAP_WIDTH + 30) for note in self.grid.notes))

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
        drawing.labels.append(Label(x + self.left, y + 10, grid.title, LARGE, bold=True, anchor="start"))
        for (start, extent), heading in zip(self.cols, grid.cols, strict=True):
            drawing.labels.append(Label(x + start + extent / 2, y + 36, heading or "\u22ef", LITTLE, fill=EDGE))
        for (start, extent), heading in zip(self.rows, grid.rows, strict=True):
            drawing.labels.append(Label(x + self.left - 8, y + start + extent / 2, heading or "\u22ee", LITTLE, fill=EDGE, anchor="end"))
        for warp, first, last in self.warps:
            top, bottom = y + self.rows[first][0], y + sum(self.rows[last])
            drawing.rects.append(Rect(x, top, 50, bottom - top - 2 * _SEAM, BAND))
            drawing.labels.append(Label(x + 25, (top + bottom) / 2, f"warp {warp}", LITTLE, fill=EDGE))
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
        drawing.labels.append(Label(middle, centre - (6.5 if box.tail else 0), box.head, MIDDLE, bold=bool(box.tail), fill=ink))
        if box.tail:
            drawing.labels.append(Label(middle, centre + 7.5, box.tail, LITTLE, fill=ink))

    def _repeats(self, drawing: Drawing, x: float, y: float) -> None:
        """The repeats in words, and a map of the whole matrix in which the block that is drawn is dark."""
        for note in self.grid.notes:
            drawing.labels.append(Label(x, y + 6, note, LITTLE, fill=EDGE, anchor="start", fixed_pitch=True))
            y += _LINE
        width, height = _map_size(self.grid)
        counts = {each.axis: each.count for each in self.grid.repeats}
        across, down = counts.get("columns", 1), counts.get("rows", 1)
        if height:
            for row in range(down):
                for col in range(across):
                    fill = EDGE if row == col == 0 else RULE
                    wide, high = (width - _SEAM) / across, (height - 10 - _SEAM) / down
                    drawing.rects.append(Rect(x + col * wide, y + 4 + row * high, wide - _SEAM, high - _SEAM, fill))


def _map_size(grid: Grid) -> tuple[float, float]:
    """Pixels of the map of the whole matrix; none where nothing repeats along a side."""
    sides = {each.axis: each.size * each.count for each in grid.repeats if each.axis in ("rows", "columns")}
    if not sides:
        return 0.0, 0.0
    return _MAP_WIDTH, 10 + _MAP_HEIGHT * (1.0 if "rows" in sides else 0.25)


def in_pairs(grids: Sequence[Grid | None]) -> list[Sequence[Grid | None]]:
    """Grids in rows of two."""
    return [grids[start : start + 2] for start in range(0, len(grids), 2)]


def draw(rows: Sequence[Sequence[Grid | None]], *, title: str = "", notes: Iterable[str] = ()) -> Drawing:
    """Draw grids in rows and columns.

    Parameters
    ----------
    rows : sequence of sequence of Grid or None
        None leaves its place empty.
    title : str
        A heading over everything.
    notes : iterable of str
        Lines under the heading, in a font of fixed pitch.
    """
    drawing = Drawing()
    y = _MARGIN
    texts = [Label(_MARGIN, 0, title, LARGE, bold=True, anchor="start")] if title else []
    texts += [Label(_MARGIN, 0, note, LITTLE, fill=EDGE, anchor="start", fixed_pitch=True) for note in notes]
    for label in texts:
        y += 0.7 * label.size
        drawing.labels.append(label._replace(y=y))
        y += 0.9 * label.size
    y += 12 if texts else 0
    widest = max((_MARGIN + len(label.text) * label.size * (0.61 if label.fixed_pitch else 0.69) for label in texts), default=0.0)
    painters = _painters(rows)
    lefts = [_MARGIN]
    for column in zip_longest(*painters):
        lefts.append(lefts[-1] + max((painter.width for painter in column if painter is not None), default=0.0) + 2 * _MARGIN)
    for row in painters:
        # matrices of as many rows stand beside each other row by row
        grid_bottom = y + max(sum(painter.rows[-1]) for painter in row if painter is not None)
        bottom = grid_bottom
        for x, painter in zip(lefts, row, strict=False):
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


def _painters(rows: Sequence[Sequence[Grid | None]]) -> list[list[_Painter | None]]:
    """Return what paints each grid: boxes are as wide as their column of grids needs them, and as high as the highest."""
    columns = [[_Painter.sizes(grid) for grid in column if grid is not None] for column in zip_longest(*rows)]
    height = max(each[1] for column in columns for each in column)
    sizes = [(max((each[0] for each in column), default=0.0), height, max((each[2] for each in column), default=0.0)) for column in columns]
    return [[None if grid is None else _Painter(grid, size) for grid, size in zip(row, sizes, strict=False)] for row in rows]


# what lies as the rows of a, and as the columns of b
_BESIDE_A, _ABOVE_B = ("scale_a", "metadata"), ("scale_b",)


def on_paper(names: Iterable[str]) -> list[list[str | None]]:
    """The operands of a product as one writes them down: b over d, a to the left of d, c in the corner, scales and metadata beside."""
    given = list(names)
    if "d" not in given or "a" not in given:
        return [list(given[start : start + 2]) for start in range(0, len(given), 2)]
    beside: list[str | None] = [name for name in _BESIDE_A if name in given]
    empty: list[str | None] = [None] * len(beside)
    rows: list[list[str | None]] = [[*empty, None, name] for name in _ABOVE_B if name in given]
    corner: list[str | None] = [name if name in given else None for name in ("c", "b")]
    rows += [[*empty, *corner]] if any(corner) else []
    return [*rows, [*beside, "a", "d"]]
