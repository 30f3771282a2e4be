"""Block scaling: which lanes and bytes of the scale registers hold which scale (PTX: Block Scaling)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fastmma.isa.instruction import Instruction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ScaleSelectors(NamedTuple):
    """Valid values of the byte and thread selectors of one operand."""

    byte_id: tuple[int, ...]
    thread_id: tuple[int, ...]


# PTX: Valid values for various selector components, by scale_vec_size
_BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}


def scale_selectors(ins: Instruction, operand: str) -> ScaleSelectors:
    """The valid selectors of the scales of ``"a"`` (a pair of threads contributes) or ``"b"`` (one thread does).

    Where the instruction's own rule places them, every lane holds one, in a byte that is chosen.
    """
    if f"scale_{operand}" in ins.fragments(ins):
        return ScaleSelectors(_BYTE_IDS[1], (0,))
    return ScaleSelectors(_BYTE_IDS[ins.scale_vec_size], (0, 1) if operand == "a" else (0, 1, 2, 3))


def scale_lanes(ins: Instruction, operand: str, thread_id: int) -> NDArray[np.intp]:
    """The lane that holds the scales of each row of A, or of each column of B."""
    import numpy as np

    if operand == "a":
        row = np.arange(ins.m)
        return 4 * (row % 8) + 2 * thread_id + row // 8
    return 4 * np.arange(ins.n) + thread_id
