"""Small products of groups on AMX in one go, without Python in between where shapes came before."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from fastmma.host.addresses import address_of
from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.llvm.amx import TILE_BYTES
from fastmma.kernels.matrices.memory import places_of
from fastmma.kernels.params import Scaled
from fastmma.kernels.scaled.amx_group_kernel import CHUNK, KERNEL, AmxGroupConfig
from fastmma.kernels.scaled.amx_group_kernel import SCRATCH as SCRATCH_OF_SUMS
from fastmma.kernels.scaled.amx_group_panels import FACTS, SCRATCH, VERDICT, functions
from fastmma.kernels.scaled.amx_groups import KEPT, adjacent, highest_sum, left_of, right_of, shift_of, tables_of
from fastmma.kernels.scaled.lines import ScaledOperands, write

_ONE = np.float32(1)
_NUMBERS = struct.Struct("=12q").pack
_word_at = ctypes.c_int64.from_address


class FixedGroups:
    """A product of a shape (rows, columns, k) without c, computed again and again by one thread."""

    def __init__(self, p: Scaled, shape: tuple[int, int, int], plain: bool = False) -> None:
        self._how, self._shift, self._highest = AmxGroupConfig(p.step // CHUNK, plain), shift_of(p), highest_sum(p)
        self._shape, self._steps, self._tables = shape, -(-shape[2] // p.step), tables_of(p.scale).addresses
        self._functions, self._multiply = functions(self._how), KERNEL.function(self._how)
        self._good = np.ones(shape[0], np.bool_)
        step = self._how.chunks * 2 * TILE_BYTES
        self._block_bytes = self._steps * step
        rows, columns = (-(-lines // BLOCK) * self._block_bytes for lines in shape[:2])
        *self._places, self._size = places_of(rows, columns, 2 * FACTS, 8 * VERDICT, max(SCRATCH, SCRATCH_OF_SUMS))

    def __call__(self, operands: ScaledOperands, factor: np.float32 = _ONE) -> bool:
        """Write the product, times a factor, to its `out`, a C-contiguous array; False where it is out of reach, and `out` is anything."""
        with KEPT.lent(self._size) as memory:
            done = self._run(operands, memory)
        if done and factor != _ONE:
            results = operands.out.view(np.int32)
            write(results, self._good, results, factor)
        return done

    def _run(self, operands: ScaledOperands, memory: int) -> bool:
        rows, columns, depth = self._shape
        panels_of_a, panels_of_b, facts, verdict, room = (memory + place for place in self._places)
        tables, (along, across, judge) = self._tables, self._functions
        a, b = adjacent(operands.a, operands.b)
        along(*left_of(a, operands.scale_a, self._shift), tables, depth, 0, rows, panels_of_a, facts, room, 0)
        pack = along if b.strides[0] == 1 else across
        pack(*right_of(b, operands.scale_b, self._shift), tables, depth, 0, columns, panels_of_b, facts + FACTS, room, 1)
        judge(facts, 1, facts + FACTS, 1, self._steps, self._highest, verdict)
        if not _word_at(verdict).value:
            return False
        steps = self._block_bytes, self._block_bytes // 2
        numbers = panels_of_a, panels_of_b, 0, address_of(operands.out), room, *steps, 0, 4 * columns, self._steps, rows, columns
        self._multiply(_NUMBERS(*numbers))  # type: ignore[arg-type]  # ctypes takes bytes
        return True
