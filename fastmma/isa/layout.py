"""Layouts of a matrix over lanes: strides, the index arrays that follow, and register packing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fastmma.host.errors import OperandError
from fastmma.host.integers import whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Mode(NamedTuple):
    """`size` consecutive lanes or elements; each step moves by `row` rows, `col` columns and `tile` computations."""

    size: int
    row: int
    col: int
    tile: int = 0


class Place(NamedTuple):
    """The place of an element: its lane, its index among the lane's elements, its register, and its lowest bit in it."""

    lane: int
    element: int
    register: int
    bit: int


@lru_cache(1024)
def _walk(lane: tuple[Mode, ...], element: tuple[Mode, ...], axis: int) -> NDArray[np.intp]:
    """Coordinate `axis` of a Mode (1 row, 2 column, 3 tile) for every (lane, element)."""
    import numpy as np

    total = np.zeros((1, 1), dtype=np.intp)
    for modes, as_lane in ((lane, True), (element, False)):
        digits = np.zeros(1, dtype=np.intp)
        for mode in modes:
            digits = (np.arange(mode.size)[:, None] * mode[axis] + digits[None, :]).ravel()
        total = total + (digits[:, None] if as_lane else digits[None, :])
    total.flags.writeable = False
    return total


@dataclass(frozen=True)
class Layout:
    """The distribution of a matrix over the lanes of a warp (or warpgroup).

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of one matrix.
    lane, element : tuple of Mode
        Mixed-radix digits of the lane number and of the element index, fastest first. An element mode that does not move holds copies.
    bits : int
        Width of an element's container in a register.
    tiles : int
        Matrices a warp holds at once: 4 for m8n8k4 with f16, else 1.
    lane_numbers : tuple of int
        The numbers of the lanes where some are left out; empty where they are 0, 1, 2, ...

    Raises
    ------
    ValueError
        If lanes and elements do not hold every place of the matrices equally often.

    Examples
    --------
    The accumulator of every m16n8 instruction:

    >>> c = Layout((16, 8), lane=(Mode(4, 0, 2), Mode(8, 1, 0)), element=(Mode(2, 0, 1), Mode(2, 8, 0)), bits=32)
    >>> c.rows[5], c.cols[5]
    (array([1, 1, 9, 9]), array([2, 3, 2, 3]))
    >>> c.find(9, 3)
    Place(lane=5, element=3, register=3, bit=0)
    """

    shape: tuple[int, int]
    lane: tuple[Mode, ...]
    element: tuple[Mode, ...]
    bits: int
    tiles: int = 1
    lane_numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (self._is_compact() or self._is_even()):
            raise ValueError(f"the layout of a {self.shape[0]}x{self.shape[1]} matrix is not a bijection")

    def _is_compact(self) -> bool:
        """Tell whether the modes that move are digits of the place in the matrices: then each place is held equally often."""
        moving = [mode for mode in (*self.lane, *self.element) if mode.row or mode.col or mode.tile]
        place = 1
        for step, size in sorted(((mode.tile * self.shape[0] + mode.row) * self.shape[1] + mode.col, mode.size) for mode in moving):
            if step != place:
                return False
            place *= size
        return place == self.tiles * math.prod(self.shape)

    def _is_even(self) -> bool:
        """Tell whether each place is held equally often by counting, as of layouts whose modes are no digits."""
        import numpy as np

        held = np.bincount(self.offsets.ravel(), minlength=self.tiles * math.prod(self.shape))
        return len(held) == self.tiles * math.prod(self.shape) and bool((held == self.copies).all())

    @cached_property
    def lanes(self) -> int:
        """Lanes that hold the matrix: 32 for a warp, 128 for a warpgroup."""
        return math.prod(mode.size for mode in self.lane)

    @cached_property
    def elements(self) -> int:
        """Elements a lane holds."""
        return math.prod(mode.size for mode in self.element)

    @property
    def copies(self) -> int:
        """How often lanes hold each element: twice or more for some wmma fragments and A in Tensor Memory, else once."""
        return math.prod(mode.size for mode in (*self.lane, *self.element) if not (mode.row or mode.col or mode.tile))

    @cached_property
    def register_bits(self) -> int:
        """Width of a register: 64 for f64, else 32."""
        return max(32, self.bits)

    @cached_property
    def register_dtype(self) -> np.dtype[Any]:
        """uint64 for f64, else uint32."""
        import numpy as np

        return np.dtype(f"u{self.register_bits // 8}")

    @cached_property
    def registers(self) -> int:
        """Registers a lane holds."""
        return self.elements * self.bits // self.register_bits

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """Row of each (lane, element)."""
        return _walk(self.lane, self.element, 1)

    @cached_property
    def cols(self) -> NDArray[np.intp]:
        """Column of each (lane, element)."""
        return _walk(self.lane, self.element, 2)

    @cached_property
    def tile(self) -> NDArray[np.intp]:
        """Computation of each (lane, element): all zero unless a warp does several at once."""
        return _walk(self.lane, self.element, 3)

    @cached_property
    def offsets(self) -> NDArray[np.intp]:
        """Position of each (lane, element) in the row-major matrices."""
        return (self.tile * self.shape[0] + self.rows) * self.shape[1] + self.cols

    @cached_property
    def inverse(self) -> NDArray[np.intp]:
        """For each (tile, row, column), ``lane * elements + element`` of its first copy."""
        import numpy as np

        inverse = np.argsort(self.offsets.ravel(), kind="stable")[:: self.copies].reshape(self.tiles, *self.shape)
        inverse.flags.writeable = False
        return inverse

    def position(self, row: int, col: int, tile: int = 0) -> tuple[int, int]:
        """Return which of the lanes that hold the matrix, counted from 0, and which of its elements one element of the matrix is.

        Raises
        ------
        OperandError
            If the matrix has no such element.
        """
        given, place = (row, col, tile), tuple(map(whole, (row, col, tile)))
        if None in place:
            raise OperandError(f"an element of a matrix has integers for places, not {given}")
        row, col, tile = (int(each or 0) for each in place)
        if not (0 <= row < self.shape[0] and 0 <= col < self.shape[1] and 0 <= tile < self.tiles):
            where = f"({row}, {col})" if self.tiles == 1 else f"({row}, {col}) of computation {tile}"
            raise OperandError(f"a {self.shape[0]}x{self.shape[1]} matrix has no element {where}")
        return divmod(int(self.inverse[tile, row, col]), self.elements)

    def find(self, row: int, col: int, tile: int = 0) -> Place:
        """The lane, element, register and bit that hold one element of the matrix.

        Raises
        ------
        OperandError
            If the matrix has no such element.
        """
        lane, element = self.position(row, col, tile)
        lane = self.lane_numbers[lane] if self.lane_numbers else lane
        return Place(lane, element, *divmod(element * self.bits, self.register_bits))

    @cached_property
    def column_major(self) -> bool:
        """True if the elements of one register follow each other down a column rather than along a row."""
        return self.register_bits > self.bits and self.element[0].row == 1

    @cached_property
    def words(self) -> NDArray[np.int32]:
        """Registers (``lane * registers + register``) that hold each register-sized word of the stored matrix: (copies, words).

        The matrix is stored row-major, or column-major where `column_major`, its elements as wide as their containers. Then the elements
        of a register are one word of it, and going between matrix and registers is a permutation of words.
        """
        import numpy as np

        per_register = self.register_bits // self.bits
        rows, cols = self.shape
        position = (self.tile * cols + self.cols) * rows + self.rows if self.column_major else self.offsets
        grouped = position.reshape(self.lanes * self.registers, per_register)
        if not (np.diff(grouped, axis=1) == 1).all() or (grouped[:, 0] % per_register).any():
            raise ValueError("the elements of a register are not neighbours in the matrix")
        table = np.argsort(grouped[:, 0], kind="stable").astype(np.int32).reshape(-1, self.copies).T.copy()
        table.flags.writeable = False
        return table
