"""The table of kernels: what each computes, on which CPUs, and the products for which it is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from fastmma.backends.call import Operation
from fastmma.backends.parameters import (
    element_of,
    element_specs,
    fused_parameters,
    general_parameters,
    holds,
    in_kernels,
    scaled_parameters,
)
from fastmma.backends.parts import DEPTH
from fastmma.backends.problem import Problem

if TYPE_CHECKING:
    from fastmma.kernels.fused.batch import Blocks, RegisterBlocks

ANY = 1 << 62  # no bound
TURNED = 4  # rows for each column, from which on a product is computed as that of the transposed matrices
# what a call asks for
CALLS = {
    "products": "products",
    "forms": "products whose shapes and strides came before",
    "registers": "registers of warps",
    "stored": "sparse A as it is stored",
    "promotions": "sums from zero that join a total",
    "instructions": "instructions one by one",
}

# what computes the results that a kernel leaves out
FALLBACKS = {"": "-", "next": "the next rows", "exact": "rows without a fallback"}


class Holds(NamedTuple):
    """The arithmetics and operands that a kernel computes: a text, and a test of a problem."""

    text: str
    test: Callable[[Problem], bool]


class Route(NamedTuple):
    """A kernel, and when it is taken.

    `ranges` are alternatives: each bounds some of `QUANTITIES`, from least to most, and a problem has to be within all bounds of one.
    What a kernel misses is redone by the next rows, or, where `EXACT_REDO`, by a row that misses nothing.
    """

    name: str
    call: str  # one of `CALLS`
    kernel: str  # the module, below fastmma/kernels, or else below fastmma
    tiles: str  # the table of kernels/tiles.py whose rows name CPU features; empty where any CPU will do
    methods: tuple[str, ...]
    scaled: bool | None  # whether it takes scales; None: with or without
    holds: Holds
    ranges: tuple[Mapping[str, tuple[int, int]], ...] = ({"products": (0, ANY)},)
    cost: int = 0  # picoseconds a multiply-add at a size that it is taken for, on one core with AVX-512; to be compared, not relied on
    fallback: str = "next"  # one of `FALLBACKS`
    macro_tile: int = 0  # multiply-adds that are computed apart, where a product is cut


def is_turned(problem: Problem) -> bool:
    """Say whether a product is computed as that of the transposed matrices."""
    return problem.extents.rows >= TURNED * problem.extents.columns


def _lines(problem: Problem) -> int:
    """Count the rows of the operand that is packed where the other one is not."""
    return problem.extents.columns if is_turned(problem) else problem.extents.rows


def _across(problem: Problem) -> int:
    return problem.extents.rows if is_turned(problem) else problem.extents.columns


def _in_place_bytes(problem: Problem) -> int:
    """Measure a code of the operand that is read where it is, as it is multiplied."""
    parameters = fused_parameters(problem.operation)
    return (parameters.a if is_turned(problem) else parameters.b).itemsize


def _register_tiles(problem: Problem) -> int:
    """Count the register tiles that the packed rows take."""
    from fastmma.kernels import tiles

    tile = tiles.first_fit(tiles.THIN)
    return ANY if tile is None else -(-_lines(problem) // tile.rows)


# what `ranges` bound, of a problem and the threads that compute it
QUANTITIES: dict[str, Callable[[Problem, int], int]] = {
    "products": lambda problem, _: problem.extents.products,
    "rows": lambda problem, _: problem.extents.rows,
    "columns": lambda problem, _: problem.extents.columns,
    "k": lambda problem, _: problem.extents.depth,
    "work": lambda problem, _: problem.extents.work,
    "stored work": lambda problem, _: problem.extents.work // 2,
    "work of all": lambda problem, _: problem.extents.work * problem.extents.products,
    "results of all": lambda problem, _: problem.extents.rows * problem.extents.columns * problem.extents.products,
    "codes of the larger operand": lambda problem, _: max(problem.extents.rows, problem.extents.columns) * problem.extents.depth,
    "codes of a panel": lambda problem, _: max(problem.extents.rows, 256) * problem.extents.depth,
    "instructions": lambda problem, _: -(-problem.extents.depth // problem.operation.instruction.k),
    "bytes of a code of B": lambda problem, _: problem.operation.instruction.formats.b.code_dtype.itemsize,
    "lines": lambda problem, _: _lines(problem),
    "register tiles of lines": lambda problem, _: _register_tiles(problem),
    "results across": lambda problem, _: _across(problem),
    "codes in place": lambda problem, _: _across(problem) * problem.extents.depth,
    "bytes of a code in place": lambda problem, _: _in_place_bytes(problem),
    "c": lambda problem, _: int(problem.starts),
    "epilogues": lambda problem, _: int(problem.finished),
    "k of a sum": lambda problem, _: problem.promoted,
    "threads": lambda _, threads: threads,
}


@lru_cache(1024)
def blocks_of(operation: Operation, rows: int, columns: int, depth: int, usable: frozenset[str]) -> Blocks | None:  # noqa: ARG001 - a key
    """Find what multiplies batches of matrices of this shape."""
    from fastmma.kernels.fused import batch

    return batch.blocks(fused_parameters(operation), element_specs(operation), rows, columns, depth)


@lru_cache(1024)
def register_blocks_of(operation: Operation, usable: frozenset[str]) -> RegisterBlocks | None:  # noqa: ARG001 - a key
    """Find what multiplies matrices in the registers of warps."""
    from fastmma.kernels.fused import batch

    a, b, c, d = (operation.instruction.operands[name].layout for name in "abcd")
    orders = batch.Orders(a.inverse[0], b.inverse[0], c.inverse[0], d.offsets)
    return batch.register_blocks(fused_parameters(operation), element_specs(operation), orders)


@cache
def cpu() -> ModuleType:
    """Import what kernels are compiled for. It takes long the first time, and to import it again takes a part of a small product."""
    from fastmma.kernels.llvm import cpu

    return cpu


def portable_only() -> bool:
    """Say whether only portable kernels are allowed."""
    return bool(cpu().portable())


def _in_blocks(problem: Problem) -> bool:
    _, rows, columns, depth = problem.extents
    operation = problem.operation
    return holds(operation) and blocks_of(operation, rows, columns, depth, cpu().usable()) is not None


def _of_form(problem: Problem) -> bool:
    operation, ins = problem.operation, problem.operation.instruction
    plain = not operation.own and not operation.arithmetic.interleave and not ins.sparse and not ins.scale_vec_size
    wide = ins.ctype == ins.dtype == ins.accumulator == "f32"
    return plain and wide and not (problem.starts and fused_parameters(operation).split) and _in_blocks(problem)


def _bytes_of_form(problem: Problem) -> bool:
    operation, ins = problem.operation, problem.operation.instruction
    plain = not ins.sparse and not ins.satfinite and not operation.own
    alike = all(fmt.bits == 8 for fmt in (ins.formats.a, ins.formats.b))
    return plain and alike and 1 in problem.strides.a[1:] and 1 in problem.strides.b[1:]


def _in_lanes(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    return holds(problem.operation) and packed.supported(fused_parameters(problem.operation))


def _in_place(problem: Problem) -> bool:
    """Check the strides of the operand that is read where it is."""
    if problem.operation.arithmetic.widened or not _in_lanes(problem):
        return False
    strides = (problem.strides.a if is_turned(problem) else problem.strides.b)[1:]
    return _in_place_bytes(problem) in strides and min(strides) > 0


def _widened(problem: Problem) -> bool:
    return bool(problem.operation.arithmetic.widened) and _in_lanes(problem)


def _in_halves(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    if not holds(problem.operation):
        return False
    parameters = fused_parameters(problem.operation)
    return parameters.split > 0 and packed.promotes(parameters._replace(split=0), problem.operation.instruction.k)


def _sparse(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    operation, ins = problem.operation, problem.operation.instruction
    plain = not operation.arithmetic.interleave and ins.ctype == ins.dtype == ins.accumulator
    if not plain or not holds(operation):
        return False
    parameters = fused_parameters(operation)
    multiplied = parameters._replace(split=0)
    return packed.supports_sparse(multiplied) and (not parameters.split or packed.promotes(multiplied, ins.k))


def _promoted(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    operation = problem.operation
    dense = not problem.stored and not operation.arithmetic.interleave
    return dense and holds(operation) and packed.promotes(fused_parameters(operation), problem.promoted)


def _in_registers(problem: Problem) -> bool:
    operation, ins = problem.operation, problem.operation.instruction
    layouts = [ins.operands[name].layout for name in "abcd"]
    formats = ins.formats.a, ins.formats.b, ins.formats.c, ins.formats.d
    alike = all(layout.tiles == 1 and layout.bits == fmt.bits for layout, fmt in zip(layouts, formats, strict=True))
    kept = {ins.ctype, ins.dtype} == {ins.accumulator}
    dense = not (portable_only() or ins.sparse or ins.stype or operation.arithmetic.interleave)
    return dense and alike and kept and holds(operation) and register_blocks_of(operation, cpu().usable()) is not None


def _tiles_of_groups(problem: Problem) -> bool:
    from fastmma.kernels.scaled import group_tiles

    return holds(problem.operation) and group_tiles.group_tiles(scaled_parameters(problem.operation), *problem.extents[1:]) is not None


def _tiles_of_scales(problem: Problem) -> bool:
    from fastmma.kernels.scaled import tiles

    return holds(problem.operation) and tiles.scaled_tiles(scaled_parameters(problem.operation), *problem.extents[1:]) is not None


def _groups(problem: Problem) -> bool:
    from fastmma.kernels.scaled import groups

    return holds(problem.operation) and groups.supported(scaled_parameters(problem.operation))


def _scaled_panels(problem: Problem) -> bool:
    from fastmma.kernels.scaled import products

    return holds(problem.operation) and products.supported(scaled_parameters(problem.operation))


def _in_window(problem: Problem) -> bool:
    from fastmma.kernels.general import products

    operation = problem.operation
    a, b = (element_of(fmt) for fmt in operation.multiplied)
    return in_kernels(operation.arithmetic) and products.fits_window(general_parameters(operation), a, b)


_BLOCKS = Holds("1 <= K <= 4096, steps that fill units of 8 to 64 k, sums exact in float lanes", _in_blocks)
_FORM = Holds("f32 sums of a GPU's arithmetic, in blocks", _of_form)
_BYTES = Holds("8-bit integers with adjacent rows or columns, sums that wrap", _bytes_of_form)
_REGISTERS = Holds("dense, of whole blocks, C and D as sums are kept", _in_registers)
_SPARSE = Holds("f32 sums of at least 16 products a step, which lose no bits at a step's start", _sparse)
_IN_PLACE = Holds("codes as they are multiplied, rows or columns of B adjacent, sums exact in float lanes", _in_place)
_WIDENED = Holds("codes that are widened, sums exact in float lanes", _widened)
_LANES = Holds("sums exact in float lanes", _in_lanes)
_HALVES = Holds("sums of an instruction that start at zero and join c, exact in float lanes", _in_halves)
_SCALED_TILES = Holds("ue8m0, tiles that fit blocks", _tiles_of_scales)
_GROUP_TILES = Holds("groups of e2m1, tiles of 8 columns", _tiles_of_groups)
_GROUPS = Holds("groups of e2m1 with 35 alignment bits", _groups)
_SCALED_PANELS = Holds("ue8m0, sums exact in float lanes", _scaled_panels)
_PROMOTED = Holds("dense, whole steps a sum, which is f32 and exact in float lanes", _promoted)
_WINDOW = Holds("steps of which c is a term, nothing rounded down, nothing flushed, aligned sums of 64 bits", _in_window)
_ENVELOPE = Holds("arithmetics in kernels/envelopes.py", lambda problem: holds(problem.operation))
_GENERAL = Holds(
    "steps of which c is a term, nothing rounded down, nothing flushed", lambda problem: in_kernels(problem.operation.arithmetic)
)
_REFERENCE = Holds("what no kernel knows", lambda problem: not in_kernels(problem.operation.arithmetic))
_NEAREST = Holds("rounding to nearest", lambda problem: problem.operation.instruction.rounding == "rn")
_ALL = Holds("all", lambda _: True)

_FUSED, _BOTH = ("fused",), ("fused", "grouped")
_FROM_ZERO, _FROM_C = ("f32-fma", "f32-fma-pairs"), ("f32-fma-from-c",)
# one product, or more than one instruction of k: batches of single instructions are another matter
_MATRICES = ({"products": (1, 1), "work": (1, ANY)}, {"instructions": (2, ANY), "work": (1, ANY)})
_LARGE = tuple({**each, "work": (1 << 16, ANY), "rows": (4, ANY), "columns": (4, ANY)} for each in _MATRICES)
_SOME = {"products": (1, ANY), "work": (1, ANY)}
_SINGLE = ({"products": (2, ANY), "instructions": (0, 1)},)
_MANY = ({"products": (2, ANY)},)
_SOME_SINGLE = ({**_SINGLE[0], "work": (1, ANY)},)
_FEW = {"threads": (1, 1), "results of all": (1, 1 << 16), "products": (0, 1 << 10)}
_ONE_SUM = {"products": (1, 1), "epilogues": (0, 0)}
_THIN = (
    {"bytes of a code in place": (2, 4), "lines": (1, 8), "codes in place": (1 << 20, ANY), "results across": (64, ANY), "k": (64, ANY)},
    {
        "bytes of a code in place": (1, 1),
        "register tiles of lines": (1, 1),
        "codes in place": (1 << 22, ANY),
        "results across": (64, ANY),
        "k": (64, ANY),
    },
    {
        "bytes of a code in place": (2, 4),
        "register tiles of lines": (1, 2),
        "codes in place": (1 << 24, ANY),
        "results across": (64, ANY),
        "k": (64, ANY),
    },
)

# the first row that a CPU has the features for, that holds a problem's arithmetic, and in whose ranges it is, computes it
ROUTES = (
    Route(
        "blocks of a form",
        "forms",
        "fused/fixed.py",
        "FUSED",
        _FUSED,
        False,
        _FORM,
        (
            # one thread is done with these before others would have begun
            {"work of all": (1, 1 << 19), "results of all": (1, 1 << 16), "products": (0, 1 << 10)},
            {**_FEW, "work of all": (1, 1 << 21)},
            {**_FEW, "products": (1, 1), "codes of the larger operand": (1, 1 << 16)},
        ),
        cost=66,
    ),
    Route(
        "bytes of a form",
        "forms",
        "integer/int8.py",
        "BYTES",
        ("integer",),
        False,
        _BYTES,
        (
            {**_FEW, **_ONE_SUM, "codes of a panel": (1, 1 << 17)},
            {**_ONE_SUM, "work": (0, 1 << 21), "results of all": (0, 1 << 16), "codes of a panel": (0, 1 << 17)},
        ),
        fallback="",
        cost=5,
    ),
    Route("registers", "registers", "fused/batch.py", "FUSED", _FUSED, False, _REGISTERS, cost=66),
    Route(
        "sparse panels",
        "stored",
        "fused/sparse_kernel.py",
        "FUSED",
        _FUSED,
        False,
        _SPARSE,
        ({"rows": (16, ANY), "columns": (64, ANY), "stored work": (1 << 22, ANY)},),
        cost=130,
    ),
    Route(
        "panels of sums",
        "promotions",
        "fused/packed.py",
        "FUSED",
        _FUSED,
        False,
        _PROMOTED,
        ({"k": (1, ANY), "k of a sum": (1, DEPTH)},),
        cost=66,
    ),
    Route("reference", "instructions", "numerics/reference.py", "", _BOTH, None, _REFERENCE, fallback="", cost=2_000_000),
    Route("thin", "products", "fused/thin.py", "THIN", _FUSED, False, _IN_PLACE, _THIN, fallback="exact", cost=110),
    Route(
        "blocks", "products", "fused/batch.py", "FUSED", _FUSED, False, _BLOCKS, ({"products": (1, ANY), "work": (1, 1 << 21)},), cost=66
    ),
    Route(
        "macro tiles in blocks",
        "products",
        "fused/batch.py",
        "FUSED",
        _FUSED,
        False,
        _BLOCKS,
        (
            {**_SOME, "work": (1, 1 << 24)},
            {**_SOME, "k": (1, 64)},
            {**_SOME, "rows": (16, 32)},
            {**_SOME, "rows": (1, 32), "bytes of a code of B": (1, 1)},
        ),
        macro_tile=1 << 22,
        cost=63,
    ),
    Route("thin, widened", "products", "fused/thin.py", "THIN", _FUSED, False, _WIDENED, _THIN, fallback="exact", cost=110),
    Route("panels", "products", "fused/packed.py", "FUSED", _FUSED, False, _LANES, _MATRICES, fallback="exact", cost=52),
    Route("panels of halves", "products", "fused/packed.py", "FUSED", _FUSED, False, _HALVES, _MATRICES, fallback="exact", cost=74),
    Route("scaled tiles", "products", "scaled/tiles.py", "FUSED", _BOTH, True, _SCALED_TILES, _SOME_SINGLE, fallback="exact", cost=130),
    Route(
        "tiles of groups",
        "products",
        "scaled/group_tiles.py",
        "GROUPS",
        _BOTH,
        True,
        _GROUP_TILES,
        _SOME_SINGLE,
        fallback="exact",
        cost=140,
    ),
    Route(
        "small groups",
        "products",
        "scaled/small_groups.py",
        "GROUPS",
        _BOTH,
        True,
        _GROUPS,
        # beyond it the Python of a product of any size takes a hundredth of its time
        tuple({**each, "c": (0, 0), "rows": (0, 1024), "work": (1, 1 << 26)} for each in _MATRICES),
        cost=14,
    ),
    Route("groups", "products", "scaled/groups.py", "GROUPS", _BOTH, True, _GROUPS, _MATRICES, fallback="exact", cost=15),
    Route("scaled panels", "products", "scaled/products.py", "FUSED", _BOTH, True, _SCALED_PANELS, _MATRICES, fallback="exact", cost=65),
    Route("scaled portable tiles", "products", "fused/portable.py", "", _BOTH, True, _ENVELOPE, _SINGLE, fallback="", cost=350),
    Route("scaled portable", "products", "fused/portable.py", "", _BOTH, True, _ENVELOPE, fallback="", cost=170),
    Route("portable tiles", "products", "fused/portable.py", "", _FUSED, False, _ENVELOPE, _SINGLE, fallback="", cost=330),
    Route("portable", "products", "fused/portable.py", "", _FUSED, False, _ENVELOPE, fallback="", cost=170),
    Route("general in a window", "products", "general/window.py", "", _BOTH, None, _WINDOW, fallback="", cost=760),
    Route("general", "products", "general/digits.py", "", _BOTH, None, _GENERAL, fallback="", cost=1100),
    Route("f64 panels", "products", "fma/chains.py", "CHAINS", ("f64-fma",), False, _NEAREST, _LARGE, fallback="", cost=43),
    Route("f64 tiles", "products", "fma/f64.py", "", ("f64-fma",), False, _ALL, _SINGLE, fallback="", cost=300),
    Route("f64 chains", "products", "fma/f64.py", "", ("f64-fma",), False, _ALL, fallback="", cost=156),
    Route("f32 panels", "products", "fma/chains.py", "CHAINS", _FROM_ZERO, False, _ALL, _LARGE, fallback="", cost=19),
    Route("f32 tiles", "products", "fma/m8n8k4.py", "", _FROM_ZERO, False, _ALL, _SINGLE, fallback="", cost=1300),
    Route("f32 chains", "products", "fma/m8n8k4.py", "", _FROM_ZERO, False, _ALL, fallback="", cost=170),
    Route("f32 panels from c", "products", "fma/chains.py", "CHAINS", _FROM_C, False, _ALL, _LARGE, fallback="", cost=13),
    Route("f32 tiles from c", "products", "fma/f32.py", "", _FROM_C, False, _ALL, _MANY, fallback="", cost=75),
    Route("f32 chains from c", "products", "fma/f32.py", "", _FROM_C, False, _ALL, fallback="", cost=204),
    Route("tiles of bytes", "products", "integer/int8.py", "", ("integer",), False, _ALL, _SINGLE, fallback="", cost=68),
    Route("bytes", "products", "integer/int8.py", "", ("integer",), False, _ALL, fallback="", cost=5),
    Route("tiles of bits", "products", "integer/b1.py", "", ("bit",), False, _ALL, _SINGLE, fallback="", cost=11),
    Route("bits", "products", "integer/b1.py", "", ("bit",), False, _ALL, fallback="", cost=1),
)
