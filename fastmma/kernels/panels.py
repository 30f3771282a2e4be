"""Packing for the micro-kernel of `fastmma.kernels.chain_tile`: values, exponent bytes and signs of A's rows and of B's column panels.

A zero is packed as a tiny positive value, so that its product with a negative element still floors to -1 and is counted as negative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from fastmma.kernels.operands import Matrix, load_codes
from fastmma.kernels.simd import (
    bitcast,
    convert,
    even_lanes,
    highest_lane,
    load,
    lowest_lane,
    maximum,
    minimum,
    odd_lanes,
    power_of_two,
    select,
    splat,
    store,
)

NO_MAGNITUDE = 0x7FFFFFFF  # the smallest magnitude among no elements


class Decoding(NamedTuple):
    """How codes of one operand become panels."""

    shift: int
    mantissa_bits: int
    magnitude_mask: int  # after the shift
    sign_mask: int  # after the shift
    value_offset: int  # added to the exponent field: the exponent of the significand's last bit, scaled
    byte_offset: int  # added to the exponent field: the exponent byte, which saturates at both ends
    growth: float  # 1 for A, 1 + 2**-t for B
    tiny: float  # what a zero is packed as


class Panels(NamedTuple):
    """Where packed values, exponents and signs lie, for `depth` of k and then the next; a row's elements of one slab lie side by side."""

    values: int
    exponents: int
    signs: int
    depth: int
    rows: int


@intrinsic
def _lane_bits(typingctx: Any, mask: Any) -> Any:
    """A mask of 8 lanes as the bits of an integer."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.zext(builder.bitcast(args[0], ir.IntType(8)), ir.IntType(64))

    return types.int64(mask), codegen


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _values(codes: Any, how: Decoding, dtype: Any) -> Any:
    """The packed values of codes."""
    magnitude = codes & how.magnitude_mask
    before = maximum(magnitude >> how.mantissa_bits, 1) - 1
    significand = magnitude - (before << how.mantissa_bits)
    value = convert(significand, dtype) * power_of_two(before + how.value_offset, dtype) * how.growth
    value = select((codes & how.sign_mask) != 0, -1.0 * value, value)
    return select(magnitude == 0, how.tiny, value)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _exponent_bytes(magnitude: Any, how: Decoding) -> Any:
    """Exponents as unsigned bytes in 32-bit lanes, 0 for zeros."""
    byte = maximum(magnitude >> how.mantissa_bits, 1) + how.byte_offset
    return select(magnitude == 0, 0, minimum(maximum(byte, 0), 255))


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_rows(
    chain: Any, how: Decoding, source: Matrix, first: int, last: int, rows: int, depth: int, packed: Panels, dtype: Any, extremes: Any
) -> None:
    """Pack rows first to last of A, zeros past `rows` and past column `depth`; `extremes` gets each row's smallest and largest magnitude.

    Exponent bytes and sign bytes are written four times over, as the words that a broadcast reads.
    """
    for row in range(first, last):
        smallest = splat(np.int32(NO_MAGNITUDE), 8)
        largest = splat(np.int32(0), 8)
        address = source.address + row * source.row_stride
        unit = max(chain.terms, 8)
        for k in range(0, (depth + unit - 1) // unit * unit, 8):
            count = min(8, depth - k) if row < rows else 0
            codes = load_codes(address + k * source.column_stride, source.column_stride, source.itemsize, count) >> how.shift
            magnitude = codes & how.magnitude_mask
            smallest = minimum(smallest, select(magnitude == 0, NO_MAGNITUDE, magnitude))
            largest = maximum(largest, magnitude)
            place = (k // packed.depth * packed.rows + row) * packed.depth + k % packed.depth
            store(_values(codes, how, dtype), packed.values + place * chain.value_bytes)
            store(_exponent_bytes(magnitude, how) * 0x01010101, packed.exponents + 4 * place)
            negative = _lane_bits(select(magnitude == 0, 0, codes & how.sign_mask) != 0)
            if chain.terms == 4:
                store(np.uint32((negative & 15) * 0x01010101), packed.signs + place)
                store(np.uint32((negative >> 4) * 0x01010101), packed.signs + place + 4)
            else:
                store(np.uint32(negative * 0x01010101), packed.signs + place // 2)
        if row < rows:
            extremes[row, 0] = lowest_lane(smallest)
            extremes[row, 1] = highest_lane(largest)


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def _pack_eight(chain: Any, codes: Any, how: Decoding, k: int, column: int, packed: Panels, dtype: Any) -> Any:
    """Pack 8 columns of one row of B; return their magnitudes."""
    magnitude = codes & how.magnitude_mask
    place = k * chain.panel + column
    store(convert(255 - _exponent_bytes(magnitude, how), np.uint8), packed.exponents + place)
    bits_in_byte = min(chain.terms, 8)
    signs = packed.signs + k // bits_in_byte * chain.panel + column
    bit = k % bits_in_byte
    sign = select(magnitude == 0, 0, codes & how.sign_mask)
    negative = select(sign == 0, sign, 1 << bit)
    if bit != 0:
        negative = negative | convert(load(signs, np.uint8, 8), np.int32)
    store(convert(negative, np.uint8), signs)
    tile = column // chain.tile
    values = packed.values + ((tile * chain.depth + k) * chain.tile + column % chain.tile) * chain.value_bytes
    if chain.value_bytes == 4:
        store(_values(codes, how, dtype), values)
    else:
        # two columns, then two columns for the other vector of the group
        pairs = bitcast(codes, np.int64)
        values -= column % chain.lanes // 2 * 8
        store(_values(bitcast(even_lanes(pairs), np.int32), how, dtype), values)
        store(_values(bitcast(odd_lanes(pairs), np.int32), how, dtype), values + chain.lanes // 2 * 8)
    return magnitude


@njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)
def pack_columns(
    chain: Any,
    how: Decoding,
    source: Matrix,
    column: int,
    columns: int,
    start: int,
    stop: int,
    depth: int,
    packed: Panels,
    dtype: Any,
    extremes: int,
) -> None:
    """Pack rows start to stop of a panel of B from `column` on, zeros past `columns` columns and `depth` rows.

    `extremes` is the address of the smallest and the largest magnitude of each column so far, ``[2][panel]`` int32.
    """
    count = min(columns - column, chain.panel)
    for lane in range(0, chain.panel, 8):
        address = source.address + (column + lane) * source.column_stride
        smallest = load(extremes + 4 * lane, np.int32, 8)
        largest = load(extremes + 4 * (chain.panel + lane), np.int32, 8)
        for k in range(start, stop):
            present = min(max(count - lane, 0), 8) if k < depth else 0
            codes = load_codes(address + k * source.row_stride, source.column_stride, source.itemsize, present) >> how.shift
            magnitude = _pack_eight(chain, codes, how, k - start, lane, packed, dtype)
            smallest = minimum(smallest, select(magnitude == 0, NO_MAGNITUDE, magnitude))
            largest = maximum(largest, magnitude)
        store(smallest, extremes + 4 * lane)
        store(largest, extremes + 4 * (chain.panel + lane))
