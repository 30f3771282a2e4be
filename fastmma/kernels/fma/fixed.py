"""Products of one form by chains of fma, computed again and again, whose k may be cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastmma.host.addresses import address_of
from fastmma.kernels.fma.chain_kernel import FmaConfig
from fastmma.kernels.fma.chains import config_of
from fastmma.kernels.fma.parts_kernel import PARTS, Places, Sizes
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import PartsOfK
from fastmma.kernels.sums.epilogue import EpilogueForm
from fastmma.kernels.sums.finish import Finish

_NUMBER = {name: place for place, name in enumerate((*Places._fields, *Sizes._fields))}


class ChainForm(NamedTuple):
    """Shapes of products, strides in bytes of a (products, M, K) and b (products, K, N), and the parts of k."""

    products: int
    rows: int
    columns: int
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    parts: PartsOfK


class FixedChains:
    """Products of float32 matrices of whose operands only the addresses change; their results are C-contiguous.

    Threads may share it: each call has memory of its own, which the next one takes over.
    """

    def __init__(self, form: ChainForm, epilogue: EpilogueForm | None) -> None:
        self._form, self._epilogue, self._config = form, epilogue, _config(form.columns)
        self._run = PARTS.function(self._config)
        self._parts = [np.array(each, np.int64).ravel() for each in (form.parts.k, (0, *form.parts.stops), form.parts.joins)]
        self._free: list[_Memory] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the products of matrices to an address; every product is within reach.

        `a`, `b` and `start`, where the first parts begin if there is such, are arrays or addresses.
        """
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory(self._form, self._config, self._parts, self._epilogue)
        numbers = memory.numbers
        numbers[_A], numbers[_B], numbers[_OUT] = _address(a), _address(b), memory.finish.sums(out)
        numbers[_START] = 0 if start is None else _address(start)
        self._run(memory.numbers_at)
        memory.finish.run(out, addend)
        self._free.append(memory)
        return True


_A, _B, _START, _OUT = (_NUMBER[name] for name in ("a", "b", "start", "out"))


class _Memory:
    """The memory of one call: packed operands, a tile of sums for each part, the numbers of the kernel, and that of the epilogue."""

    def __init__(self, form: ChainForm, config: FmaConfig, parts: Sequence[Any], epilogue: EpilogueForm | None) -> None:
        depth, tile = len(form.parts.k), 4 * config.rows * config.columns
        rows = -(-form.rows // config.rows) * config.rows
        self._held = AlignedMemory(4 * rows * depth, 4 * config.columns * depth, tile * len(form.parts.stops), zeroed=True)
        self._parts = parts
        places = Places(0, 0, 0, 0, *self._held.addresses, *map(address_of, parts))
        joins = form.parts.joins
        counts = form.products, form.rows, form.columns, depth, len(form.parts.stops), len(joins), joins[-1][0] if joins else 0
        (a_product, a_line, a_k), (b_product, b_k, b_line) = form.a, form.b
        self.numbers = np.array([*places, *Sizes(*counts, a_product, a_line, a_k, b_product, b_k, b_line)], np.int64)
        self.numbers_at = address_of(self.numbers)
        self.finish = Finish(epilogue, form.products * form.rows, form.columns)


def _config(columns: int) -> FmaConfig:
    """The register tile that fills up fewer columns; of two alike the wider one."""
    widest = config_of(32)
    tiles = [replace(widest, vectors=vectors) for vectors in range(widest.vectors, 0, -1)]
    return min(tiles, key=lambda tile: -(-columns // tile.columns) * tile.columns)


def _address(given: Any) -> int:
    return given if type(given) is int else address_of(given)
