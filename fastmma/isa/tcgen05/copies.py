"""Rows of tcgen05.cp, which copies shared memory to Tensor Memory, and tcgen05.shift (PTX: Data Movement Shape; tcgen05.cp)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from fastmma.host.errors import InstructionError
from fastmma.isa.illegal import refusal
from fastmma.isa.targets import specific, target_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COPY, SHIFT = "tcgen05.cp", "tcgen05.shift"
_PTX = (8, 6)
_TARGETS = specific("sm_100", "sm_103", "sm_107", "sm_110")
# bits of a code in shared memory, by what expands it to 8
_SOURCES = {"": 8, ".b8x16.b6x16_p32": 6, ".b8x16.b4x16_p64": 4}


@dataclass(frozen=True)
class Copy:
    """One tcgen05.cp.

    Attributes
    ----------
    cta_group : int
        2 where both CTAs of a pair copy, each from its shared memory to its Tensor Memory.
    shape : str
        PTX's, for example ``"32x128b"``.
    columns : int
        Columns of Tensor Memory that a row fills.
    row_digits, copy_digits : tuple of (int, int)
        Digits of the number of a row, and of that of one of its copies: how many, and how many lanes apart. Fastest first.
    source_bits : int
        Width of a code in shared memory: 8, or 6 or 4 where it is expanded.
    """

    opcode: str
    cta_group: int
    shape: str
    columns: int
    row_digits: tuple[tuple[int, int], ...]
    copy_digits: tuple[tuple[int, int], ...] = ()
    source_bits: int = 8
    op: str = COPY
    targets: tuple[str, ...] = field(repr=False, default=_TARGETS)
    ptx: tuple[int, int] = field(repr=False, default=_PTX)
    heading: str = field(repr=False, default="Tensorcore 5th Generation Instructions: tcgen05.cp")

    @property
    def lanes(self) -> NDArray[np.intp]:
        """The lane of each (copy, row), from that of the address."""
        return _walk(self.copy_digits)[:, None] + _walk(self.row_digits)[None, :]

    def __str__(self) -> str:
        return self.opcode


def _walk(digits: tuple[tuple[int, int], ...]) -> NDArray[np.intp]:
    import numpy as np

    total = np.zeros(1, dtype=np.intp)
    for size, step in digits:
        total = (np.arange(size)[:, None] * step + total[None, :]).ravel()
    return total


# shape and multicast: columns, digits of the row, digits of the copy
_SHAPES = {
    "128x256b": (8, ((128, 1),), ()),
    "128x128b": (4, ((128, 1),), ()),
    "4x256b": (8, ((4, 32),), ()),
    "64x128b.warpx2::02_13": (4, ((64, 1),), ((2, 64),)),
    "64x128b.warpx2::01_23": (4, ((32, 1), (2, 64)), ((2, 32),)),
    "32x128b.warpx4": (4, ((32, 1),), ((4, 32),)),
}
COPIES = tuple(
    Copy(f"{COPY}.cta_group::{cta_group}.{shape}{source}", cta_group, shape.split(".")[0], *_SHAPES[shape], source_bits=_SOURCES[source])
    for cta_group, shape, source in product((1, 2), _SHAPES, _SOURCES)
)


@dataclass(frozen=True)
class Shift:
    """One tcgen05.shift: 31 of 32 lanes of 8 columns move by one lane."""

    opcode: str
    cta_group: int
    rows: int = 31
    columns: int = 8
    shape: str = ""
    op: str = SHIFT
    targets: tuple[str, ...] = field(repr=False, default=tuple(target for target in _TARGETS if target_of(target).variant == "a"))
    ptx: tuple[int, int] = field(repr=False, default=_PTX)
    heading: str = field(repr=False, default="Tensorcore 5th Generation Instructions: tcgen05.shift")

    def __str__(self) -> str:
        return self.opcode


SHIFTS = tuple(Shift(f"{SHIFT}.cta_group::{cta_group}.down", cta_group) for cta_group in (1, 2))
_ROWS: tuple[Copy | Shift, ...] = (*COPIES, *SHIFTS)


@cache
def _table() -> dict[frozenset[str], Copy | Shift]:
    return {frozenset(row.opcode.split(".")): row for row in _ROWS}


def read(text: str, op: str) -> Copy | Shift:
    """The tcgen05.cp or tcgen05.shift that an opcode names, its modifiers in any order; `op` says which of the two is meant.

    Raises
    ------
    InstructionError
        If there is no such opcode: the message names the two nearest ones.
    """
    if not isinstance(text, str):
        raise InstructionError(f"an opcode must be a string, not {type(text).__name__}")
    tokens = text.strip().removesuffix(";").strip().split(".")
    found = _table().get(frozenset(tokens))
    wanted = [row for row in _ROWS if row.op == op]
    if found not in wanted or ".".join(tokens[:2]) != op or len(set(tokens)) < len(tokens):
        raise InstructionError(refusal(text.strip(), f"it is no {op}", tuple(row.opcode for row in wanted)))
    assert found is not None
    return found
