"""Rows of the instructions that move matrices between memory and registers: ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store."""

from __future__ import annotations

from collections.abc import Iterator

from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.fragments import wmma_layouts
from fastmma.isa.instruction import Movement
from fastmma.isa.layout import Layout, Mode
from fastmma.isa.rows import wmma
from fastmma.isa.rows.family import sizes
from fastmma.isa.targets import BLACKWELL, from_base

SHARED = ("shared", "shared::cta")
_ANY_SPACE = ("global", *SHARED)


def _rows_of_lanes(move: Movement) -> Layout:
    """Four lanes hold a row; a 16 x 8 matrix of bytes lies as an accumulator does, two neighbours at a time."""
    neighbours = move.cols // 4
    element = (Mode(neighbours, 0, 1), Mode(move.rows // 8, 8, 0))
    lane = (Mode(4, 0, neighbours), Mode(8, 1, 0))
    return Layout((move.rows, move.cols), lane, tuple(mode for mode in element if mode.size > 1), move.bits)


def _wmma_operand(move: Movement) -> Layout:
    """As the multiplication takes or gives it."""
    m, n, k = sizes(move.shape)
    fmt, accumulator = FORMATS[move.dtype], move.operand in "cd"
    multiplied = _wmma_multiplicand(move.shape, fmt) if accumulator else fmt
    return wmma_layouts((m, n, k), multiplied, {move.operand: fmt} if accumulator else {})[move.operand]


def _wmma_multiplicand(shape: str, accumulator: Format) -> Format:
    """A multiplicand format of the wmma with this shape and accumulator's width; all have the same fragments of C and D."""
    for family in wmma.FAMILIES:
        accumulators = {FORMATS[name].bits for types in family.types for name in types.split(".")[::3]}
        if shape in family.shapes and accumulator.bits in accumulators:
            return FORMATS[family.types[0].split(".")[1]]
    raise ValueError(f"no wmma of shape {shape} accumulates in {accumulator}")


def _ldmatrix() -> Iterator[Movement]:
    heading = "Warp-level matrix load instruction: ldmatrix"
    for num in (1, 2, 4):
        for trans in ("", ".trans"):
            opcode = f"ldmatrix.sync.aligned.m8n8.x{num}{trans}.b16"
            yield Movement(opcode, "ldmatrix", 8, 8, num, 16, from_base("sm_75"), (6, 5), heading, _rows_of_lanes, SHARED, 16, bool(trans))
        for source, bits in (("b6x16_p32", 6), ("b4x16_p64", 4)):
            opcode = f"ldmatrix.sync.aligned.m8n16.x{num}.b8x16.{source}"
            yield Movement(opcode, "ldmatrix", 8, 16, num, 8, BLACKWELL, (8, 6), heading, _rows_of_lanes, SHARED, bits)
        opcode = f"ldmatrix.sync.aligned.m8n16.x{num}.s8.s4"
        yield Movement(
            opcode,
            "ldmatrix",
            8,
            16,
            num,
            8,
            ("sm_90a", *BLACKWELL),
            (9, 4),
            heading,
            _rows_of_lanes,
            SHARED,
            4,
            unknown="where the signed 4-bit elements lie in a line of memory is not documented",
        )
    for num in (1, 2):
        for source, bits in (("b8", 8), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)):
            opcode = f"ldmatrix.sync.aligned.m16n16.x{num}.trans.{source}"
            yield Movement(opcode, "ldmatrix", 16, 16, num, 8, BLACKWELL, (8, 6), heading, _rows_of_lanes, SHARED, bits, True)


def _stmatrix() -> Iterator[Movement]:
    heading = "Warp-level matrix store instruction: stmatrix"
    for num in (1, 2, 4):
        for trans in ("", ".trans"):
            opcode = f"stmatrix.sync.aligned.m8n8.x{num}{trans}.b16"
            yield Movement(opcode, "stmatrix", 8, 8, num, 16, from_base("sm_90"), (7, 8), heading, _rows_of_lanes, SHARED, 16, bool(trans))
        opcode = f"stmatrix.sync.aligned.m16n8.x{num}.trans.b8"
        yield Movement(opcode, "stmatrix", 16, 8, num, 8, BLACKWELL, (8, 6), heading, _rows_of_lanes, SHARED, 8, True)


def _wmma_moves() -> Iterator[Movement]:
    """Loads of A, B and C and stores of D, from the rows of wmma.mma."""
    seen: set[str] = set()
    for family in wmma.FAMILIES:
        for shape in family.shapes:
            m, n, k = sizes(shape)
            for types in family.types:
                dtype, atype, btype, ctype = types.split(".")
                operands = [("a", atype, m, k), ("b", btype, k, n), ("c", ctype, m, n), ("d", dtype, m, n)]
                if FORMATS[atype].bits < 8:  # ptxas takes these as well, which move the same bits
                    operands += [("c", "f32", m, n), ("d", "f32", m, n)]
                for operand, fmt, rows, cols in operands:
                    kept = {"a": ("row",), "b": ("col",)} if FORMATS[fmt].bits < 8 else {}
                    for layout in kept.get(operand, ("row", "col")):
                        action = "store" if operand == "d" else "load"
                        opcode = f"wmma.{action}.{operand}.sync.aligned.{layout}.{shape}.{fmt}"
                        if opcode in seen:
                            continue
                        seen.add(opcode)
                        yield Movement(
                            opcode,
                            f"wmma.{action}",
                            rows,
                            cols,
                            1,
                            FORMATS[fmt].bits,
                            family.targets,
                            family.ptx,
                            f"Warp-level Matrix {action.capitalize()} Instruction: wmma.{action}",
                            _wmma_operand,
                            _ANY_SPACE,
                            FORMATS[fmt].bits,
                            operand=operand,
                            layout_in_memory=layout,
                            shape=shape,
                            dtype=fmt,
                        )


MOVEMENTS: tuple[Movement, ...] = (
    *_ldmatrix(),
    *_stmatrix(),
    Movement(
        "movmatrix.sync.aligned.m8n8.trans.b16",
        "movmatrix",
        8,
        8,
        1,
        16,
        from_base("sm_75"),
        (7, 8),
        "Warp-level matrix transpose instruction: movmatrix",
        _rows_of_lanes,
        trans=True,
    ),
    *_wmma_moves(),
)
