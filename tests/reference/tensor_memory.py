"""Where tcgen05 puts things in Tensor Memory, one cell at a time, as PTX's figures and sentences have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# 32-bit columns of one matrix, registers of a thread for one matrix, the largest .num
SHAPES = {"32x32b": (1, 1, 128), "16x64b": (2, 1, 128), "16x128b": (4, 2, 64), "16x256b": (8, 4, 32), "16x32bx2": (1, 1, 128)}


def row_and_column(shape: str, thread: int, register: int) -> tuple[int, int]:
    """The lane (of 32 or 16) and the column of the cell that a register of a thread holds, without packing and offsets."""
    if shape == "32x32b":
        return thread, register
    if shape == "16x32bx2":
        return thread % 16, register
    quad, group = thread % 4, thread // 4
    if shape == "16x64b":
        return group + 8 * (thread & 1), (thread >> 1 & 1) + 2 * register
    if shape == "16x128b":
        return group + 8 * (register & 1), quad + 4 * (register >> 1)
    assert shape == "16x256b"
    return group + 8 * (register >> 1 & 1), (register & 1) + 2 * quad + 8 * (register >> 2)


def cells(shape: str, num: int, packed: bool, split: int = 0) -> Iterator[tuple[int, int, int, int, int]]:
    """(thread, register, half of the register, lane, column) of everything that a load moves."""
    _, per_matrix, _ = SHAPES[shape]
    for thread in range(32):
        for register in range(per_matrix * num):
            row, column = row_and_column(shape, thread, register)
            upper = split if shape == "16x32bx2" and thread >= 16 else 0
            for half in range(2 if packed else 1):
                yield thread, register, half, row, upper + (2 * column + half if packed else column)


# rows, columns, and the lanes of a row
COPIES = {
    "128x256b": (128, 8, lambda row: (row,)),
    "128x128b": (128, 4, lambda row: (row,)),
    "4x256b": (4, 8, lambda row: (32 * row,)),
    "64x128b.warpx2::02_13": (64, 4, lambda row: (row, row + 64)),
    "64x128b.warpx2::01_23": (64, 4, lambda row: (64 * (row // 32) + row % 32, 64 * (row // 32) + row % 32 + 32)),
    "32x128b.warpx4": (32, 4, lambda row: (row, row + 32, row + 64, row + 96)),
}


def decompressed(unit: bytes, bits: int) -> bytes:
    """16 bytes of shared memory as tcgen05.cp writes them: 8-bit codes, or packed ones of 4 or 6 bits followed by padding."""
    if bits == 8:
        return unit
    packed = int.from_bytes(unit[: 2 * bits], "little")
    shift = 2 if bits == 4 else 0
    return bytes((packed >> bits * i & (1 << bits) - 1) << shift for i in range(16))


def lanes_of_row(ins: Any, row: int) -> list[tuple[int, int]]:
    """(CTA, lane) of a row of the whole matrix, for each part of N that lies above the others."""
    m, two = ins.m, ins.cta_group == 2
    if m == 256:  # layout A
        return [(row // 128, row % 128)]
    if two:
        own = row % 64
        if ins.sparse:  # layout C
            return [(row // 64, 32 * (own // 16) + own % 16)]
        return [(row // 64, own), (row // 64, own + 64)]  # layout B
    if m == 128:  # layout D
        return [(0, row)]
    if m == 32:  # layout G
        return [(0, row + 32 * part) for part in range(4)]
    if ins.ws:  # layout E
        return [(0, row), (0, row + 64)]
    return [(0, 32 * (row // 16) + row % 16)]  # layout F


def d_cell(ins: Any, row: int, column: int) -> tuple[int, int, int]:
    """CTA, lane and column of an element of D."""
    lanes = lanes_of_row(ins, row)
    width = ins.n // len(lanes)
    return *lanes[column // width], column % width


def container(ins: Any, bits: int) -> int:
    """Bits of an element of A or B in memory."""
    return 8 if ins.kind in ("f8f6f4", "mxf8f6f4") else bits


def metadata_cells(ins: Any, row: int, chunk: int) -> list[tuple[int, int, int, int]]:
    """CTA, lane, column and nibble of a metadata word, for each of its copies."""
    if ins.kind not in ("f16", "tf32"):
        return [(cta, lane, chunk // 8, chunk % 8) for cta, lane in lanes_of_row(ins, row)]
    blocks = lanes_of_row(ins, row // 16 * 16)  # sixteen lanes hold sixteen rows
    return [(cta, lane + row % 8 + 8 * (chunk // 4), 0, 4 * (row // 8 % 2) + chunk % 4) for cta, lane in blocks]


def scale_cells(ins: Any, operand: str, line: int) -> list[tuple[int, int, int]]:
    """CTA, lane and column of the word with the scales of a row of A or a column of B, for each of its copies."""
    if operand == "a":
        own = ins.m // ins.cta_group
        return [(line // own, line % own % 32 + 32 * copy, line % own // 32) for copy in range(4)]
    if ins.cta_group == 2 and ins.m == 128:
        half = ins.n // 2
        place = line % half
        return [(cta, place % 32 + 64 * (line // half) + 32 * copy, place // 32) for copy in range(2) for cta in range(2)]
    return [(cta, line % 32 + 32 * copy, line // 32) for copy in range(4) for cta in range(ins.cta_group)]
