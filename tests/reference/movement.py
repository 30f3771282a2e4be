"""ldmatrix, stmatrix and movmatrix as PTX's text and figures state them, one lane and one byte at a time.

The order of bytes in ldmatrix.m16n16 is that of the fragments of mma with 8-bit types, as sm_120 shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

Registers = list[list[int]]


def halves(line: bytes) -> list[int]:
    """Eight 16-bit elements."""
    return [line[2 * i] | line[2 * i + 1] << 8 for i in range(8)]


def expanded(line: bytes, source: str) -> list[int]:
    """Sixteen 8-bit elements: as they are, or 6-bit ones with two bits of padding on top, or 4-bit ones in the central bits."""
    whole = int.from_bytes(line, "little")
    if source == "b6x16_p32":
        return [whole >> 6 * i & 0x3F for i in range(16)]
    if source == "b4x16_p64":
        return [(whole >> 4 * i & 0xF) << 2 for i in range(16)]
    return list(line)


def word(elements: Sequence[int], bits: int) -> int:
    return sum(element << bits * i for i, element in enumerate(elements))


def ldmatrix(memory: bytes, addresses: Sequence[int], shape: str, num: int, trans: bool, source: str) -> Registers:
    """The registers of each lane."""
    registers: Registers = [[] for _ in range(32)]
    lines = 16 if shape == "m16n16" else 8
    for matrix in range(num):
        rows = [memory[address : address + 16] for address in addresses[lines * matrix : lines * (matrix + 1)]]
        for lane in range(32):
            i, j = divmod(lane, 4)
            if shape == "m8n8":
                source_rows = [halves(row) for row in rows]
                pair = [source_rows[2 * j + e][i] if trans else source_rows[i][2 * j + e] for e in range(2)]
                registers[lane].append(word(pair, 16))
            elif shape == "m8n16":
                registers[lane].append(word(expanded(rows[i], source)[4 * j : 4 * j + 4], 8))
            else:
                for column in (i, i + 8):
                    registers[lane].append(word([expanded(rows[4 * j + e], source)[column] for e in range(4)], 8))
    return registers


def stmatrix(memory: bytes, addresses: Sequence[int], registers: Sequence[Sequence[int]], shape: str, num: int, trans: bool) -> bytes:
    """The memory afterwards; lanes of higher numbers store last."""
    result = bytearray(memory)
    for matrix in range(num):
        for line in range(8):
            start = addresses[8 * matrix + line]
            for place in range(8 if shape == "m8n8" else 16):
                if shape == "m8n8":
                    row, column = (place, line) if trans else (line, place)
                    element = registers[4 * row + column // 2][matrix] >> 16 * (column % 2) & 0xFFFF
                    result[start + 2 * place : start + 2 * place + 2] = element.to_bytes(2, "little")
                else:  # column-major: a line is a column of 16 rows
                    held = registers[4 * (place % 8) + line // 2][matrix]
                    result[start + place] = held >> 8 * (line % 2 + 2 * (place // 8)) & 0xFF
    return bytes(result)


def movmatrix(registers: Sequence[int]) -> list[int]:
    """Each lane's register of the transposed 8 x 8 matrix of 16-bit elements."""
    matrix = [[registers[4 * row + column // 2] >> 16 * (column % 2) & 0xFFFF for column in range(8)] for row in range(8)]
    return [word([matrix[2 * (lane % 4) + e][lane // 4] for e in range(2)], 16) for lane in range(32)]
