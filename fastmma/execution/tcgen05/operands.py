"""Operands of tcgen05.mma, taken from shared memory and Tensor Memory and put back: bytes and cells to matrices of codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.formats import Format
from fastmma.isa.fragments import container_bits, container_shift
from fastmma.isa.instruction import Instruction
from fastmma.isa.layout import Layout
from fastmma.isa.tcgen05.extra_places import Places
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES

Codes = NDArray[Any]
_UNIT = 16


def _bytes(memory: Codes, places: NDArray[np.int64], what: str) -> Codes:
    """Bytes (batch, ...) of memory (batch, bytes), with the places checked."""
    last = int(places.max(initial=0))
    if last >= memory.shape[-1]:
        raise OperandError(f"{what} reads byte {last:#x} of shared memory, which has {memory.shape[-1]} bytes")
    return np.asarray(memory[:, places])


def from_shared(
    memory: Codes, matrix: MatrixDescriptor, fmt: Format, kind: str, shape: tuple[int, int], mn_major: bool, what: str
) -> Codes:
    """Codes (batch, outer, k) of a matrix in shared memory (batch, bytes) of one CTA; `shape` is (outer, k)."""
    outer, k = shape
    bits = container_bits(fmt, kind)
    if mn_major:
        size = bits // 8
        places = matrix.elements(outer, k, size)[..., None] + np.arange(size)
        raw = np.ascontiguousarray(_bytes(memory, places, what))
        return raw.view(f"<u{size}")[..., 0].astype(fmt.code_dtype)
    count = k * bits // (8 * _UNIT)
    places = matrix.units(outer, max(count, 1))[..., None] + np.arange(_UNIT)
    units = np.ascontiguousarray(_bytes(memory, places, what))
    if fmt.bits >= 8:
        size = fmt.bits // 8
        return units.reshape(len(memory), outer, -1).view(f"<u{size}")[..., :k].astype(fmt.code_dtype)
    # 16 elements of a narrow format fill the first bytes of a unit where containers have 8 bits, and all of it where they have 4
    held = 8 * _UNIT // bits
    spread = np.unpackbits(units, axis=-1, bitorder="little")[..., : held * fmt.bits]
    values = spread.reshape(*spread.shape[:-1], held, fmt.bits) @ (1 << np.arange(fmt.bits))
    return np.asarray(values.reshape(len(memory), outer, -1)[..., :k], fmt.code_dtype)


def _cells(layout: Layout, lane: int, column: int, what: str) -> tuple[Codes, Codes, Codes]:
    """CTA, lane and column of every (row, element) of a matrix, the lowest bit being the rest."""
    per_cell = 32 // layout.bits
    numbers = np.array(layout.lane_numbers) if layout.lane_numbers else np.arange(layout.lanes)
    # of every copy: the lanes that hold the matrix once each
    places = np.argsort(layout.offsets.ravel(), kind="stable").reshape(*layout.shape, layout.copies)
    number, element = numbers[places // layout.elements], places % layout.elements
    columns = column + element // per_cell
    lanes = number % LANES + lane
    if int(columns.max()) >= COLUMNS or int(lanes.max()) >= LANES:
        raise OperandError(
            f"{what} at lane {lane}, column {column} reaches lane {lanes.max()}, column {columns.max()} of {LANES} x {COLUMNS}"
        )
    return number // LANES, lanes, columns


def from_tensor(memory: Codes, layout: Layout, fmt: Format, kind: str, address: tuple[int, int], what: str) -> Codes:
    """Codes (batch, rows, columns) of a matrix in Tensor Memory (batch, CTAs, lanes, columns).

    Raises
    ------
    OperandError
        If it reaches beyond the memory, or copies of it differ.
    """
    cta, lane, column = _cells(layout, *address, what)
    words = memory[:, cta, lane, column]
    shift = np.arange(layout.shape[1])[:, None] % (32 // layout.bits) * layout.bits + container_shift(fmt, kind)
    values = words >> shift.astype(np.uint32) & np.uint32((1 << fmt.bits) - 1)
    if (values != values[..., :1]).any():
        raise OperandError(f"{what}: its copies in Tensor Memory differ; each would serve a part of N of its own")
    return np.asarray(values[..., 0], fmt.code_dtype)


def into_tensor(memory: Codes, layout: Layout, codes: Codes, address: tuple[int, int], kept: NDArray[np.bool_], what: str) -> None:
    """Write D to Tensor Memory, but for the lanes (CTA, lane) that are `kept`; elements of 16 bits leave zeros above them."""
    cta, lane, column = (each[..., 0] for each in _cells(layout, *address, what))
    written = ~kept[cta, lane]
    memory[:, cta[written], lane[written], column[written]] = codes[:, written]


def picked(memory: Codes, places: Places, address: tuple[int, int], bits: int, what: str) -> Codes:
    """Codes (batch, rows, columns) of metadata or scales."""
    lane, column = places.lane + address[0], places.column + address[1]
    if int(column.max()) >= COLUMNS or int(lane.max()) >= LANES:
        raise OperandError(f"{what} at lane {address[0]}, column {address[1]} reaches lane {lane.max()}, column {column.max()}")
    values = memory[:, places.cta, lane, column] >> places.bit.astype(np.uint32) & np.uint32((1 << bits) - 1)
    if (values != values[:, :1]).any():
        at = np.argwhere(values != values[:, :1])[0]
        raise OperandError(f"{what}: copy {at[1]} in Tensor Memory differs from the first, at row {at[2]}, column {at[3]}")
    return np.asarray(values[:, 0], np.uint8)


def negated(codes: Codes, fmt: Format, negate: bool) -> Codes:
    """The same with the sign bit flipped, if asked for."""
    return np.asarray(codes ^ codes.dtype.type(1 << (fmt.bits - 1))) if negate else codes


def tensor_address(value: Any, what: str, ins: Instruction, *, any_lane: bool = False) -> tuple[int, int]:
    """Lane and column of an address in Tensor Memory, ``lane << 16 | column``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 1 << 32:
        raise OperandError(f"{ins}: the address of {what} must be an integer of 32 bits, not {value!r:.60}")
    lane, column = int(value) >> 16, int(value) & 0xFFFF
    lanes = (0, 16) if any_lane else (0,)
    if lane not in lanes or column >= COLUMNS:
        raise OperandError(
            f"{ins}: {what} must start at lane {' or '.join(map(str, lanes))} and a column below 512, not at {lane}, {column}"
        )
    return lane, column
