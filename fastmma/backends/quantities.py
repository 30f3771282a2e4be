"""Numbers of a problem that the ranges of the table of kernels bound."""

from __future__ import annotations

from collections.abc import Callable

from fastmma.backends.parameters import fused_parameters
from fastmma.backends.problem import Problem

ANY = 1 << 62  # no bound
TURNED = 4  # rows for each column, from which on a product is computed as that of the transposed matrices ...
WIDE = 128  # ... unless it has so many columns: transposing the results costs more than packing rows instead of columns


def is_turned(problem: Problem) -> bool:
    """Say whether a product is computed as that of the transposed matrices."""
    return problem.extents.rows >= TURNED * problem.extents.columns and problem.extents.columns < WIDE


def _lines(problem: Problem) -> int:
    """Count the rows of the operand that is packed where the other one is not."""
    return problem.extents.columns if is_turned(problem) else problem.extents.rows


def _across(problem: Problem) -> int:
    return problem.extents.rows if is_turned(problem) else problem.extents.columns


def in_place_bytes(problem: Problem) -> int:
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
    "codes of a panel": lambda problem, _: max(problem.extents.rows, 256) * problem.extents.depth,
    "instructions": lambda problem, _: -(-problem.extents.depth // problem.operation.instruction.k),
    "bits of an exponent": lambda problem, _: max(fmt.exponent_bits for fmt in problem.operation.multiplied),
    "bytes of a code of B": lambda problem, _: problem.operation.instruction.formats.b.code_dtype.itemsize,
    "lines": lambda problem, _: _lines(problem),
    "register tiles of lines": lambda problem, _: _register_tiles(problem),
    "results across": lambda problem, _: _across(problem),
    "codes in place": lambda problem, _: _across(problem) * problem.extents.depth,
    "bytes of a code in place": lambda problem, _: in_place_bytes(problem),
    "parts of k": lambda problem, _: problem.parts,
    "c": lambda problem, _: int(problem.starts),
    "epilogues": lambda problem, _: int(problem.finished),
    "k of a sum": lambda problem, _: problem.promoted,
    "threads": lambda _, threads: threads,
}
