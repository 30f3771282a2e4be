"""``fastmma doctor`` of kernels: the table of all of them, and the one that computes a product."""

from __future__ import annotations

from typing import Any

from fastmma.backends.parts import cuts
from fastmma.backends.problem import Extents, Problem, Strides
from fastmma.backends.resolve import operation_of
from fastmma.backends.route import Verdict, explain, text_of_features, text_of_ranges
from fastmma.backends.routes import CALLS, FALLBACKS, ROUTES, Route
from fastmma.cli.inputs import parse_size
from fastmma.cli.operands import choose_instruction
from fastmma.cli.table import print_json, print_markdown, print_table
from fastmma.host.errors import OperandError
from fastmma.host.threads import thread_count
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction

_HEADINGS = ("kernel", "module", "computes", "takes", "CPU features", "holds", "taken for", "fallback", "ps")
_SCALES = {None: " with or without scales", True: " with scales", False: ""}


def _cells(row: Route) -> tuple[str, ...]:
    method = " or ".join(f"`{name}`" for name in row.methods) + _SCALES[row.scaled]
    kernel = f"`{row.kernel}`"
    return (
        row.name,
        kernel,
        method,
        CALLS[row.call],
        text_of_features(row),
        row.holds.text,
        text_of_ranges(row),
        FALLBACKS[row.fallback],
        str(row.cost),
    )


def print_kernels(markdown: bool, as_json: bool) -> None:
    """Print the table of kernels, in the order in which they are asked."""
    rows = [_cells(row) for row in ROUTES]
    if as_json:
        print_json([dict(zip(_HEADINGS, row, strict=True)) for row in rows])
    elif markdown:
        print_markdown(_HEADINGS, rows)
    else:
        print_table(_HEADINGS, [[cell.replace("`", "") for cell in row] for row in rows])


def _first_part(ins: Instruction, extents: Extents) -> Extents:
    """Cut a large product as it is computed."""
    products, rows, columns, _depth = extents
    part = next(cuts(*extents, ins.k))
    return Extents(
        products, min(part.rows.stop, rows) - part.rows.start, min(part.columns.stop, columns) - part.columns.start, part.stop - part.start
    )


def _problem(ins: Instruction, target: str, size: tuple[int, int, int]) -> Problem:
    """Describe one product of arrays in C order, without c."""
    m, n, k = size
    if not m * n * k:
        raise OperandError(f"--route takes sizes of at least 1, not {m}x{n}x{k}")
    wide, high = ins.formats.b.code_dtype.itemsize, ins.formats.a.code_dtype.itemsize
    stored = k * ins.stored_k // ins.k
    strides = Strides((m * stored * high, stored * high, high), (k * n * wide, n * wide, wide))
    return Problem(operation_of(ins, target), _first_part(ins, Extents(1, m, n, k)), strides, False, bool(ins.stype), bool(ins.sparse))


def _taken(verdicts: list[Verdict]) -> Route | None:
    return next((verdict.row for verdict in verdicts if not verdict.reason), None)


def print_route(size: str, types: str | None, instruction: str | None, target: str, as_json: bool) -> None:
    """Print which kernel computes a product, and why no other one does."""
    m, n, k = parse_size(size, "--route")
    target = target_named(target)
    ins = choose_instruction(instruction, types, None, target, {})
    problem, threads = _problem(ins, target, (m, n, k)), thread_count()
    verdicts = explain(problem, threads, ("stored", "products") if ins.sparse else ("products",))
    first, again = _taken(verdicts), _taken(explain(problem, threads, ("forms",)))
    assert first is not None
    part = problem.extents
    found: dict[str, Any] = {
        "instruction": ins.opcode,
        "target": target,
        "arithmetic": problem.operation.arithmetic.family,
        "shape": [m, n, k],
        "part": [part.rows, part.columns, part.depth],
        "taken": first.name,
        "again": (again or first).name,
        "kernels": [{"name": row.name, "module": row.kernel, "taken": not reason, "reason": reason} for row, reason in verdicts],
    }
    if as_json:
        print_json(found)
        return
    of_part = "" if part[1:] == (m, n, k) else f", of which a part is {part.rows}x{part.columns}x{part.depth}"
    title = f"{m}x{n}x{k}{of_part} by {ins.opcode} on {target}, {threads} threads"
    lines = [(row.name, row.kernel, reason or "taken") for row, reason in verdicts]
    if again is not None:
        lines = [(name, kernel, "taken when the form comes again" if name == again.name else why) for name, kernel, why in lines]
    print_table(("kernel", "module", "why"), lines, title)
