"""Products of one form, computed again and again: shapes, strides and epilogue are known, and a call takes addresses alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.host.addresses import address_of
from fastmma.kernels.fused.batch import Loop, Scratch
from fastmma.kernels.sums.epilogue import EpilogueForm
from fastmma.kernels.sums.finish import Finish


class FixedProduct:
    """A product of whose operands only the addresses change; its results are C-contiguous.

    Threads may share it: each call has memory of its own, which the next one takes over.
    """

    def __init__(self, loop: Loop, count: int, epilogue: EpilogueForm | None) -> None:
        self._loop, self._count, self._epilogue = loop, count, epilogue
        self._free: list[_Memory] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the products of matrices to an address; False, and nothing is written that counts, where one is out of reach.

        `a`, `b` and `start`, where sums begin if the loop has such, are arrays or addresses.
        """
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory(self._loop, self._count, self._epilogue)
        first, sums = memory.zeros if start is None else start, memory.finish.sums(out)
        self._loop.batch(memory.scratch.numbers, a, b, first, sums, memory.bad_at, 0, self._count)
        reached = memory.bad.count(0) == self._count
        if reached:
            memory.finish.run(out, addend)
        self._free.append(memory)
        return reached


class _Memory:
    """The memory of one call: scratch, a byte a product that says whether it is out of reach, and that of the epilogue."""

    def __init__(self, loop: Loop, count: int, epilogue: EpilogueForm | None) -> None:
        self.scratch, self.zeros = Scratch(loop, min(count, loop.at_once)), address_of(loop.zeros)
        self.bad = bytearray(count)
        self.bad_at = address_of(np.frombuffer(self.bad, np.uint8))
        self.finish = Finish(epilogue, count * loop.form.rows, loop.form.columns)
