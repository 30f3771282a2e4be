"""Where tcgen05 finds its operands, as PTX's text and CUTLASS's canonical layouts state it: one element at a time, in plain integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = {0: 16, 32: 32, 64: 64, 128: 128}


def swizzled(address: int, swizzle: int, *, wide: bool = False) -> int:
    """The 16-byte unit (32-byte with wide atoms) is exclusive-or'ed with the 128-byte line's number."""
    if wide:
        unit = address // 32
        return (unit ^ (unit >> 2 & 3)) * 32 + address % 32
    if not swizzle:
        return address
    unit = address // 16
    return (unit ^ (unit >> 3 & (swizzle // 16 - 1))) * 16 + address % 16


def k_major(line: int, byte: int, start: int, leading: int, stride: int, swizzle: int) -> int:
    if swizzle:
        return swizzled(start + line % 8 * swizzle + line // 8 * stride + byte, swizzle)
    return start + line % 8 * 16 + line // 8 * stride + byte // 16 * leading + byte % 16


def mn_major(line: int, k: int, size: int, start: int, leading: int, stride: int, swizzle: int, *, wide: bool = False) -> int:
    if wide:
        return swizzled(start + line % 32 * 4 + line // 32 * leading + k % 4 * 128 + k // 4 * stride, 128, wide=True)
    if swizzle:
        lines = swizzle // size
        return swizzled(start + line % lines * size + line // lines * leading + k % 8 * swizzle + k // 8 * stride, swizzle)
    lines = 16 // size
    return start + line % lines * size + line // lines * stride + k % 8 * 16 + k // 8 * leading


def write_k_major(memory: NDArray[np.uint8], codes: NDArray[Any], bits: int, padded: bool, place: tuple[int, int, int, int]) -> None:
    """Codes (outer, k) as packed units of 16 bytes; `padded`: 16 elements of less than 8 bits fill the first bytes of a unit."""
    for line, row in enumerate(codes.tolist()):
        held = 16 if padded else 128 // bits
        for unit in range(len(row) // held):
            whole = sum(code << bits * i for i, code in enumerate(row[unit * held : (unit + 1) * held]))
            at = k_major(line, 16 * unit, *place)
            memory[at : at + 16] = np.frombuffer(whole.to_bytes(16, "little"), np.uint8)


def write_mn_major(
    memory: NDArray[np.uint8], codes: NDArray[Any], size: int, place: tuple[int, int, int, int], *, wide: bool = False
) -> None:
    for (line, k), code in np.ndenumerate(codes):
        at = mn_major(line, k, size, *place, wide=wide)
        memory[at : at + size] = np.frombuffer(int(code).to_bytes(size, "little"), np.uint8)


def d_place(m: int, n: int, cta_group: int, ws: bool, sparse: bool, r: int, j: int) -> tuple[int, int, int]:
    """CTA, lane and column of an element of D, by PTX's figures of the data paths A to G."""
    if cta_group == 2:
        if m == 256:
            return r // 128, r % 128, j
        if not sparse:
            return r // 64, r % 64 + 64 * (j >= n // 2), j % (n // 2)
        r, cta = r % 64, r // 64
        return cta, 32 * (r // 16) + r % 16, j
    if m == 128:
        return 0, r, j
    if m == 64 and not ws:
        return 0, 32 * (r // 16) + r % 16, j
    if m == 64:
        return 0, r + 64 * (j >= n // 2), j % (n // 2)
    return 0, r + 32 * (j // (n // 4)), j % (n // 4)


def a_lanes(m: int, n: int, cta_group: int, ws: bool, sparse: bool, r: int) -> list[tuple[int, int]]:
    """CTA and lanes that hold row r of A in Tensor Memory: those of D's row, whatever its column."""
    return sorted({d_place(m, n, cta_group, ws, sparse, r, j)[:2] for j in range(n)})


def metadata_cells(kind: str, m: int, cta_group: int, ws: bool, r: int, chunk: int, selector: int) -> list[tuple[int, int, int, int]]:
    """CTA, lane, column and bit of a 4-bit word; weight-stationary ones have copies."""
    own = m // cta_group
    cta, r = divmod(r, own)
    copies = [own * i for i in range(128 // own)] if ws else [0]
    if kind in ("f16", "tf32"):
        lane, column, nibble = r % 8 + 16 * (r // 16) + 8 * (chunk // 4), selector, 4 * (r // 8 % 2) + chunk % 4
    else:
        lane, column, nibble = (r if own == 128 or ws else 32 * (r // 16) + r % 16), chunk // 8, chunk % 8
    return [(cta, lane + copy, column, 4 * nibble) for copy in copies]


def scale_cells(m: int, n: int, cta_group: int, operand: str, i: int, byte: int) -> list[tuple[int, int, int, int]]:
    """CTA, lane, column and bit of a scale of a row of A, or of a column of B."""
    if operand == "a":
        cta, i = divmod(i, m // cta_group)
        return [(cta, i % 32 + 32 * copy, i // 32, 8 * byte) for copy in range(4)]
    if cta_group == 2 and m == 128:
        upper, i = divmod(i, n // 2)
        return [(cta, i % 32 + 64 * upper + 32 * copy, i // 32, 8 * byte) for cta in (0, 1) for copy in (0, 1)]
    return [(cta, i % 32 + 32 * copy, i // 32, 8 * byte) for cta in range(cta_group) for copy in range(4)]
