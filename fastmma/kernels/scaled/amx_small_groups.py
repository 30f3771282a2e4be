"""Small products of groups on AMX: one call of compiled code where shapes came before."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import isfinite

import numpy as np

from fastmma.host.addresses import address_of
from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.llvm.amx import TILE_BYTES
from fastmma.kernels.matrices.memory import LINE, places_of
from fastmma.kernels.params import Scaled
from fastmma.kernels.scaled.amx_group_kernel import CHUNK, KERNEL, AmxGroupConfig
from fastmma.kernels.scaled.amx_group_kernel import SCRATCH as SCRATCH_OF_SUMS
from fastmma.kernels.scaled.amx_group_panels import FACTS, SCRATCH
from fastmma.kernels.scaled.amx_group_whole import whole
from fastmma.kernels.scaled.amx_groups import KEPT, adjacent, highest_sum, left_of, right_of, shift_of, tables_of
from fastmma.kernels.scaled.lines import ScaledOperands, write

_ONE = np.float32(1)
_ROWS_BYTES = 1 << 15  # of A that are packed and multiplied before the next ones: they stay in the nearest cache
_word_at = ctypes.c_int64.from_address


class FixedGroups:
    """A product of a shape (rows, columns, k) without c, computed again and again by one thread."""

    def __init__(self, p: Scaled, shape: tuple[int, int, int], plain: bool = False) -> None:
        how, (rows, columns, depth) = AmxGroupConfig(p.step // CHUNK, plain), shape
        self._shape, self._shift, self._highest, self._held = shape, shift_of(p), highest_sum(p), tables_of(p.scale)
        self._tables = self._held.addresses
        self._plain, self._multiply = plain, whole(how)
        self._kernel, self._kernel_by_factor = KERNEL.address(how), 0 if plain else KERNEL.address(replace(how, factor=True))
        block_bytes = -(-depth // p.step) * how.chunks * 2 * TILE_BYTES
        blocks = min(-(-rows // BLOCK), max(1, _ROWS_BYTES // block_bytes))
        self._rows, pieces = blocks * BLOCK, -(-rows // (blocks * BLOCK))
        panels = (blocks + -(-columns // BLOCK)) * block_bytes
        *self._places, self._size = places_of(panels, LINE + (1 + pieces) * FACTS, max(SCRATCH, SCRATCH_OF_SUMS))

    def __call__(self, operands: ScaledOperands, factor: np.float32 = _ONE) -> bool:
        """Write the product, times a factor, to its `out`, a C-contiguous array; False where it is out of reach, and `out` is anything."""
        a, b = adjacent(operands.a, operands.b)
        left, right = left_of(a, operands.scale_a, self._shift), right_of(b, operands.scale_b, self._shift)
        at_once = factor != _ONE and not self._plain and isfinite(factor)
        kernel, given = (self._kernel_by_factor, float(factor)) if at_once else (self._kernel, 1.0)
        with KEPT.lent(self._size) as memory:
            panels, facts, room = (memory + place for place in self._places)
            rest = self._shape, self._rows, self._highest, address_of(operands.out), given, panels, facts, room
            self._multiply(kernel, *left, *right, self._tables, *rest)
            done = bool(_word_at(facts).value)
        if done and not at_once and factor != _ONE:
            results = operands.out.view(np.int32)
            write(results, np.ones(len(results), np.bool_), results, factor)
        return done
