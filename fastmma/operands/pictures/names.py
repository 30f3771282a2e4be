"""Names of registers and parts of them: PTX's %a0, with .h1, .b3 and the like for a part."""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.operands.pictures.grid import Cell

# of parts of a register, by their bits: halves and bytes as PTX's video instructions name them; pairs of pairs, and single bits
_PARTS = {16: "h", 8: "b", 4: "n", 1: "p"}


def span(numbers: Sequence[int]) -> str:
    """``3``, or ``3..5``."""
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}..{numbers[-1]}"


def register_name(cells: Sequence[Cell], sigil: str, register_bits: int) -> str:
    """The registers that hold neighbours of one lane: ``%a0``, ``%a0.h1``, ``%a0.b0..1``, ``%a0..3``.

    Parameters
    ----------
    cells : sequence of Cell
        In the order of their bits.
    sigil : str
        What the number of a register is written after: ``%a``, or ``+`` for columns of Tensor Memory.
    register_bits : int
    """
    first, last = cells[0], cells[-1]
    name = f"{sigil}{span(sorted({first.register, last.register}))}"
    bits = first.bits
    if first.register != last.register or len(cells) * bits == register_bits or bits not in _PARTS:
        return name
    return f"{name}.{_PARTS[bits]}{span([first.bit // bits, last.bit // bits][: len(cells)])}"
