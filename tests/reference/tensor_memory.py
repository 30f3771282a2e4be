"""Where tcgen05 puts things in Tensor Memory, one cell at a time, as PTX's figures and sentences have it."""

from __future__ import annotations

from collections.abc import Iterator

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
