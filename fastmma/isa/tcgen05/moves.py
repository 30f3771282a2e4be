"""Rows of tcgen05.ld and .st, which move cells of Tensor Memory to and from the registers of a warp (PTX: Data Movement Shape).

A matrix here is 32 or 16 lanes of Tensor Memory by the fewest columns that a shape has; `.num` of them lie side by side. With 16-bit
elements, a register holds the low halves of two neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from fastmma.host.errors import InstructionError
from fastmma.isa.illegal import refusal
from fastmma.isa.instruction import Movement
from fastmma.isa.layout import Layout, Mode
from fastmma.isa.spelling import Spelling, spelling_of
from fastmma.isa.targets import specific

LOAD, LOAD_REDUCED, STORE = "tcgen05.ld", "tcgen05.ld.red", "tcgen05.st"
SPLIT_SHAPE = "16x32bx2"  # its upper half of lanes has columns of its own
_MOST_REGISTERS = 128
_TARGETS = specific("sm_100", "sm_103", "sm_107", "sm_110")
_REDUCING = specific("sm_103", "sm_107", "sm_110")
_HEADINGS = {
    LOAD: "Tensorcore 5th Generation Instructions: tcgen05.ld",
    LOAD_REDUCED: "Tensorcore 5th Generation Instructions: tcgen05.ld",
    STORE: "Tensorcore 5th Generation Instructions: tcgen05.st",
}


class Shape(NamedTuple):
    """One matrix of 32-bit cells, and the digits of the lane and of the register of a thread, as `Layout` has them."""

    rows: int
    cols: int
    lane: tuple[Mode, ...]
    element: tuple[Mode, ...]


SHAPES = {
    "16x64b": Shape(16, 2, (Mode(2, 8, 0), Mode(2, 0, 1), Mode(8, 1, 0)), ()),
    "16x128b": Shape(16, 4, (Mode(4, 0, 1), Mode(8, 1, 0)), (Mode(2, 8, 0),)),
    "16x256b": Shape(16, 8, (Mode(4, 0, 2), Mode(8, 1, 0)), (Mode(2, 0, 1), Mode(2, 8, 0))),
    "32x32b": Shape(32, 1, (Mode(32, 1, 0),), ()),
    SPLIT_SHAPE: Shape(16, 2, (Mode(16, 1, 0), Mode(2, 0, 1)), ()),
}
_REDUCED_SHAPES = ("32x32b", SPLIT_SHAPE)
_REDUCTIONS = (
    *product(("min", "max"), ("",), ("u32", "s32")),
    *product(("min", "max"), ("", ".abs", ".NaN", ".abs.NaN"), ("f32",)),
)


def _fragment(move: Movement) -> Layout:
    """One matrix in registers: halves of a register are neighbouring columns."""
    shape = SHAPES[move.shape]
    halves = 32 // move.bits
    lane, element = (tuple(Mode(mode.size, mode.row, mode.col * halves) for mode in modes) for modes in (shape.lane, shape.element))
    inside = (Mode(halves, 0, 1),) if halves > 1 else ()
    return Layout((move.rows, move.cols), lane, (*inside, *element), move.bits)


def _row(op: str, shape: str, num: int, tail: str, bits: int = 32, dtype: str = "", reduction: str = "") -> Movement:
    rows, cols, _, _ = SHAPES[shape]
    return Movement(
        f"{op}.sync.aligned.{shape}.x{num}.{tail}",
        op,
        rows,
        cols * 32 // bits,
        num,
        bits,
        _REDUCING if reduction else _TARGETS,
        (8, 8) if reduction else (8, 6),
        _HEADINGS[op],
        _fragment,
        source_bits=bits,
        shape=shape,
        dtype=dtype,
        reduction=reduction,
    )


def _rows() -> Iterator[Movement]:
    for name, shape in SHAPES.items():
        per_matrix = shape.rows * shape.cols // 32
        for num in (1 << power for power in range((_MOST_REGISTERS // per_matrix).bit_length())):
            yield _row(LOAD, name, num, "b32")
            yield _row(LOAD, name, num, "pack::16b.b32", 16)
            yield _row(STORE, name, num, "b32")
            yield _row(STORE, name, num, "unpack::16b.b32", 16)
            if name in _REDUCED_SHAPES and num > 1:
                for least, qualifiers, dtype in _REDUCTIONS:
                    yield _row(LOAD_REDUCED, name, num, f"{least}{qualifiers}.{dtype}", dtype=dtype, reduction=least + qualifiers)


MOVEMENTS = tuple(_rows())


@cache
def _table() -> dict[Spelling, Movement]:
    return {spelling_of(move.opcode): move for move in MOVEMENTS}


def is_move(text: str) -> bool:
    """Tell whether a text names a tcgen05.ld or .st."""
    return text.startswith((f"{LOAD}.", f"{STORE}."))


def read(text: str) -> Movement:
    """The movement that an opcode names, its modifiers in any order.

    Raises
    ------
    InstructionError
        If there is no such opcode: the message says what is wrong with it and names the two nearest ones.
    """
    found = _table().get(spelling_of(text))
    if found is None:
        raise InstructionError(refusal(text, _reason(text), tuple(move.opcode for move in MOVEMENTS)))
    return found


def _reason(text: str) -> str:
    """The first thing that no legal opcode has."""
    tokens = text.split(".")
    known = {token for move in MOVEMENTS for token in move.opcode.split(".")}
    unknown = [token for token in tokens if token not in known]
    if unknown:
        return f"there is no .{unknown[0]}"
    shape = next((token for token in tokens if token in SHAPES), None)
    if shape is None:
        return f"the shape is missing: one of {', '.join(SHAPES)}"
    alike = [move for move in MOVEMENTS if move.shape == shape and set(tokens) >= set(move.op.split("."))]
    if not {f"x{move.num}" for move in alike} & set(tokens):
        return f".{shape} takes .x{alike[0].num} to .x{alike[-1].num}"
    return "these modifiers do not go together"
