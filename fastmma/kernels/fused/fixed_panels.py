"""Products of one form in panels, computed again and again by one thread: all but the addresses of their operands is known.

Both operands are packed as in `fastmma.kernels.fused.packed`, and multiplied by the same loops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from fastmma.host.addresses import address_of
from fastmma.kernels.fused.lanes import PanelConfig, PanelShape
from fastmma.kernels.fused.macro_tile import Extent, Limits, WorkerMemory, run_macro_tile
from fastmma.kernels.fused.magnitudes import spread_of_matrix
from fastmma.kernels.fused.micro_kernel import SLAB
from fastmma.kernels.fused.packed import PACK_ROWS, config_of, limits_of, slab_depth_of, spec_of
from fastmma.kernels.fused.panel_packing import pack_rows
from fastmma.kernels.fused.panels import PanelElementSpec, Panels
from fastmma.kernels.fused.reach import Spread, exponent_bytes
from fastmma.kernels.fused.word_packing import scratch_of_rows
from fastmma.kernels.fused.worker_memory import ahead, sizes_of_worker
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.simd import store
from fastmma.kernels.matrices.addresses import NOWHERE, Matrix
from fastmma.kernels.matrices.memory import LINE, AlignedMemory
from fastmma.kernels.params import Element, Fused
from fastmma.kernels.sums.epilogue import EpilogueForm
from fastmma.kernels.sums.finish import Finish
from fastmma.kernels.tiles import FUSED, FusedTile, tile_of_cpu

_PACKED = 4  # parts of the memory for packed A and for packing it; then come those of a worker, and the sums


class PanelForm(NamedTuple):
    """Shapes of a product, and strides in bytes of a (M, K) and b (K, N)."""

    rows: int
    columns: int
    depth: int
    a: tuple[int, int]
    b: tuple[int, int]


class _Code(NamedTuple):
    """The micro-kernel for operands of some exponents, and what it needs to know of them."""

    spreads: tuple[Spread, Spread]
    shape: PanelShape
    kernel: int
    left: PanelElementSpec
    right: PanelElementSpec
    limits: Limits


@lru_cache(1024)
def _code(p: Fused, spreads: tuple[Spread, Spread], depth: int, tiles: FusedTile) -> _Code:
    bytes_ = exponent_bytes(p, *spreads)
    config = config_of(p, tiles, bytes_.added)
    left, right = spec_of(p.a, config, False, depth, bytes_), spec_of(p.b, config, True, depth, bytes_)
    return _Code(spreads, config.shape, SLAB.address(config), left, right, limits_of(p, config, bytes_))


@compiled
def multiply_panels(
    shape: Any,
    kernel: int,
    terms: int,
    size: tuple[int, int, int],
    packed: Panels,
    how_a: PanelElementSpec,
    a: Matrix,
    how_b: PanelElementSpec,
    b: Matrix,
    out: Matrix,
    limits: Limits,
    work: WorkerMemory,
    dtype: Any,
    arranged: int,
    extremes: Any,
    smallest: Any,
    bad_rows: Any,
    bad_columns: Any,
    reached: int,
) -> None:
    """Pack A, and multiply it by one panel of B after another; 1 is stored where `reached` lies if every sum is within reach, else 0.

    `size` is M, N and K.
    """
    rows, columns, depth = size
    for first in range(0, packed.rows, PACK_ROWS):
        last = min(first + PACK_ROWS, packed.rows)
        pack_rows(how_a, a, first, last, rows, depth, terms, packed, dtype, arranged, extremes, None)
    bad = 0
    for row in range(rows):
        if extremes[row, 1] >= how_a.first_bad:
            bad = 1
        smallest[row] = max(extremes[row, 0] >> how_a.element.mantissa_bits, 1)
    if bad == 0:
        for column in range(0, columns, shape.panel):
            extent = Extent(0, packed.rows - shape.rows, column, columns, depth)
            marks = bad_columns[: min(shape.panel, columns - column)]
            run_macro_tile(
                shape, kernel, terms, extent, None, packed, smallest, how_b, b, NOWHERE, out, limits, work, dtype, bad_rows, marks, None
            )
            for row in range(rows):
                bad |= bad_rows[row]
            for place in range(marks.size):
                bad |= marks[place]
    store(np.int64(bad == 0), reached)


@lru_cache(1024)
def _multiplier(shape: PanelShape, dtype: type) -> Callable[..., None]:
    """`multiply_panels` for such arguments."""
    how, somewhere = PanelElementSpec(Element(0, 0, 0, 0, 0), 0, 0, 0, 0, 0, 0.0, 0.0), NOWHERE  # these stand for any
    first = shape, 0, 0, (0, 0, 0), Panels(*[0] * 6), how, somewhere, how, somewhere, somewhere
    second = Limits(*[0] * 7), WorkerMemory(*[0] * 10), dtype, 0
    arrays = kinds.Array(kinds.int32, 2), kinds.Array(kinds.int32, 1), *[kinds.Array(kinds.uint8, 1)] * 2
    return emitted(multiply_panels, *map(kinds.kind_of, (*first, *second)), *arrays, kinds.int64)


class _Worker(threading.local):
    """The memory that a thread's last product took, for the next one."""

    size = 0
    memory: AlignedMemory | None = None


_worker = _Worker()


class FixedPanels:
    """A product of whose operands only the addresses change; its results are C-contiguous.

    Threads may share it: each call has memory of its own, which the next one takes over.
    """

    def __init__(self, p: Fused, form: PanelForm, epilogue: EpilogueForm | None) -> None:
        self._p, self._form, self._epilogue, self._tiles = p, form, epilogue, tile_of_cpu(FUSED)
        config = config_of(p, self._tiles)
        self._rounds_alone = epilogue is not None and epilogue.rounds_alone and not config.half
        self._terms, self._dtype = config.terms, np.float32 if config.single else np.float64
        self._run = _multiplier(config.shape, self._dtype)
        self._code: _Code | None = None  # of the last product
        self._free: list[_Memory] = []

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the product of matrices to an address; False, and nothing is written that counts, where one is out of reach.

        `a` and `b` are arrays or addresses.
        """
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory(config_of(self._p, self._tiles), self._form, self._epilogue)
        size, held = _worker.size, _worker.memory
        _worker.memory = None  # a signal handler may need some, too
        if held is None or size < memory.size:
            size, held = memory.size, AlignedMemory(memory.size)
        memory.lie_at(held.address)
        if self._rounds_alone:
            reached = self._multiply(memory, _address(a), _address(b), Matrix(out, 2 * self._form.columns, 2, 2))
        else:
            sums = Matrix(memory.finish.sums(out, memory.sums), 4 * self._form.columns, 4, 4)
            reached = self._multiply(memory, _address(a), _address(b), sums)
            if reached:
                memory.finish.run(out, addend, memory.sums)
        _worker.size, _worker.memory = size, held
        self._free.append(memory)
        return reached

    def _multiply(self, memory: _Memory, a: int, b: int, out: Matrix) -> bool:
        """Write the sums, rounded to bf16 where results are of two bytes; False where some are out of reach."""
        p, (rows, columns, depth, a_strides, b_strides) = self._p, self._form
        left, right = Matrix(a, *a_strides, p.a.itemsize), Matrix(b, *b_strides, p.b.itemsize)
        spreads = spread_of_matrix(p.a, left, rows, depth, 1), spread_of_matrix(p.b, right, depth, columns, 1)
        code = self._code
        if code is None or code.spreads != spreads:
            code = self._code = _code(p, spreads, depth, self._tiles)
        size, dtype = (rows, columns, depth), self._dtype
        self._run(
            code.shape, code.kernel, self._terms, size, memory.panels, code.left, left, code.right, right, out, code.limits,
            memory.worker, dtype, memory.arranged, *memory.notes, memory.reached.ctypes.data,
        )  # fmt: skip
        return bool(memory.reached[0])


class _Memory:
    """The memory of one call: that of its own, and places in what it shares with other products of the thread."""

    def __init__(self, config: PanelConfig, form: PanelForm, epilogue: EpilogueForm | None) -> None:
        high = -(-form.rows // config.rows) * config.rows
        depth = slab_depth_of(config, form.depth, None)
        held_rows = high + ahead(config)
        held = held_rows * -(-form.depth // depth) * depth
        packed = held * config.value_bytes, held * 4, held // min(config.terms, 8) * 4, scratch_of_rows(PACK_ROWS)
        self._sizes = *packed, *sizes_of_worker(config, high, False), 4 * form.rows * form.columns
        self._starts = [0, *accumulate(-(-each // LINE) * LINE for each in self._sizes)]
        self.size = self._starts.pop()
        self._base, self._panels = 0, Panels(0, 0, 0, depth, held_rows, config.rows)
        bad_rows, bad_columns = np.empty(form.rows, np.uint8), np.empty(config.panel, np.uint8)
        self.notes = np.empty((form.rows, 2), np.int32), np.empty(form.rows, np.int32), bad_rows, bad_columns
        self.reached = np.zeros(1, np.int64)
        self.finish = Finish(epilogue, form.rows, form.columns, holds=False)

    def lie_at(self, base: int) -> None:
        """Place all parts behind an address."""
        if base == self._base:
            return
        places = [base + start for start in self._starts]
        self._base, self.arranged, self.sums = base, places[_PACKED - 1], places[-1]
        self.panels = self._panels._replace(values=places[0], exponents=places[1], signs=places[2])
        self.worker = WorkerMemory(*places[_PACKED:-1])


def _address(given: Any) -> int:
    return given if type(given) is int else address_of(given)
