"""Where the metadata of sparse A and the scales lie in Tensor Memory, as places (CTA, lane, column, lowest bit)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.tcgen05.kinds import K96
from fastmma.isa.tcgen05.tensor_memory import LANES, data_path, parts

Whole = NDArray[np.int64]


class Places(NamedTuple):
    """Copies of a matrix: arrays (copies, rows, columns) that broadcast; columns count from the operand's address."""

    cta: Whole
    lane: Whole
    column: Whole
    bit: Whole


def _of_rows(ins: Instruction) -> tuple[Whole, Whole]:
    """The CTA of each row of A, and its number among those of the CTA."""
    row = np.arange(ins.m)
    own = ins.m // max(ins.cta_group, 1)
    return row // own, row % own


def metadata_places(ins: Instruction, selector: int) -> Places:
    """Of the 4-bit words of A, (copies, m, chunks).

    Raises
    ------
    OperandError
        Where PTX does not say it: 16- and 32-bit elements with M of 64 that is not weight stationary, or 128 on two CTAs.
    """
    chunk = np.arange(ins.k // pattern_of(ins).chunk)[None, None, :]
    cta, row = (each[None, :, None] for each in _of_rows(ins))
    half = data_path(ins) in ("C", "F")
    if ins.kind in ("f16", "tf32"):
        if half:
            raise OperandError(f"{ins}: where its metadata lies is not known well enough to emulate")
        lane = row % 8 + 16 * (row // 16) + 8 * (chunk // 4)
        column, nibble = np.full_like(lane, selector), 4 * (row // 8 % 2) + chunk % 4
    else:
        lane = 32 * (row // 16) + row % 16 if half else row
        column, nibble = chunk // 8, chunk % 8
    copies = parts(ins)
    apart = np.arange(copies)[:, None, None] * (LANES // copies)
    return Places(cta, lane + apart, column + 0 * row, 4 * nibble)


def scale_places(ins: Instruction, operand: str, first_byte: int) -> Places:
    """Of the scales of A, (copies, m, scales), or of the columns of B, (copies, n, scales).

    Raises
    ------
    OperandError
        Where it is not known: those of B with M of 128 on two CTAs, unless N is a multiple of 64.
    """
    scale = np.arange(ins.scale_vec_size)[None, None, :]
    byte = first_byte + scale
    copy = np.arange(LANES // 32)[:, None, None]
    if operand == "a":
        cta, line = (each[None, :, None] for each in _of_rows(ins))
        lane, column, rows = line % 32 + 32 * copy, line // 32, LANES
    elif data_path(ins) == "B":
        if ins.n % 64:
            raise OperandError(f"{ins}: where its scale_b lies is known for n of a multiple of 64 only")
        line = np.arange(ins.n)[None, :, None]
        upper, copy = (line >= ins.n // 2).astype(np.int64), np.arange(4)[:, None, None]
        cta, lane = copy // 2, line % 32 + 64 * upper + 32 * (copy % 2)
        column, rows = line % (ins.n // 2) // 32, ins.n
    else:
        line = np.arange(ins.n)[None, :, None]
        copy = np.arange(4 * ins.cta_group)[:, None, None]
        cta, lane, column, rows = copy // 4, line % 32 + 32 * (copy % 4), line // 32, ins.n
    if ins.k == K96:  # the words of the bytes from the fourth on lie behind those of all rows
        column = column + byte // 4 * 4 * -(-rows // LANES)
    return Places(cta, lane, column + 0 * byte, 8 * (byte % 4))
