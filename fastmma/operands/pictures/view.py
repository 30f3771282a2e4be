"""A layout to look at: lookups in both directions, and grids of labels, one a matrix or one a register file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import whole
from fastmma.host.errors import OperandError
from fastmma.isa.layout import Layout, Mode
from fastmma.operands.pictures import drawing
from fastmma.operands.pictures.figure import figure
from fastmma.operands.pictures.formula import formulas
from fastmma.operands.pictures.grid import Box, Cell, Grid

# a longer side is drawn with the neighbours that one lane holds joined
_FOLDED_SIDE = 32
# grids with more rows or columns than this show the first and the last ones, and some about those highlighted
_MOST_ROWS, _MOST_COLS = 64, 32
_FIRST, _LAST, _ABOUT = 16, 8, 4


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}..{numbers[-1]}"


def _kept(count: int, most: int, wanted: Collection[int] = ()) -> list[int | None]:
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


@dataclass(frozen=True)
class Placement:
    """One operand of an instruction in the registers that hold it.

    Attributes
    ----------
    name : str
        ``"a"``, ``"metadata"``, ``"scale_a"``, ...
    kind : str
        What its elements are, for example ``"f16"``.
    letter : str
        What an element in a register is called: ``a`` in a0, a1, ...
    layout : Layout
        Over the lanes that hold anything, in ascending order.
    digits : tuple of Mode
        Digits of the real lane number where only some lanes hold anything: a mode without a step is the choice of the lanes.
    base : int
        The first of those lanes.
    first_bit : int
        The lowest bit of element 0 in its register.
    tile : str
        What one of several matrices is called.
    """

    name: str
    kind: str
    letter: str
    layout: Layout
    digits: tuple[Mode, ...] = ()
    base: int = 0
    first_bit: int = 0
    tile: str = "computation"

    @cached_property
    def lanes(self) -> NDArray[np.intp]:
        """The lanes that hold anything, ascending."""
        if not self.digits:
            return np.arange(self.base, self.base + self.layout.lanes)
        lanes = np.array([self.base], dtype=np.intp)
        place = 1
        for mode in self.digits:
            if any(mode[1:]):
                lanes = (np.arange(mode.size)[:, None] * place + lanes[None, :]).ravel()
            place *= mode.size
        return lanes

    def _cell(self, index: int, element: int) -> Cell:
        """The cell of the index-th lane that holds anything."""
        layout = self.layout
        register, place = divmod(element, layout.register_bits // layout.bits)
        row, col, tile = (int(axis[index, element]) for axis in (layout.rows, layout.cols, layout.tile))
        return Cell(row, col, tile, int(self.lanes[index]), element, register, self.first_bit + place * layout.bits, layout.bits)

    def cells(self) -> list[Cell]:
        """Every element, by lane and then by element index."""
        return [self._cell(index, element) for index in range(self.layout.lanes) for element in range(self.layout.elements)]

    def at(self, row: int, col: int, computation: int = 0) -> Cell:
        """Where an element of the matrix is held.

        Raises
        ------
        OperandError
            If the matrix has no such element.
        """
        return self._cell(*self.layout.position(row, col, computation))

    def copies_of(self, row: int, col: int, computation: int = 0) -> list[Cell]:
        """Every place where an element of the matrix is held: more than one in some wmma fragments and in Tensor Memory.

        Raises
        ------
        OperandError
            If the matrix has no such element.
        """
        offsets = self.layout.offsets
        alike = np.argwhere(offsets == offsets[self.layout.position(row, col, computation)])
        return [self._cell(int(index), int(element)) for index, element in alike]

    def of_lane(self, lane: int) -> list[Cell]:
        """Everything that a lane holds.

        Raises
        ------
        OperandError
            If there is no such lane or it holds nothing of the operand.
        """
        index = np.flatnonzero(self.lanes == (-1 if whole(lane) is None else whole(lane)))
        if not len(index):
            held = ", ".join(map(str, self.lanes)) if self.digits else f"0 to {self.layout.lanes - 1}"
            raise OperandError(f"lane {lane} holds nothing of {self.name}: lanes {held} do")
        return [self._cell(int(index[0]), element) for element in range(self.layout.elements)]

    @property
    def registers(self) -> int:
        """Registers a lane holds: at least one, which scales and metadata may fill in part."""
        return max(1, self.layout.registers)

    def of_register(self, register: int) -> list[Cell]:
        """What one register of every lane holds.

        Raises
        ------
        OperandError
            If the operand has no such register.
        """
        found = whole(register)
        if found is None or not 0 <= found < self.registers:
            raise OperandError(f"{self.name} has no register {register}: there are {self.registers}, counted from 0")
        return [cell for cell in self.cells() if cell.register == found]

    def formulas(self, dialect: str = "c") -> dict[str, str]:
        """Closed formulas of the layout, in both directions.

        Parameters
        ----------
        dialect : {"c", "ptx"}
            C expressions of ``lane`` and the element index ``i`` (and back, of ``row`` and ``col``), or PTX's ``groupID`` and
            ``threadID_in_group`` with their definitions.

        Raises
        ------
        OperandError
            If there is no such dialect.

        Examples
        --------
        >>> layout = Layout((16, 8), lane=(Mode(4, 0, 2), Mode(8, 1, 0)), element=(Mode(2, 0, 1), Mode(2, 8, 0)), bits=32)
        >>> c = Placement("c", "f32", "c", layout)
        >>> c.formulas()["row"], c.formulas("ptx")["row"]
        ('lane / 4 + (i / 2) * 8', 'groupID + ((i >> 1) * 8)')
        """
        return formulas(self.layout, dialect, lane=self.digits, base=self.base, first_bit=self.first_bit, tile=self.tile)

    def _drawing(self, transpose: bool, whole: bool) -> drawing.Drawing:
        return drawing.draw(self.matrices(transpose=transpose, whole=whole))

    def plot(self, *, transpose: bool = False, whole: bool = False) -> Any:
        """Draw which lane (T) holds each element of the matrix, and as which of its elements.

        Parameters
        ----------
        transpose : bool
            Draw the rows of the matrix as columns.
        whole : bool
            Leave nothing out of a large matrix.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        BackendError
            If matplotlib is not installed.
        """
        return figure(self._drawing(transpose, whole))

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
        return self._drawing(transpose=False, whole=False).svg()

    def matrices(
        self, *, transpose: bool = False, fold: bool = True, whole: bool = False, highlight: Collection[Cell] | None = None
    ) -> list[Grid]:
        """Grids of who holds each element of the matrix, one a matrix where a warp holds several.

        Parameters
        ----------
        transpose : bool
            Rows of the matrix as columns of the grid.
        fold : bool
            Join neighbours that one lane holds where a side of the matrix is longer than 32.
        whole : bool
            Leave nothing out.
        highlight : collection of Cell, optional
            Cells to bring out.
        """
        lit = None if highlight is None else frozenset(highlight)
        return [self._matrix(tile, transpose, fold, whole, lit) for tile in range(self.layout.tiles)]

    def _matrix(self, tile: int, transpose: bool, fold: bool, whole: bool, lit: frozenset[Cell] | None) -> Grid:
        index, element = np.divmod(self.layout.inverse[tile], self.layout.elements)
        if transpose:
            index, element = index.T, element.T
        height, width = (_run(index.T, element.T), _run(index, element)) if fold else (1, 1)
        wanted = [((cell.col, cell.row) if transpose else (cell.row, cell.col)) for cell in lit or () if cell.computation == tile]
        rows = _kept(index.shape[0] // height, index.shape[0] if whole else _MOST_ROWS, {row // height for row, _ in wanted})
        cols = _kept(index.shape[1] // width, index.shape[1] if whole else _MOST_COLS, {col // width for _, col in wanted})

        def box(row: int | None, col: int | None) -> Box | None:
            if row is None or col is None:
                return None
            where = (slice(row * height, (row + 1) * height), slice(col * width, (col + 1) * width))
            held = zip(index[where].ravel(), element[where].ravel(), strict=True)
            cells = tuple(self._cell(int(lane), int(each)) for lane, each in held)
            return Box(cells[0].lane, f"T{cells[0].lane}", self.letter + _span([cell.element for cell in cells]), cells)

        shown = f"{self.name}, {self.layout.shape[0]} x {self.layout.shape[1]}" + (", transposed" if transpose else "")
        return Grid(
            f"{shown}, {self.tile} {tile}" if self.layout.tiles > 1 else shown,
            tuple(None if row is None else _span([*range(row * height, (row + 1) * height)]) for row in rows),
            tuple(None if col is None else _span([*range(col * width, (col + 1) * width)]) for col in cols),
            tuple(tuple(box(row, col) for col in cols) for row in rows),
            lit,
        )

    def register_file(self, *, transpose: bool = False, whole: bool = False, highlight: Collection[Cell] | None = None) -> Grid:
        """A grid of what each lane holds: lanes down, elements across. The parameters are those of `matrices`."""
        lit = None if highlight is None else frozenset(highlight)
        layout = self.layout
        places = np.searchsorted(self.lanes, [cell.lane for cell in lit or ()])
        lanes = _kept(layout.lanes, layout.lanes if whole else _MOST_ROWS, set(map(int, places)))
        elements = _kept(layout.elements, layout.elements if whole else _MOST_COLS, {cell.element for cell in lit or ()})

        def box(index: int | None, element: int | None) -> Box | None:
            if index is None or element is None:
                return None
            cell = self._cell(index, element)
            return Box(cell.lane, f"{cell.row},{cell.col}", f"#{cell.computation}" if layout.tiles > 1 else "", (cell,))

        down = tuple(None if index is None else f"T{self.lanes[index]}" for index in lanes)
        across = tuple(None if element is None else f"{self.letter}{element}" for element in elements)
        boxes = tuple(tuple(box(index, element) for element in elements) for index in lanes)
        title = f"registers of {self.name}: row,column" + (f" #{self.tile}" if layout.tiles > 1 else "")
        if transpose:
            return Grid(title, across, down, tuple(zip(*boxes, strict=True)), lit)
        return Grid(title, down, across, boxes, lit)


def _run(index: NDArray[np.intp], element: NDArray[np.intp]) -> int:
    """How many neighbours along a row one lane holds as consecutive elements; 1 for sides that need no folding."""
    side = index.shape[1]
    if side <= _FOLDED_SIDE:
        return 1
    together = (np.diff(index, axis=1) == 0) & (np.diff(element, axis=1) == 1)
    breaks = np.flatnonzero(~together.all(axis=0)) + 1
    return int(np.gcd.reduce([*breaks, side]))
