"""PTX's formulas for matrix fragments, as its text states them: one function per section "Matrix Fragments for ...".

Each returns, for %laneid and the index i of an element, (row, column) of A, of B and of C or D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fastmma import Instruction

Formula = Callable[[int, int], tuple[int, int]]


class Fragments(NamedTuple):
    """A section's heading, how many elements a thread holds, and where they are."""

    heading: str
    a_count: int
    a: Formula
    b_count: int
    b: Formula
    c_count: int
    c: Formula


def computation(lane: int) -> int:
    """m8n8k4 with .f16: the MMA computation, from 0, that a thread takes part in (threads 0-3 and 16-19: the first)."""
    return {0: 0, 4: 0, 1: 1, 5: 1, 2: 2, 6: 2, 3: 3, 7: 3}[lane // 4]


def m8n8k4_f16(alayout: str, blayout: str, ctype: str) -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        if alayout == "row":
            return (lane % 4 if lane < 16 else lane % 4 + 4), i
        return (i % 4 if lane < 16 else i % 4 + 4), lane % 4

    def b(lane: int, i: int) -> tuple[int, int]:
        if blayout == "row":
            return lane % 4, (i if lane < 16 else i + 4)
        return i, (lane % 4 if lane < 16 else lane % 4 + 4)

    def c(lane: int, i: int) -> tuple[int, int]:
        if ctype == "f16":
            return (lane % 4 if lane < 16 else lane % 4 + 4), i
        x = (lane & 0b1) + (i & 0b10)
        return (x if lane < 16 else x + 4), (i & 0b100) + (lane & 0b10) + (i & 0b1)

    return Fragments("Matrix Fragments for mma.m8n8k4 with .f16 floating point type", 4, a, 4, b, 8, c)


def group(lane: int) -> int:
    return lane >> 2


def thread(lane: int) -> int:
    return lane % 4


def c_of_8_rows(lane: int, i: int) -> tuple[int, int]:
    return group(lane), thread(lane) * 2 + (i & 0x1)


def c_of_16_rows(lane: int, i: int) -> tuple[int, int]:
    return (group(lane) if i < 2 else group(lane) + 8), thread(lane) * 2 + (i & 0x1)


def m8n8k4_f64() -> Fragments:
    def a(lane: int, _i: int) -> tuple[int, int]:
        return lane >> 2, lane % 4

    def b(lane: int, _i: int) -> tuple[int, int]:
        return lane % 4, lane >> 2

    return Fragments("Matrix Fragments for mma.m8n8k4 with .f64 floating point type", 1, a, 1, b, 2, c_of_8_rows)


def m8n8k16() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return group(lane), thread(lane) * 4 + i

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 4 + i, group(lane)

    return Fragments("Matrix Fragments for mma.m8n8k16", 4, a, 4, b, 2, c_of_8_rows)


def m8n8k32() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return group(lane), thread(lane) * 8 + i

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 8 + i, group(lane)

    return Fragments("Matrix Fragments for mma.m8n8k32", 8, a, 8, b, 2, c_of_8_rows)


def m8n8k128() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return group(lane), thread(lane) * 32 + i

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 32 + i, group(lane)

    return Fragments("Matrix Fragments for mma.m8n8k128", 32, a, 32, b, 2, c_of_8_rows)


def m16n8k4() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return {0: group(lane), 1: group(lane) + 8}[i], thread(lane)

    def b(lane: int, _i: int) -> tuple[int, int]:
        return thread(lane), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k4", 2, a, 1, b, 4, c_of_16_rows)


def m16n8k8_16bit() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return (group(lane) if i in (0, 1) else group(lane) + 8), thread(lane) * 2 + (i & 0x1)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 2 + i, group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k8", 4, a, 2, b, 4, c_of_16_rows)


def m16n8k8_tf32_f64() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return (group(lane) if i in (0, 2) else group(lane) + 8), (thread(lane) if i in (0, 1) else thread(lane) + 4)

    def b(lane: int, i: int) -> tuple[int, int]:
        return (thread(lane) if i == 0 else thread(lane) + 4), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k8", 4, a, 2, b, 4, c_of_16_rows)


def m16n8k16_16bit() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        row = group(lane) if 0 <= i < 2 or 4 <= i < 6 else group(lane) + 8
        return row, thread(lane) * 2 + (i & 0x1) + (0 if i < 4 else 8)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 2 + (i & 0x1) + (0 if i < 2 else 8), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k16 with floating point type", 8, a, 4, b, 4, c_of_16_rows)


def m16n8k16_f64() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        if i % 2 == 0:
            return group(lane), i * 2 + thread(lane)
        return group(lane) + 8, i * 2 - 2 + thread(lane)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) + i * 4, group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k16 with floating point type", 8, a, 4, b, 4, c_of_16_rows)


def m16n8k16_8bit() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return (group(lane) if i < 4 else group(lane) + 8), thread(lane) * 4 + (i & 0x3)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 4 + i, group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k16 with integer type", 8, a, 4, b, 4, c_of_16_rows)


def m16n8k32_4bit() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return (group(lane) if i < 8 else group(lane) + 8), thread(lane) * 8 + (i & 0x7)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 8 + (i & 0x7), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k32", 16, a, 8, b, 4, c_of_16_rows)


def m16n8k32_8bit() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        row = group(lane) if 0 <= i < 4 or 8 <= i < 12 else group(lane) + 8
        return row, thread(lane) * 4 + (i & 0x3) + (0 if i < 8 else 16)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 4 + (i & 0x3) + (0 if i < 4 else 16), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k32", 16, a, 8, b, 4, c_of_16_rows)


def m16n8k64() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        row = group(lane) if 0 <= i < 8 or 16 <= i < 24 else group(lane) + 8
        return row, thread(lane) * 8 + (i & 0x7) + (0 if i < 16 else 32)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 8 + (i & 0x7) + (0 if i < 8 else 32), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k64", 32, a, 16, b, 4, c_of_16_rows)


def m16n8k128() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        return (group(lane) if i < 32 else group(lane) + 8), thread(lane) * 32 + (i & 0x1F)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 32 + i, group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k128", 64, a, 32, b, 4, c_of_16_rows)


def m16n8k256() -> Fragments:
    def a(lane: int, i: int) -> tuple[int, int]:
        row = group(lane) if 0 <= i < 32 or 64 <= i < 96 else group(lane) + 8
        # PTX writes "+ i" for i < 64, which must mean "+ (i & 0x1F)", as for the other half: columns 0..127 come first
        return row, thread(lane) * 32 + (i & 0x1F) + (0 if i < 64 else 128)

    def b(lane: int, i: int) -> tuple[int, int]:
        return thread(lane) * 32 + (i & 0x1F) + (0 if i < 32 else 128), group(lane)

    return Fragments("Matrix Fragments for mma.m16n8k256", 128, a, 64, b, 4, c_of_16_rows)


_BY_BITS = {
    ("m8n8k4", 64): m8n8k4_f64,
    ("m8n8k16", 8): m8n8k16,
    ("m8n8k32", 4): m8n8k32,
    ("m8n8k128", 1): m8n8k128,
    ("m16n8k4", 32): m16n8k4,
    ("m16n8k4", 64): m16n8k4,
    ("m16n8k8", 16): m16n8k8_16bit,
    ("m16n8k8", 32): m16n8k8_tf32_f64,
    ("m16n8k8", 64): m16n8k8_tf32_f64,
    ("m16n8k16", 16): m16n8k16_16bit,
    ("m16n8k16", 64): m16n8k16_f64,
    ("m16n8k16", 8): m16n8k16_8bit,
    ("m16n8k32", 4): m16n8k32_4bit,
    ("m16n8k32", 8): m16n8k32_8bit,
    ("m16n8k64", 4): m16n8k64,
    ("m16n8k128", 1): m16n8k128,
    ("m16n8k256", 1): m16n8k256,
}
CONTAINER_BITS = {
    "f64": 64,
    "f32": 32,
    "s32": 32,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "e4m3": 8,
    "e5m2": 8,
    "e3m2": 8,
    "e2m3": 8,
    "e2m1": 8,  # in .kind::f8f6f4; packed by twos in the kinds with 4-bit containers
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}


def fragments(ins: Instruction) -> Fragments:
    """The formulas of a dense mma instruction."""
    if ins.shape == "m8n8k4" and ins.atype == "f16":
        return m8n8k4_f16(ins.alayout, ins.blayout, ins.ctype)
    bits = 4 if ins.kind in ("mxf4", "mxf4nvf4") else CONTAINER_BITS[ins.atype]
    return _BY_BITS[ins.shape, bits]()


def wgmma_a(lane: int, i: int, bits: int) -> tuple[int, int]:
    """A of wgmma.m64nNk(256 / bits): warp w holds rows 16w to 16w + 15, as the 16-row fragment of the same k."""
    per_register = 32 // bits
    register = i // per_register
    row = group(lane % 32) + (8 if register in (1, 3) else 0)
    col = thread(lane) * per_register + i % per_register + (4 * per_register if register in (2, 3) else 0)
    return lane // 32 * 16 + row, col


def wgmma_d(lane: int, i: int) -> tuple[int, int]:
    """D of wgmma: eight columns after the other, each as the accumulator of an m16n8 instruction."""
    row = group(lane % 32) + (8 if i % 4 >= 2 else 0)
    return lane // 32 * 16 + row, i // 4 * 8 + thread(lane) * 2 + (i & 0x1)
