"""The epilogue of products of one form: all but the addresses of results and of an addend is known beforehand."""

from __future__ import annotations

from fastmma.host.addresses import address_of
from fastmma.kernels.matrices.addresses import NOWHERE, Matrix
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.sums.epilogue import OUT, SUMS, EpilogueForm, numbers_of, steps_runner


class Finish:
    """An epilogue of C-contiguous f32 sums of so many rows and columns; with the memory of one call at a time.

    Without an epilogue, or with one whose results are f32, sums are where results will be; else, where it `holds` none, where a call says.
    """

    def __init__(self, epilogue: EpilogueForm | None, rows: int, columns: int, *, holds: bool = True) -> None:
        self._rows, self._addends = rows, () if epilogue is None else epilogue.addends
        self._in_place = epilogue is None or epilogue.out == "f32"
        self._run = None if epilogue is None or (self._in_place and not epilogue.rows) else steps_runner()
        if epilogue is None:
            return
        self._epilogue = epilogue  # which holds the memory of other operands
        self._held = AlignedMemory(rows * columns * 4 if holds and not self._in_place else 0)
        out = NOWHERE if self._in_place else Matrix(0, 2 * columns, 2, 2)
        sums = Matrix(self._held.address, 4 * columns, 4, 4)
        self._numbers = numbers_of(sums, out, epilogue.out == "f16", columns, epilogue.rows)
        self._numbers_at = address_of(self._numbers)

    def sums(self, out: int, held: int = 0) -> int:
        """The address of the sums of results at an address; `held` is memory for them, where the epilogue holds none."""
        return out if self._in_place else held or self._held.address

    def run(self, out: int, addend: int, held: int = 0) -> None:
        """Write the results of the sums."""
        if self._run is None:
            return
        self._numbers[SUMS if self._in_place else OUT] = out
        if held and not self._in_place:
            self._numbers[SUMS] = held
        for place in self._addends:
            self._numbers[place] = addend
        self._run(self._numbers_at, 0, self._rows)
