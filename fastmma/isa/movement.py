"""Rows of the instructions that move matrices between memory and registers: ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from fastmma.formats import format_of
from fastmma.isa import wmma
from fastmma.isa.fragments import wmma_layouts
from fastmma.isa.targets import from_base, specific
from fastmma.layout import Layout, Mode

# data-centre and consumer Blackwell move 8-bit and narrower matrices
_BYTES = specific("sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
SHARED = ("shared", "shared::cta")
_ANY_SPACE = ("global", *SHARED)


@dataclass(frozen=True)
class Movement:
    """One opcode that moves matrices.

    Attributes
    ----------
    opcode : str
        Canonical text, without a state space.
    op : str
        ``"ldmatrix"``, ``"stmatrix"``, ``"movmatrix"``, ``"wmma.load"`` or ``"wmma.store"``.
    rows, cols : int
        Of one matrix, as PTX's shape says; for wmma, of the operand.
    num : int
        Matrices moved.
    bits : int
        Width of an element in a register.
    source_bits : int
        Width of an element in memory: 6 or 4 for the formats that expand to 8 bits, else `bits`.
    trans : bool
        Whether matrices in memory are column-major.
    operand, layout_in_memory, shape : str
        wmma only: ``"a"``, ``"b"``, ``"c"`` or ``"d"``; ``"row"`` or ``"col"``; the shape of the wmma.
    dtype : str
        wmma only: PTX name of the element format.
    """

    opcode: str
    op: str
    rows: int
    cols: int
    num: int
    bits: int
    targets: tuple[str, ...] = field(repr=False)
    ptx: tuple[int, int] = field(repr=False)
    heading: str = field(repr=False)
    spaces: tuple[str, ...] = field(repr=False, default=())
    source_bits: int = 0
    trans: bool = False
    operand: str = ""
    layout_in_memory: str = ""
    shape: str = ""
    dtype: str = ""

    @cached_property
    def layout(self) -> Layout:
        """Where the elements of one matrix lie in registers."""
        if self.op.startswith("wmma"):
            m, n, k = (int(part) for part in self.shape[1:].replace("n", " ").replace("k", " ").split())
            atype = wmma_multiplicand(self.shape, self.dtype) if self.operand in "cd" else self.dtype
            return wmma_layouts((m, n, k), atype, {self.operand: self.dtype} if self.operand in "cd" else {})[self.operand]
        # four lanes hold a row; a 16 x 8 matrix of bytes lies as an accumulator does, two neighbours at a time
        neighbours = self.cols // 4
        element = (Mode(neighbours, 0, 1), Mode(self.rows // 8, 8, 0))
        lane = (Mode(4, 0, neighbours), Mode(8, 1, 0))
        return Layout((self.rows, self.cols), lane, tuple(mode for mode in element if mode.size > 1), self.bits)

    @property
    def lines(self) -> int:
        """Addresses a matrix takes: one for each of its rows in memory (columns when it is column-major there)."""
        return self.cols if self.trans else self.rows

    @property
    def registers(self) -> int:
        """Registers a lane takes or gives: 32-bit ones, 64-bit for f64."""
        return self.num * self.layout.registers

    def __str__(self) -> str:
        return self.opcode


def wmma_multiplicand(shape: str, accumulator: str) -> str:
    """A multiplicand format of the wmma with this shape and accumulator's width; all have the same fragments of C and D."""
    bits = format_of(accumulator).bits
    return next(
        family.types[0].split(".")[1]
        for family in wmma.FAMILIES
        if shape in family.shapes and any(format_of(name).bits == bits for types in family.types for name in types.split(".")[::3])
    )


def _ldmatrix() -> Iterator[Movement]:
    heading = "Warp-level matrix load instruction: ldmatrix"
    for num in (1, 2, 4):
        for trans in ("", ".trans"):
            opcode = f"ldmatrix.sync.aligned.m8n8.x{num}{trans}.b16"
            yield Movement(opcode, "ldmatrix", 8, 8, num, 16, from_base("sm_75"), (6, 5), heading, SHARED, 16, bool(trans))
        for source, bits in (("b6x16_p32", 6), ("b4x16_p64", 4)):
            opcode = f"ldmatrix.sync.aligned.m8n16.x{num}.b8x16.{source}"
            yield Movement(opcode, "ldmatrix", 8, 16, num, 8, _BYTES, (8, 6), heading, SHARED, bits)
    for num in (1, 2):
        for source, bits in (("b8", 8), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)):
            opcode = f"ldmatrix.sync.aligned.m16n16.x{num}.trans.{source}"
            yield Movement(opcode, "ldmatrix", 16, 16, num, 8, _BYTES, (8, 6), heading, SHARED, bits, True)


def _stmatrix() -> Iterator[Movement]:
    heading = "Warp-level matrix store instruction: stmatrix"
    for num in (1, 2, 4):
        for trans in ("", ".trans"):
            opcode = f"stmatrix.sync.aligned.m8n8.x{num}{trans}.b16"
            yield Movement(opcode, "stmatrix", 8, 8, num, 16, from_base("sm_90"), (7, 8), heading, SHARED, 16, bool(trans))
        opcode = f"stmatrix.sync.aligned.m16n8.x{num}.trans.b8"
        yield Movement(opcode, "stmatrix", 16, 8, num, 8, _BYTES, (8, 6), heading, SHARED, 8, True)


def _wmma_moves() -> Iterator[Movement]:
    """Loads of A, B and C and stores of D, from the rows of wmma.mma."""
    seen: set[str] = set()
    for family in wmma.FAMILIES:
        for shape in family.shapes:
            m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
            for types in family.types:
                dtype, atype, btype, ctype = types.split(".")
                sizes = [("a", atype, m, k), ("b", btype, k, n), ("c", ctype, m, n), ("d", dtype, m, n)]
                if format_of(atype).bits < 8:  # ptxas takes these as well, which move the same bits
                    sizes += [("c", "f32", m, n), ("d", "f32", m, n)]
                for operand, fmt, rows, cols in sizes:
                    kept = {"a": ("row",), "b": ("col",)} if format_of(fmt).bits < 8 else {}
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
                            format_of(fmt).bits,
                            family.targets,
                            family.ptx,
                            f"Warp-level Matrix {action.capitalize()} Instruction: wmma.{action}",
                            _ANY_SPACE,
                            format_of(fmt).bits,
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
        trans=True,
    ),
    *_wmma_moves(),
)
