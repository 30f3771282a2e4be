"""Packing of sparse A for `fastmma.kernels.fused.sparse_kernel`: a record for every row of a step.

In a record, `stored` being the elements that a row has in a step: their values; their exponent bytes, each as a word that a broadcast
reads; the bytes before the lines of B's exponents that they choose, of 16 bits; and words of the k that are chosen, then of those that
are negative, 8 k in each of the equal bytes of one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.kernels.fused.panels import VECTOR_BYTES, PanelElementSpec, Panels, checked, exponent_bytes, forget_extremes, negatives, values
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import highest_lane, itemsize_of, lane_bits, load, load_scalar, lowest_lane, splat, store
from fastmma.kernels.matrices.addresses import LINES, Lines, Matrix, arrange_codes, code_place, load_code, matrix


class Selection(NamedTuple):
    """The stored k of sparse A: 4-bit `words` (rows, k / chunk), and what each of the 16 says of a chunk."""

    words: Matrix
    places: int  # address of the places in the chunk of each word's elements, 16 bits each
    bits: int  # address of the same as bits, and 16 bits further of those elements whose own bits, the second index of 16, are set
    default: int  # a valid word
    per_chunk: int  # 1 or 2
    chunk: int


class Words:
    """Words of metadata and their `selection`: ``places[word]`` are those of one or two elements in a chunk, negative for invalid words."""

    def __init__(self, words: NDArray[np.uint8], places: NDArray[np.int8], chunk: int) -> None:
        per_chunk = places.shape[1]
        self._words, valid = np.ascontiguousarray(words), np.maximum(places, 0).astype(np.uint32)
        self._places = (valid << (16 * np.arange(per_chunk, dtype=np.uint32))).sum(1, np.uint32)
        bits = np.uint32(1) << valid
        own = np.arange(16)[:, None] >> np.arange(per_chunk) & 1
        negative = (bits[:, None] * own.astype(np.uint32)).sum(2, np.uint32)
        self._bits = np.ascontiguousarray(bits.sum(1, np.uint32)[:, None] | negative << np.uint32(16))
        self.selection = Selection(
            matrix(self._words),
            address_of(self._places),
            address_of(self._bits),
            int(np.flatnonzero(places[:, 0] >= 0)[0]),
            per_chunk,
            chunk,
        )


@compiled
def pack_stored_rows(
    how: PanelElementSpec,
    source: Matrix,
    chosen: Selection,
    first: int,
    last: int,
    rows: int,
    depth: int,
    terms: int,
    panel: int,
    packed: Panels,
    dtype: Any,
    scratch: int,
    extremes: Any,
) -> None:
    """Pack rows first to last of stored elements, zeros past `rows` and past column `depth`; a step has `terms` k, a half of them stored.

    `extremes` gets each row's smallest and largest magnitude; `scratch` holds 3 vectors a row.
    """
    noted = scratch
    arranged = noted + (last - first) * 2 * VECTOR_BYTES
    forget_extremes(noted, last - first)
    stored, size = terms // 2, itemsize_of(dtype)
    record = stored * (size + 8)
    per_chunk, chunk, default = chosen.per_chunk, chosen.chunk, chosen.default
    both = np.uint32(0x00010001)
    own = (1 << per_chunk) - 1
    log = per_chunk - 1  # a division takes longer than all else
    for k in range(0, (depth + stored - 1) // stored * stored, LINES):
        eight = Lines(
            source.address + first * source.row_stride + k * source.column_stride, source.column_stride, source.row_stride, source.itemsize
        )
        arrange_codes(eight, depth - k, max(min(rows, last) - first, 0), last - first, arranged)
        in_step = k % stored
        step = packed.values + k // stored * packed.rows * record
        for row in range(first, last):
            codes = load(arranged + (row - first) * VECTOR_BYTES, np.int32, LINES)
            codes, magnitude = checked(codes, how, noted + (row - first) * 2 * VECTOR_BYTES)
            negative = lane_bits(negatives(codes, magnitude, how))
            shift = splat(np.int32(0), LINES)
            place = step + row * record
            store(values(codes, how, shift, dtype), place + in_step * size)
            place += stored * size
            store(exponent_bytes(magnitude, how, shift) * 0x01010101, place + 4 * in_step)
            place += 4 * stored
            known = min(depth - k, LINES) if row < rows else 0
            words = code_place(chosen.words, row, k >> log)
            bits, at = 0, 0
            for element in range(0, LINES, per_chunk):
                word = default
                if element < known:
                    word = load_code(words + (element >> log), 1)
                bits |= int(load_scalar(chosen.bits + 4 * (word << 4 | negative >> element & own), np.uint32)) << at
                offsets = (load_scalar(chosen.places + 4 * word, np.uint32) + np.uint32(2 * in_step + at) * both) * np.uint32(panel)
                if per_chunk == 1:
                    store(np.uint16(offsets), place + 2 * (in_step + element))
                else:
                    store(np.uint32(offsets), place + 2 * (in_step + element))
                at += chunk
            place += 2 * stored + in_step
            for part in range(2):
                store(np.uint32((bits >> 8 * part & 255) * 0x01010101), place + 4 * part)
                store(np.uint32((bits >> 16 + 8 * part & 255) * 0x01010101), place + stored + 4 * part)
    for row in range(first, min(last, rows)):
        place = (row - first) * 2 * VECTOR_BYTES
        extremes[row, 0] = lowest_lane(load(noted + place, np.int32, LINES))
        extremes[row, 1] = highest_lane(load(noted + place + VECTOR_BYTES, np.int32, LINES))
