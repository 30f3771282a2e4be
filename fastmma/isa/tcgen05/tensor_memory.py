"""Layouts of the matrices of tcgen05.mma in Tensor Memory: 128 lanes of 512 columns of 32 bits in each CTA (PTX: Data path layouts).

A lane number here counts through the CTAs of a pair: those of the second CTA are 128 to 255.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from fastmma.host.errors import OperandError
from fastmma.isa import fragments
from fastmma.isa.fragments import container_bits
from fastmma.isa.layout import Layout, Mode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LANES, COLUMNS = 128, 512


class Multiplication(fragments.Multiplication, Protocol):
    """The facts that the layouts depend on, besides those of layouts of registers."""

    @property
    def sparse(self) -> str:
        """True if a is sparse."""

    @property
    def cta_group(self) -> int:
        """CTAs that hold the matrices."""

    @property
    def ws(self) -> bool:
        """True if it is weight stationary."""


def data_path(ins: Multiplication) -> str:
    """PTX's letter for how D lies.

    A: M 256 on two CTAs. B, C: M 128 on two CTAs, dense and sparse. D: M 128. E: M 64, weight stationary. F: M 64. G: M 32.
    """
    if ins.cta_group == 2:
        return "A" if ins.m == 256 else "C" if ins.sparse else "B"
    return {128: "D", 64: "E" if ins.ws else "F", 32: "G"}[ins.m]


# for each letter: rows in one run of lanes; then parts of N side by side in lanes; then CTAs
_RUNS = {"A": (256, 1, 1), "B": (64, 2, 2), "C": (64, 1, 2), "D": (128, 1, 1), "E": (64, 2, 1), "F": (64, 1, 1), "G": (32, 4, 1)}


def parts(ins: Multiplication) -> int:
    """Parts of N that lie in lanes above each other."""
    return _RUNS[data_path(ins)][1]


def _lanes(ins: Multiplication) -> tuple[int, ...]:
    """The lanes' numbers where some are left out: half of each 32 of the layouts C and F."""
    if data_path(ins) not in ("C", "F"):
        return ()
    one = tuple(32 * (row // 16) + row % 16 for row in range(64))
    return one if ins.cta_group == 1 else (*one, *(LANES + lane for lane in one))


def _lane_modes(ins: Multiplication, step: int) -> tuple[Mode, ...]:
    """Digits of the lane number; parts of N are `step` columns apart, or copies where it is 0."""
    rows, parts_of_n, ctas = _RUNS[data_path(ins)]
    modes = Mode(rows, 1, 0), Mode(parts_of_n, 0, step), Mode(ctas, rows, 0)
    return tuple(mode for mode in modes if mode.size > 1)


def accumulator_layout(ins: Multiplication) -> Layout:
    """D, which is C as well; elements of 16 bits have cells of 32 bits of their own."""
    width = ins.n // parts(ins)
    return Layout((ins.m, ins.n), _lane_modes(ins, width), (Mode(width, 0, 1),), 32, lane_numbers=_lanes(ins))


def tensor_memory_layouts(ins: Multiplication) -> dict[str, Layout]:
    """The layouts of A (in Tensor Memory), C and D. B is read from shared memory, as A may be."""
    bits = container_bits(ins.formats.a, ins.kind)
    a = Layout((ins.m, ins.stored_k), _lane_modes(ins, 0), (Mode(ins.stored_k, 0, 1),), bits, lane_numbers=_lanes(ins))
    d = accumulator_layout(ins)
    return {"a": a, "c": d, "d": d}


def first_lanes(ins: Multiplication) -> tuple[int, ...]:
    """The lanes at which D, A in Tensor Memory and metadata may begin; where half of each 32 lanes is left out, either half."""
    return (0, 16) if data_path(ins) in ("C", "F") else (0,)


def lane_digits(layout: Layout) -> tuple[Mode, ...]:
    """Digits of the lane number where half of each 32 lanes is left out, the one without a step being the choice; else none."""
    if not layout.lane_numbers:
        return ()
    digits: list[Mode] = []
    place = 1
    for mode in layout.lane:
        if place < 16 < place * mode.size:  # rows that go on behind the other half
            half = 16 // place
            digits += [mode._replace(size=half), Mode(2, 0, 0), Mode(mode.size // half, mode.row * half, mode.col * half)]
        else:
            digits += [Mode(2, 0, 0), mode] if place == 16 else [mode]
        place *= mode.size
    return tuple(digits)


def metadata_layout(ins: Multiplication) -> Layout:
    """The 4-bit words of sparse A, (m rows, chunks).

    With 16-bit elements and tf32, each 16 lanes hold 16 rows in one column: words of 8 rows and half of the chunks in a lane. With narrower
    ones a lane holds its row in two columns.
    """
    rows, parts_of_n, ctas = _RUNS[data_path(ins)]
    if container_bits(ins.formats.a, ins.kind) >= 16:
        run: tuple[Mode, ...] = (Mode(8, 1, 0), Mode(2, 0, 4), Mode(rows // 16, 16, 0))
        element: tuple[Mode, ...] = (Mode(4, 0, 1), Mode(2, 8, 0))
    else:
        run, element = (Mode(rows, 1, 0),), (Mode(16, 0, 1),)
    lane = tuple(mode for mode in (*run, Mode(parts_of_n, 0, 0), Mode(ctas, rows, 0)) if mode.size > 1)
    chunks = math.prod(mode.size for mode in (*run, *element) if mode.col)
    return Layout((ins.m, chunks), lane, element, 4, lane_numbers=_lanes(ins))


def scale_places(ins: Multiplication, operand: str, words: int = 1) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Lanes (copies, lines, 1) and columns (lines, words) of the words that hold the scales of A's rows, or of B's columns.

    Each 32 lanes hold a copy, for 32 rows or columns in a column of Tensor Memory. Where K of 96 has scales in a second word, all second
    words lie behind all first ones, four columns for each 128 rows or columns.

    Raises
    ------
    OperandError
        Where it is not known: B with M of 128 on two CTAs, unless N is a multiple of 64.
    """
    import numpy as np

    ctas, line = max(1, ins.cta_group), np.arange(ins.m if operand == "a" else ins.n)
    if operand == "a":
        own = ins.m // ctas
        base, place, copies = line // own * LANES, line % own, 32 * np.arange(4)
    else:
        halves = 2 if data_path(ins) == "B" else 1  # of N, in half of the lanes each
        if ins.n % (32 * halves) and halves > 1:
            raise OperandError(f"{ins}: where scale_b lies is known for N of a multiple of 64 only")
        base, place = line * halves // ins.n * (LANES // halves), line % (ins.n // halves)
        copies = (32 * np.arange(4 // halves)[:, None] + LANES * np.arange(ctas)).ravel()
    further = 4 * -(-(LANES if operand == "a" else ins.n) // LANES) * np.arange(words)
    return (base + place % 32 + copies[:, None])[..., None], place[:, None] // 32 + further
