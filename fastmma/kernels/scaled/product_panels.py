"""Block-scaled panels for the micro-kernel of `fastmma.kernels.fused.micro_kernel`, their scales folded into values and exponent bytes.

The panels are those of `fastmma.kernels.fused.panels`. Scales are constant along a step, so that they shift all its exponents alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.fused.micro_kernel import run_slab
from fastmma.kernels.llvm.compilation import compiled


class Elements(NamedTuple):
    """The 256 codes of one operand: values, exponents above those of the bytes' zero (a large negative one for zeros), sign bits."""

    values: NDArray[np.float64]
    exponents: NDArray[np.int32]
    signs: NDArray[np.uint8]
    tiny: float  # what a zero is packed as


class Scales(NamedTuple):
    """The 256 codes of the scales of one operand: what values are multiplied by, and exponents."""

    values: NDArray[np.float64]
    exponents: NDArray[np.int32]


class Packed(NamedTuple):
    """A packed, slab after slab, block of rows after block: values, exponent bytes and sign bytes in all bytes of a word."""

    values: NDArray[np.float64]  # (slab, block, k / 8, row, k % 8)
    exponents: NDArray[np.uint32]
    signs: NDArray[np.uint32]  # (slab, block, k / 8, row)


class Slab(NamedTuple):
    """A slab of a panel of B, and all that the micro-kernel works on."""

    values: NDArray[np.float64]  # (tile, k, column in the order of lanes)
    exponents: NDArray[np.uint8]  # (k, column)
    signs: NDArray[np.uint8]  # (k / 8, column)
    state: NDArray[np.float32]  # (row, column)
    scratch: NDArray[np.uint8]
    lowest: NDArray[np.uint8]


@compiled
def pack_rows(a: Any, scale_codes: Any, elements: Elements, scales: Scales, block: int, first: int, last: int, packed: Packed) -> None:
    """Pack rows first to last of A (C-contiguous codes), zeros past its edges."""
    slabs, _blocks, units, height, unit = packed.values.shape
    rows, depth = a.shape
    for row in range(first, last):
        for slab in range(slabs):
            block_of_rows, line = row // height, row % height
            values, exponents = packed.values[slab, block_of_rows, :, line], packed.exponents[slab, block_of_rows, :, line]
            signs = packed.signs[slab, block_of_rows, :, line]
            signs[:] = 0
            for place in range(units * unit):
                k = slab * units * unit + place
                which = place // unit, place % unit
                values[which] = elements.tiny
                exponents[which] = 0
                if row < rows and k < depth:
                    code = a[row, k]
                    scale = scale_codes[row, k // block]
                    byte = elements.exponents[code] + scales.exponents[scale]
                    if byte > 0:
                        values[which] = elements.values[code] * scales.values[scale]
                        exponents[which] = min(byte, 255) * 0x01010101
                        signs[place // unit] |= np.uint32(elements.signs[code]) << np.uint32(place % unit)
            for place in range(units):
                signs[place] *= np.uint32(0x01010101)


@compiled
def _pack_columns(
    chain: Any, b: Any, turned: bool, scale_codes: Any, elements: Elements, scales: Scales, block: int, column: int, start: int, slab: Slab
) -> None:
    """Pack a slab of a panel of B from k = `start` on, zeros past its edges."""
    depth, columns = (b.shape[1], b.shape[0]) if turned else b.shape
    width = chain.panel
    count = min(columns - column, width)
    powers, shifts = np.empty(width, np.float64), np.empty(width, np.int32)
    codes = np.zeros(width, np.uint8)
    slab.signs[:] = 0
    for place in range(len(slab.exponents)):
        k = start + place
        if k >= depth:
            slab.values[:, place] = elements.tiny
            slab.exponents[place] = 255
            continue
        if k % block == 0 or place == 0:
            powers[:] = 1
            shifts[:] = 0
            for j in range(count):
                scale = scale_codes[k // block, column + j]
                powers[j] = scales.values[scale]
                shifts[j] = scales.exponents[scale]
        for j in range(count):
            codes[j] = b[column + j, k] if turned else b[k, column + j]
        signs, exponents = slab.signs[place // 8], slab.exponents[place]
        bit = np.uint8(place % 8)
        for tile in range(width // chain.tile):
            values = slab.values[tile, place]
            for lane in range(chain.tile):
                j = tile * chain.tile + lane
                code = codes[j]
                byte = elements.exponents[code] + shifts[j]
                # two columns, then two columns for the other vector
                group = lane % chain.lanes
                target = lane - group + group // 4 * 2 + (group & 2) * (chain.lanes // 4) + group % 2
                if j < count and byte > 0:
                    values[target] = elements.values[code] * powers[j]
                    exponents[j] = 255 - min(byte, 255)
                    signs[j] |= elements.signs[code] << bit
                else:
                    values[target] = elements.tiny
                    exponents[j] = 255


@compiled
def run_piece(
    chain: Any,
    packed: Packed,
    first: int,
    last: int,
    b: Any,
    turned: bool,
    scale_codes: Any,
    elements: Elements,
    scales: Scales,
    block: int,
    column: int,
    slab: Slab,
) -> None:
    """All of k for rows first to last (a whole number of blocks) by a panel; `slab.state` holds c and gets d."""
    depth = b.shape[1] if turned else b.shape[0]
    slab_depth = packed.values.shape[2] * packed.values.shape[4]
    block_of_rows = first // chain.rows
    for number in range(packed.values.shape[0]):
        start = number * slab_depth
        _pack_columns(chain, b, turned, scale_codes, elements, scales, block, column, start, slab)
        steps = min(-(-(depth - start) // chain.terms), slab_depth // chain.terms)
        run_slab(
            chain,
            (
                packed.values[number, block_of_rows:].ctypes.data,
                packed.exponents[number, block_of_rows:].ctypes.data,
                packed.signs[number, block_of_rows:].ctypes.data,
                slab.values.ctypes.data,
                slab.exponents.ctypes.data,
                slab.signs.ctypes.data,
                slab.state.ctypes.data,
                slab.scratch.ctypes.data,
                slab.lowest.ctypes.data,
                0,
                packed.values.strides[1],
                packed.exponents.strides[1],
                packed.signs.strides[1],
                (last - first) // chain.rows,
                steps,
            ),
        )
