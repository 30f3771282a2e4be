"""Fragment layouts: PTX's groupID / threadID_in_group formulas as strides.

All `mma` fragments but those of m8n8k4 with f16 follow one rule. A lane is threadID_in_group (4) and groupID (8); a register holds
`per_register` neighbours along k; the groups of a fragment's registers step through rows 8 apart, then through k.
"""

from __future__ import annotations

import math
from typing import Protocol

from fastmma.isa.formats import Format, Formats
from fastmma.isa.layout import Layout, Mode


class Multiplication(Protocol):
    """The facts of an instruction that a rule asks for."""

    @property
    def m(self) -> int:
        """Rows of a."""

    @property
    def n(self) -> int:
        """Columns of b."""

    @property
    def k(self) -> int:
        """Rows of b."""

    @property
    def stored_k(self) -> int:
        """Columns of a as it is stored."""

    @property
    def kind(self) -> str:
        """PTX's ``.kind::``."""

    @property
    def formats(self) -> Formats:
        """Formats of a, b, c and d."""

    @property
    def alayout(self) -> str:
        """Layout of a."""

    @property
    def blayout(self) -> str:
        """Layout of b."""


# bits of the container of narrow float elements in the kinds that pad them ("Multiply-and-Accumulate Instruction: mma")
_PADDED_KINDS = {"f8f6f4": 8, "mxf8f6f4": 8}


def container_bits(fmt: Format, kind: str) -> int:
    """Width of an element in a register: padded to 8 bits in the mixed-width kinds, else the format's own."""
    return max(fmt.bits, _PADDED_KINDS.get(kind, fmt.bits))


def container_shift(fmt: Format, kind: str) -> int:
    """Position of an element's lowest bit in its container: e2m1 sits in the central four bits of eight."""
    return 2 if fmt.bits == 4 and container_bits(fmt, kind) == 8 else 0


_Modes = tuple[tuple[Mode, ...], tuple[Mode, ...]]


def _modes(*modes: Mode) -> tuple[Mode, ...]:
    return tuple(mode for mode in modes if mode.size > 1)


def multiplicand(outer: int, k: int, bits: int) -> _Modes:
    """Lane and element modes of A, as (row = outer, column = k): B is its transpose."""
    per_register = max(1, 32 // bits)
    step = 4 * per_register
    lane = (Mode(4, 0, per_register), Mode(8, 1, 0), Mode(outer // 16 if outer > 16 else 1, 16, 0))
    element = (Mode(per_register, 0, 1), Mode(min(outer, 16) // 8, 8, 0), Mode(k // step, 0, step))
    return _modes(*lane), _modes(*element)


def _transpose(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    return tuple(Mode(mode.size, mode.col, mode.row, mode.tile) for mode in modes)


def accumulator(m: int, n: int, bits: int) -> Layout:
    """The fragment of C and D: two neighbours in a row, then 8 rows down, then blocks of 8 columns; warps 16 rows apart."""
    lane = _modes(Mode(4, 0, 2), Mode(8, 1, 0), Mode(m // 16 if m > 16 else 1, 16, 0))
    element = _modes(Mode(2, 0, 1), Mode(min(m, 16) // 8, 8, 0), Mode(n // 8, 0, 8))
    return Layout((m, n), lane, element, bits)


# m8n8k4 with f16: four computations, each of a low quad of lanes and of a high quad 16 lanes above it
_QUADS = Mode(4, 0, 0, 1)
_M8N8K4_A = {
    "row": ((Mode(4, 1, 0), _QUADS, Mode(2, 4, 0)), (Mode(4, 0, 1),)),
    "col": ((Mode(4, 0, 1), _QUADS, Mode(2, 4, 0)), (Mode(4, 1, 0),)),
}
_M8N8K4_B = {
    "row": ((Mode(4, 1, 0), _QUADS, Mode(2, 0, 4)), (Mode(4, 0, 1),)),
    "col": ((Mode(4, 0, 1), _QUADS, Mode(2, 0, 4)), (Mode(4, 1, 0),)),
}
_M8N8K4_C = {
    "f16": ((Mode(4, 1, 0), _QUADS, Mode(2, 4, 0)), (Mode(8, 0, 1),)),
    "f32": ((Mode(2, 1, 0), Mode(2, 0, 2), _QUADS, Mode(2, 4, 0)), (Mode(2, 0, 1), Mode(2, 2, 0), Mode(2, 0, 4))),
}


def quad_fragments(ins: Multiplication) -> dict[str, Layout]:
    """Matrix Fragments for mma.m8n8k4 with .f16 floating point type."""
    return {
        "a": Layout((8, 4), *_M8N8K4_A[ins.alayout], bits=16, tiles=4),
        "b": Layout((4, 8), *_M8N8K4_B[ins.blayout], bits=16, tiles=4),
        "c": Layout((8, 8), *_M8N8K4_C[ins.formats.c.name], bits=ins.formats.c.bits, tiles=4),
        "d": Layout((8, 8), *_M8N8K4_C[ins.formats.d.name], bits=ins.formats.d.bits, tiles=4),
    }


def _tall(m: int, n: int, k: int, bits: int, copied: bool) -> tuple[_Modes, _Modes]:
    """Modes of A and B of a wmma at least 16 rows high: mma fragments, blocks of 16 rows of A and of 8 columns of B after each other."""
    a_lane, a_element = multiplicand(16, k, bits)
    b_lane, b_element = multiplicand(8, k, bits)
    a_element += _modes(Mode(m // 16, 16, 0))
    b_element += _modes(Mode(n // 8, 8, 0))
    if copied:  # both are padded to eight registers by copies
        a_element, b_element = (
            element + _modes(Mode(8 * 32 // bits // math.prod(mode.size for mode in element), 0, 0)) for element in (a_element, b_element)
        )
    return (a_lane, a_element), (_transpose(b_lane), _transpose(b_element))


def wmma_layouts(shape: tuple[int, int, int], multiplied: Format, accumulators: dict[str, Format]) -> dict[str, Layout]:
    """Fragments of wmma, which PTX leaves unspecified, as measured on sm_90. They do not depend on the layout in memory.

    Parameters
    ----------
    shape : (m, n, k)
    multiplied : Format
        Of A and B.
    accumulators : dict of operand name to Format
    """
    m, n, k = shape
    bits = multiplied.bits
    if m == 8 and n > 8:  # computed as the transposed product
        turned = wmma_layouts((n, m, k), multiplied, accumulators)
        swap = {"a": "b", "b": "a"}
        return {
            name: Layout(layout.shape[::-1], _transpose(layout.lane), _transpose(layout.element), layout.bits)
            for name, layout in ((swap.get(name, name), layout) for name, layout in turned.items())
        }
    if m == 8:
        (a_lane, a_element), (b_lane, b_element) = multiplicand(m, k, bits), multiplicand(n, k, bits)
        b_lane, b_element = _transpose(b_lane), _transpose(b_element)
    else:
        (a_lane, a_element), (b_lane, b_element) = _tall(m, n, k, bits, copied=multiplied.name == "f16")
    found = {"a": Layout((m, k), a_lane, a_element, bits), "b": Layout((k, n), b_lane, b_element, bits)}
    c_element = _modes(Mode(2, 0, 1), Mode(min(m, 16) // 8, 8, 0), Mode(m // 16 or 1, 16, 0), Mode(n // 8, 0, 8))
    for name, fmt in accumulators.items():
        found[name] = Layout((m, n), (Mode(4, 0, 2), Mode(8, 1, 0)), c_element, fmt.bits)
    return found


def wmma_fragments(ins: Multiplication) -> dict[str, Layout]:
    """The layouts of all operands of a wmma."""
    return wmma_layouts((ins.m, ins.n, ins.k), ins.formats.a, {"c": ins.formats.c, "d": ins.formats.d})


def warpgroup_fragments(ins: Multiplication) -> dict[str, Layout]:
    """The layouts of A, C and D; B is taken from shared memory and has none."""
    bits = container_bits(ins.formats.a, ins.kind)
    lane, element = multiplicand(ins.m, ins.stored_k, bits)
    found = {"a": Layout((ins.m, ins.stored_k), lane, element, bits)}
    for name, fmt in (("c", ins.formats.c), ("d", ins.formats.d)):
        found[name] = accumulator(ins.m, ins.n, fmt.bits)
    return found


def warp_fragments(ins: Multiplication) -> dict[str, Layout]:
    """The layouts of A, B, C and D of all ``mma`` but m8n8k4 with f16: A as a warpgroup holds it, B as A of the transposed product."""
    found = warpgroup_fragments(ins)
    bits = container_bits(ins.formats.b, ins.kind)
    lane, element = multiplicand(ins.n, ins.k, bits)
    return {"a": found["a"], "b": Layout((ins.k, ins.n), _transpose(lane), _transpose(element), bits), "c": found["c"], "d": found["d"]}
