"""A layout to look at: lookups in both directions, and grids of labels, one a matrix or one a register file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastmma.host.errors import OperandError
from fastmma.host.integers import whole
from fastmma.isa.layout import Layout, Mode
from fastmma.operands.pictures import grids
from fastmma.operands.pictures.formula import formulas
from fastmma.operands.pictures.grid import Cell, Grid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    from fastmma.host.figures.drawing import Drawing


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
    holder, register, sigil : str
        What a lane's number is written after; what a register is called, and what its number is written after, where that is not ``%`` and
        the letter.
    """

    name: str
    kind: str
    letter: str
    layout: Layout
    digits: tuple[Mode, ...] = ()
    base: int = 0
    first_bit: int = 0
    tile: str = "computation"
    holder: str = "T"
    register: str = "register"
    sigil: str = ""

    @cached_property
    def lanes(self) -> NDArray[np.intp]:
        """The lanes that hold anything, ascending."""
        import numpy as np

        if not self.digits:
            return np.arange(self.base, self.base + self.layout.lanes)
        lanes = np.array([self.base], dtype=np.intp)
        place = 1
        for mode in self.digits:
            if any(mode[1:]):
                lanes = (np.arange(mode.size)[:, None] * place + lanes[None, :]).ravel()
            place *= mode.size
        return lanes

    def cell(self, index: int, element: int) -> Cell:
        """An element of the index-th of the lanes that hold anything."""
        layout = self.layout
        register, bit = divmod(element * layout.bits, layout.register_bits)
        row, col, tile = (int(axis[index, element]) for axis in (layout.rows, layout.cols, layout.tile))
        return Cell(row, col, tile, int(self.lanes[index]), element, register, self.first_bit + bit, layout.bits)

    def _cells(self, index: NDArray[np.intp], element: NDArray[np.intp]) -> list[Cell]:
        """`cell` of many: arrays are looked up once for all."""
        import numpy as np

        layout = self.layout
        register, bit = np.divmod(element * layout.bits, layout.register_bits)
        matrix = (axis[index, element] for axis in (layout.rows, layout.cols, layout.tile))
        fields = (*matrix, self.lanes[index], element, register, self.first_bit + bit)
        return [Cell._make((*values, layout.bits)) for values in zip(*(each.tolist() for each in fields), strict=True)]

    def cells(self) -> list[Cell]:
        """Every element, by lane and then by element index."""
        import numpy as np

        index, element = np.indices((self.layout.lanes, self.layout.elements))
        return self._cells(index.ravel(), element.ravel())

    def at(self, row: int, col: int, computation: int = 0) -> Cell:
        """Return where an element of the matrix is held.

        Raises
        ------
        OperandError
            If the matrix has no such element.
        """
        return self.cell(*self.layout.position(row, col, computation))

    def copies_of(self, row: int, col: int, computation: int = 0) -> list[Cell]:
        """Every place where an element of the matrix is held: more than one in some wmma fragments and in Tensor Memory.

        Raises
        ------
        OperandError
            If the matrix has no such element.
        """
        import numpy as np

        offsets = self.layout.offsets
        return self._cells(*np.nonzero(offsets == offsets[self.layout.position(row, col, computation)]))

    def of_lane(self, lane: int) -> list[Cell]:
        """Everything that a lane holds.

        Raises
        ------
        OperandError
            If there is no such lane or it holds nothing of the operand.
        """
        import numpy as np

        index = np.flatnonzero(self.lanes == (-1 if whole(lane) is None else whole(lane)))
        if not len(index):
            held = ", ".join(map(str, self.lanes)) if self.digits else f"0 to {self.layout.lanes - 1}"
            raise OperandError(f"lane {lane} holds nothing of {self.name}: lanes {held} do")
        return self._cells(np.repeat(index, self.layout.elements), np.arange(self.layout.elements))

    @property
    def registers(self) -> int:
        """Registers a lane holds: at least one, which scales and metadata may fill in part."""
        return max(1, self.layout.registers)

    def of_register(self, register: int) -> list[Cell]:
        """Return what one register of every lane holds.

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

    def _drawing(self, transpose: bool, whole: bool) -> Drawing:
        from fastmma.operands.pictures import painting  # which takes longer to import than what shows no picture

        return painting.draw(painting.in_pairs(self.matrices(transpose=transpose, whole=whole, names="registers", repeats=not whole)))

    def plot(self, *, transpose: bool = False, whole: bool = False) -> Any:
        """Draw which lane (T) and register hold each element of the matrix; a pattern that repeats is drawn once.

        Parameters
        ----------
        transpose : bool
            Draw the rows of the matrix as columns.
        whole : bool
            Draw what repeats, too.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        BackendError
            If matplotlib is not installed.
        """
        from fastmma.host.figures.figure import figure

        return figure(self._drawing(transpose, whole))

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
        return self._drawing(transpose=False, whole=False).svg()

    def matrices(
        self,
        *,
        transpose: bool = False,
        fold: bool = True,
        whole: bool = False,
        highlight: Collection[Cell] | None = None,
        names: str = "elements",
        repeats: bool = False,
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
        names : {"elements", "registers"}
            What a box says beside its lane: the element's index in the lane (``a3``), or its register (``%a1.h1``); then neighbours in one
            register are one box.
        repeats : bool
            Draw a pattern that repeats once, unless cells are to be brought out.
        """
        return grids.matrices(self, transpose, fold, whole, highlight, names, repeats)

    def register_file(self, *, transpose: bool = False, whole: bool = False, highlight: Collection[Cell] | None = None) -> Grid:
        """A grid of what each lane holds: lanes down, elements across. The parameters are those of `matrices`."""
        return grids.register_file(self, transpose, whole, highlight)
