"""Modifiers of v_mfma: cbsz and abid broadcast blocks of A, blgp rearranges the lanes of B, and negates operands of f64 on CDNA3."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.integers import one_of
from fastmma.isa.instruction import Instruction

# for each blgp, the group of 16 lanes that each of the four groups takes B from
_GROUPS = ((0, 1, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3), (1, 2, 3, 0), (0,) * 4, (1,) * 4, (2,) * 4, (3,) * 4)
_GROUP = 16
_FIRST = ("gfx908", "gfx90a")  # where B of all but f64 can be rearranged; later only with blocks, or f32


class Modifiers(NamedTuple):
    """Lanes from which each lane takes A and B, or None for its own, and the operands that are negated."""

    a: NDArray[np.intp] | None
    b: NDArray[np.intp] | None
    negated: tuple[str, ...]


def _rearranges(ins: Instruction, target: str) -> bool:
    """Tell whether blgp rearranges lanes."""
    return ins.op == "v_mfma" and ins.atype != "f64" and (target in _FIRST or ins.blocks > 1 or ins.atype == "f32")


def _broadcasts(ins: Instruction) -> int:
    """The largest cbsz."""
    return ins.blocks.bit_length() - 1 if ins.op == "v_mfma" and ins.atype != "f64" else 0


def modifiers(ins: Instruction, target: str, cbsz: Any, abid: Any, blgp: Any) -> Modifiers:
    """Return what cbsz, abid and blgp of an instruction do on a target.

    Raises
    ------
    OperandError
        If the instruction does not take one of them there.

    Examples
    --------
    >>> from fastmma.isa.amd.table import read
    >>> modifiers(read("v_mfma_f32_4x4x1_16b_f32"), "gfx942", 2, 1, 0).a[:20:4].tolist()
    [4, 4, 4, 4, 20]
    """
    size = one_of(cbsz, range(_broadcasts(ins) + 1), f"{ins}: cbsz")
    block = one_of(abid, range(1 << size), f"{ins}: abid with cbsz {size}")
    negates = ins.atype == "f64" and target == "gfx942"
    pattern = one_of(blgp, range(8) if negates or _rearranges(ins, target) else range(1), f"{ins} on {target}: blgp")
    lanes = np.arange(ins.lanes)
    a = b = None
    if size:
        rows, blocks = ins.m, ins.blocks
        of_lane = lanes // rows % blocks
        a = lanes + ((of_lane >> size << size) + block - of_lane) * rows
    if pattern and not negates:
        b = np.array(_GROUPS[pattern])[lanes // _GROUP] * _GROUP + lanes % _GROUP
    return Modifiers(a, b, tuple(name for bit, name in enumerate("abc") if negates and pattern >> bit & 1))
