"""Small products of groups on AMX: one call of compiled code where shapes came before."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.kernels.block_tiles import BLOCK
from fastmma.kernels.llvm.amx import TILE_BYTES
from fastmma.kernels.matrices.memory import LINE, places_of
from fastmma.kernels.params import Scaled
from fastmma.kernels.scaled.amx_group_kernel import CHUNK, KERNEL, AmxGroupConfig
from fastmma.kernels.scaled.amx_group_kernel import SCRATCH as SCRATCH_OF_SUMS
from fastmma.kernels.scaled.amx_group_panels import FACTS, SCRATCH
from fastmma.kernels.scaled.amx_group_whole import (
    FACTOR_IN_RECORD,
    KERNEL_IN_RECORD,
    MEMORY_IN_RECORD,
    OPERANDS_IN_RECORD,
    OUT_IN_RECORD,
    entry_of_whole,
    record_of_whole,
)
from fastmma.kernels.scaled.amx_groups import KEPT, adjacent, highest_sum, left_of, right_of, shift_of, tables_of
from fastmma.kernels.scaled.lines import ScaledOperands, write

_ONE = np.float32(1)
_ROWS_BYTES = 1 << 15  # of A that are packed and multiplied before the next ones: they stay in the nearest cache
_word_at = ctypes.c_int64.from_address

_Given = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # A, its scales, B, and its scales


class FixedGroups:
    """A product of a shape (rows, columns, k) without c, computed again and again by one thread."""

    def __init__(self, p: Scaled, shape: tuple[int, int, int], plain: bool = False) -> None:
        how, (rows, columns, depth) = AmxGroupConfig(p.step // CHUNK, plain), shape
        self._shape, self._shift, self._tables, self._highest = shape, shift_of(p), tables_of(p.scale), highest_sum(p)
        self._plain, self._multiply = plain, entry_of_whole(how)
        self._kernel, self._kernel_by_factor = KERNEL.address(how), 0 if plain else KERNEL.address(replace(how, factor=True))
        block_bytes = -(-depth // p.step) * how.chunks * 2 * TILE_BYTES
        blocks = min(-(-rows // BLOCK), max(1, _ROWS_BYTES // block_bytes))
        self._rows, pieces = blocks * BLOCK, -(-rows // (blocks * BLOCK))
        panels = (blocks + -(-columns // BLOCK)) * block_bytes
        *self._places, self._size = places_of(panels, LINE + (1 + pieces) * FACTS, max(SCRATCH, SCRATCH_OF_SUMS))
        self._free: list[_OfCall] = []

    def __call__(self, operands: ScaledOperands, factor: np.float32 = _ONE) -> bool:
        """Write the product, times a factor, to its `out`, a C-contiguous array; False where it is out of reach, and `out` is anything."""
        a, b = adjacent(operands.a, operands.b)
        given = a, operands.scale_a, b, operands.scale_b
        strides = a.strides, operands.scale_a.strides, b.strides, operands.scale_b.strides
        try:
            call = self._free.pop()
        except IndexError:
            call = None
        if call is None or call.strides != strides:
            call = self._new(given, strides)
        numbers, at_once = call.numbers, factor != _ONE and not self._plain and isfinite(factor)
        for place, each in zip(OPERANDS_IN_RECORD, given, strict=True):
            numbers[place] = address_of(each)
        numbers[OUT_IN_RECORD] = address_of(operands.out)
        numbers[KERNEL_IN_RECORD] = self._kernel_by_factor if at_once else self._kernel
        call.floats[FACTOR_IN_RECORD] = factor if at_once else 1.0
        held = KEPT.take(self._size)
        for place, start in enumerate(self._places, start=MEMORY_IN_RECORD):
            numbers[place] = held.address + start
        self._multiply(call.record)
        done = bool(_word_at(held.address + self._places[1]).value)
        KEPT.give_back(held)
        self._free.append(call)
        if done and not at_once and factor != _ONE:
            results = operands.out.view(np.int32)
            write(results, np.ones(len(results), np.bool_), results, factor)
        return done

    def _new(self, given: _Given, strides: tuple[tuple[int, ...], ...]) -> _OfCall:
        """Make a record for operands with these strides, with all but addresses and what multiplies sums."""
        a, scale_a, b, scale_b = given
        places = *left_of(a, scale_a, self._shift), *right_of(b, scale_b, self._shift)
        record = record_of_whole(0, *places, self._tables.addresses, self._shape, self._rows, self._highest, 0, 1.0, 0, 0, 0)
        numbers = (ctypes.c_int64 * (len(record) // 8)).from_buffer_copy(record)
        return _OfCall(strides, numbers, (ctypes.c_double * len(numbers)).from_buffer(numbers), ctypes.addressof(numbers))


class _OfCall(NamedTuple):
    """The record of a call for operands with some strides, as integers and as floats, and its address."""

    strides: tuple[tuple[int, ...], ...]
    numbers: Any
    floats: Any
    record: int
