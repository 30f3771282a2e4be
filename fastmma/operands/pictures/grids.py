"""Grids of a layout: one a matrix, or one of the register file."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fastmma.host.errors import OperandError
from fastmma.isa.layout import Layout
from fastmma.operands.pictures.grid import Box, Cell, Grid
from fastmma.operands.pictures.names import register_name, span
from fastmma.operands.pictures.repeats import Repeat, repeat, told

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAMES = ("elements", "registers")
# a longer side is drawn with the neighbours that one lane holds joined, or what repeats along it once
_LONG_SIDE = 32
# grids with more rows or columns than this show the first and the last ones, and some about those highlighted
_MOST_ROWS, _MOST_COLS = 64, 32
_FIRST, _LAST, _ABOUT = 16, 8, 4


class Held(Protocol):
    """The interface that grids ask of an operand in registers: a `Placement`."""

    @property
    def name(self) -> str:
        """Of the operand."""

    @property
    def letter(self) -> str:
        """What elements in a register are called."""

    @property
    def layout(self) -> Layout:
        """Over the lanes that hold anything."""

    @property
    def tile(self) -> str:
        """What one of several matrices is called."""

    @property
    def holder(self) -> str:
        """What a lane's number is written after."""

    @property
    def register(self) -> str:
        """What a register is called."""

    @property
    def sigil(self) -> str:
        """What a register's number is written after; empty where that is ``%`` and the letter."""

    @property
    def lanes(self) -> NDArray[np.intp]:
        """The lanes that hold anything."""

    def cell(self, index: int, element: int) -> Cell:
        """An element of the index-th of these lanes."""


def _keep(count: int, most: int, wanted: Collection[int] = ()) -> list[int | None]:
    """The positions to show, None for each stretch that is left out."""
    if count <= most:
        return list(range(count))
    shown = {*range(_FIRST), *range(count - _LAST, count)}
    if len(wanted) <= _FIRST:
        shown.update(each for place in wanted for each in range(place // _ABOUT * _ABOUT, min(count, (place // _ABOUT + 1) * _ABOUT)))
    kept: list[int | None] = []
    for position in range(count):
        if position in shown:
            kept.append(position)
        elif kept[-1] is not None:
            kept.append(None)
    return kept


def matrices(
    held: Held, transpose: bool, fold: bool, whole: bool, highlight: Collection[Cell] | None, names: str, repeats: bool
) -> list[Grid]:
    """`Placement.matrices`."""
    if names not in NAMES:
        raise OperandError(f"{held.name}: names are those of {' or '.join(NAMES)}, not {names!r}")
    lit = None if highlight is None else frozenset(highlight)
    found = _repeats(held, fold, names == "registers") if repeats and lit is None else ()
    tiles = 1 if any(each.axis == _plural(held.tile) for each in found) else held.layout.tiles
    return [_matrix(held, tile, transpose, fold, whole, lit, names, found) for tile in range(tiles)]


def _plural(name: str) -> str:
    return {"matrix": "matrices"}.get(name, f"{name}s")


def _repeats(held: Held, fold: bool, registers: bool) -> tuple[Repeat, ...]:
    """Return what repeats along the sides that are long, also where boxes join neighbours, and from matrix to matrix."""
    import numpy as np

    index, element = np.divmod(held.layout.inverse, held.layout.elements)
    box = _box_size(held, index[0], element[0], fold, registers)
    register, bit = np.divmod(element, held.layout.register_bits // held.layout.bits)
    lane = held.lanes[index]
    found = [repeat(_plural(held.tile), lane, register, bit, smallest=1)] if held.layout.tiles > 1 else []
    for axis, name in ((1, "rows"), (2, "columns")):
        if held.layout.shape[axis - 1] > _LONG_SIDE * box[axis - 1]:
            turned = [np.moveaxis(place, axis, 0) for place in (lane, register, bit)]
            found.append(repeat(name, turned[0], turned[1], turned[2]))
    return tuple(each for each in found if each is not None)


def _matrix(
    held: Held,
    tile: int,
    transpose: bool,
    fold: bool,
    whole: bool,
    lit: frozenset[Cell] | None,
    names: str,
    repeats: tuple[Repeat, ...],
) -> Grid:
    import numpy as np

    index, element = np.divmod(held.layout.inverse[tile], held.layout.elements)
    sizes = {each.axis: each.size for each in repeats}
    index, element = (each[: sizes.get("rows"), : sizes.get("columns")] for each in (index, element))
    if transpose:
        index, element = index.T, element.T
    height, width = _box_size(held, index, element, fold, names == "registers")
    wanted = [((cell.col, cell.row) if transpose else (cell.row, cell.col)) for cell in lit or () if cell.computation == tile]
    rows = _keep(index.shape[0] // height, index.shape[0] if whole else _MOST_ROWS, {row // height for row, _ in wanted})
    cols = _keep(index.shape[1] // width, index.shape[1] if whole else _MOST_COLS, {col // width for _, col in wanted})
    sigil = held.sigil or f"%{held.letter}"

    def box(row: int | None, col: int | None) -> Box | None:
        if row is None or col is None:
            return None
        where = (slice(row * height, (row + 1) * height), slice(col * width, (col + 1) * width))
        places = zip(index[where].ravel(), element[where].ravel(), strict=True)
        cells = tuple(held.cell(int(lane), int(each)) for lane, each in places)
        if names == "registers":
            tail = register_name(cells, sigil, held.layout.register_bits)
        else:
            tail = held.letter + span([cell.element for cell in cells])
        return Box(cells[0].lane, f"{held.holder}{cells[0].lane}", tail, cells)

    shown = f"{held.name}, {held.layout.shape[0]} x {held.layout.shape[1]}" + (", transposed" if transpose else "")
    several = held.layout.tiles > 1 and _plural(held.tile) not in sizes
    return Grid(
        f"{shown}, {held.tile} {tile}" if several else shown,
        tuple(None if row is None else span([*range(row * height, (row + 1) * height)]) for row in rows),
        tuple(None if col is None else span([*range(col * width, (col + 1) * width)]) for col in cols),
        tuple(tuple(box(row, col) for col in cols) for row in rows),
        lit,
        repeats,
        tuple(told(each, variable, _plural(held.register)) for each, variable in zip(repeats, "pqr", strict=False)),
    )


def _box_size(held: Held, index: NDArray[np.intp], element: NDArray[np.intp], fold: bool, registers: bool) -> tuple[int, int]:
    """Rows and columns of the matrix that a box stands for."""
    joined = partial(_run, per_register=held.layout.register_bits // held.layout.bits if registers else 0)
    height, width = (joined(index.T, element.T), joined(index, element)) if fold else (1, 1)
    return (1, width) if registers and width > 1 else (height, width)


def register_file(held: Held, transpose: bool, whole: bool, highlight: Collection[Cell] | None) -> Grid:
    """`Placement.register_file`."""
    import numpy as np

    lit = None if highlight is None else frozenset(highlight)
    layout = held.layout
    places = np.searchsorted(held.lanes, [cell.lane for cell in lit or ()])
    lanes = _keep(layout.lanes, layout.lanes if whole else _MOST_ROWS, set(map(int, places)))
    elements = _keep(layout.elements, layout.elements if whole else _MOST_COLS, {cell.element for cell in lit or ()})

    def box(index: int | None, element: int | None) -> Box | None:
        if index is None or element is None:
            return None
        cell = held.cell(index, element)
        return Box(cell.lane, f"{cell.row},{cell.col}", f"#{cell.computation}" if layout.tiles > 1 else "", (cell,))

    down = tuple(None if index is None else f"{held.holder}{held.lanes[index]}" for index in lanes)
    across = tuple(None if element is None else f"{held.letter}{element}" for element in elements)
    boxes = tuple(tuple(box(index, element) for element in elements) for index in lanes)
    title = f"{_plural(held.register)} of {held.name}: row,column" + (f" #{held.tile}" if layout.tiles > 1 else "")
    if transpose:
        return Grid(title, across, down, tuple(zip(*boxes, strict=True)), lit)
    return Grid(title, down, across, boxes, lit)


def _run(index: NDArray[np.intp], element: NDArray[np.intp], per_register: int) -> int:
    """Return how many neighbours along a row make a box: consecutive elements of one lane, and of one register where its size is given.

    A side that is not long needs no folding by lanes.
    """
    import numpy as np

    side = index.shape[1]
    if side <= _LONG_SIDE and not per_register:
        return 1
    together = (np.diff(index, axis=1) == 0) & (np.diff(element, axis=1) == 1)
    if per_register:
        together &= np.diff(element // per_register, axis=1) == 0
    breaks = np.flatnonzero(~together.all(axis=0)) + 1
    return int(np.gcd.reduce([*breaks, side]))
