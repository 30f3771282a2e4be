"""Products of one form, computed again and again: shapes, strides and epilogue are known, and a call takes addresses alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.fused.batch import Loop, Scratch
from fastmma.kernels.matrices.addresses import NOWHERE, Matrix, address_of
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.sums.epilogue import OUT, SUMS, EpilogueForm, numbers_of, steps_runner


class FixedProduct:
    """A product of whose operands only the addresses change; its results are C-contiguous.

    Threads may share it: each call has memory of its own, which the next one takes over.
    """

    def __init__(self, loop: Loop, count: int, epilogue: EpilogueForm | None) -> None:
        self._loop, self._count, self._epilogue = loop, count, epilogue
        self._rows = count * loop.form.rows
        self._in_place = epilogue is None or epilogue.out == "f32"
        self._finish = None if epilogue is None or (self._in_place and not epilogue.rows) else steps_runner()
        self._free: list[_Memory] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the products of matrices to an address; False, and nothing is written that counts, where one is out of reach.

        `a`, `b` and `start`, where sums begin if the loop has such, are arrays or addresses.
        """
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory(self._loop, self._count, self._epilogue)
        sums = out if self._in_place else memory.sums
        self._loop.batch(memory.scratch.numbers, a, b, memory.zeros if start is None else start, sums, memory.bad_at, 0, self._count)
        reached = memory.bad.count(0) == self._count
        if reached and self._finish is not None:
            numbers, epilogue = memory.numbers, self._epilogue
            assert epilogue is not None
            numbers[SUMS if self._in_place else OUT] = out
            for place in epilogue.addends:
                numbers[place] = addend
            self._finish(memory.numbers_at, 0, self._rows)
        self._free.append(memory)
        return reached


class _Memory:
    """The memory of one call: scratch, sums, a byte a product that says whether it is out of reach, and the numbers of the epilogue."""

    def __init__(self, loop: Loop, count: int, epilogue: EpilogueForm | None) -> None:
        columns = loop.form.columns
        self.scratch, self.zeros = Scratch(loop, min(count, loop.at_once)), address_of(loop.zeros)
        self.bad = bytearray(count)
        self.bad_at = address_of(np.frombuffer(self.bad, np.uint8))
        if epilogue is None:
            return
        narrow = epilogue.out != "f32"
        self._held = AlignedMemory(count * loop.form.rows * columns * 4 if narrow else 0)
        self.sums = self._held.address
        out = Matrix(0, 2 * columns, 2, 2) if narrow else NOWHERE
        self.numbers = numbers_of(Matrix(self.sums, 4 * columns, 4, 4), out, epilogue.out == "f16", columns, epilogue.rows)
        self.numbers_at = address_of(self.numbers)
