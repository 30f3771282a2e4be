"""``fastmma list``: the instructions, filtered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from fastmma.cli.table import Choices, merged, print_json, print_markdown, print_table, print_text, spans, version_text
from fastmma.host.errors import InstructionError
from fastmma.isa.amd import table as amd
from fastmma.isa.formats import FORMATS
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import instructions
from fastmma.isa.targets import NO_PTX, PTX_TARGETS
from fastmma.isa.tcgen05 import moves
from fastmma.isa.tcgen05.copies import COPIES, SHIFTS, Copy, Shift
from fastmma.isa.tcgen05.instruction import OP, largest

Listed = Instruction | Movement | Copy | Shift

FAMILY_HEADINGS = ("instruction", "shapes", "D and C", "A", "B", "modifiers", "PTX", "targets")
SUMMARY_HEADINGS = ("instruction", "shape", "D and C", "A", "B", "modifiers", "targets")
_SHAPE = re.compile(r"m(\d+)n(\d+)(?:k(\d+))?")
_MOVED = re.compile(r"b\d+(x\d+)?(_p\d+)?")  # the types of ldmatrix, stmatrix, movmatrix, and of what tcgen05 moves
_TENSOR_MEMORY: dict[str, tuple[Listed, ...]] = {
    **{op: tuple(move for move in moves.MOVEMENTS if move.op == op) for op in (moves.LOAD, moves.LOAD_REDUCED, moves.STORE)},
    **{rows[0].op: rows for rows in (COPIES, SHIFTS)},
}


def _shape(ins: Listed) -> str:
    """The shape as it stands in the opcode: that of movements may have no k, and that of tcgen05 stands in its descriptor."""
    if ins.op == OP or ins.op in _TENSOR_MEMORY or ins.ptx == NO_PTX:
        return ins.shape
    return next(token for token in ins.opcode.split(".") if _SHAPE.fullmatch(token))


def _types(ins: Listed) -> list[str]:
    """The types as they stand in the opcode, or in the descriptor of tcgen05."""
    if isinstance(ins, Instruction) and (ins.op == OP or ins.ptx == NO_PTX):
        return [ins.dtype, ins.atype, ins.btype, *filter(None, (ins.stype,))]
    if isinstance(ins, Movement) and ins.reduction:
        return [ins.dtype]
    return [token for token in ins.opcode.split(".") if token in FORMATS or (not isinstance(ins, Instruction) and _MOVED.fullmatch(token))]


def _fields(ins: Listed) -> tuple[Choices, ...]:
    """Return what the columns of the summary say about one instruction, each a choice of one."""
    if isinstance(ins, Instruction) and ins.op == OP:
        head, scales = ins.opcode.split(" ")[0], f".{ins.stype}" if ins.stype else ""
        return (head,), (ins.shape,), (ins.dtype,), (ins.atype,), (ins.btype,), (scales,), ins.targets
    if isinstance(ins, Instruction) and ins.ptx == NO_PTX:
        head, _, modifiers = ins.opcode.partition(" ")
        return (head,), (ins.shape,), (ins.dtype,), (ins.atype,), (ins.btype,), (modifiers,), ins.targets
    tokens = ins.opcode.split(".")
    issued = tokens.index("aligned") if "aligned" in tokens else 2  # by one thread: tcgen05.cp and tcgen05.shift
    kind = [token for token in tokens if token.startswith(("kind::", "block_scale", "scale_vec::"))]
    types = _types(ins)
    rest = [token for token in tokens[issued:] if token not in ("aligned", *kind, *types, _shape(ins))]
    head = ".".join((*tokens[:issued], *kind))
    modifiers = "".join(f".{token}" for token in rest)
    if not isinstance(ins, Instruction):
        return (head,), (_shape(ins),), (".".join(types),), ("",), ("",), (modifiers,), ins.targets
    accumulators = ins.dtype if ins.ctype == ins.dtype else f"{ins.dtype} (C {ins.ctype})"
    scales = f".{ins.stype}" if ins.stype else ""
    return (head,), (_shape(ins),), (accumulators,), (ins.atype,), (ins.btype,), (modifiers + scales,), ins.targets


def _shapes(shapes: Sequence[str]) -> str:
    """Shapes in short: those of wgmma differ in n only."""
    if len(shapes) < 5:
        return ", ".join(shapes)
    sizes = [matched.groups() for matched in map(_SHAPE.fullmatch, shapes) if matched]
    if not sizes:
        return ", ".join(shapes)
    m, widths, k = sizes[0][0], [n for _, n, _ in sizes], sizes[0][2]
    if {(other, depth) for other, _, depth in sizes} != {(m, k)}:
        return ", ".join(shapes)
    return f"m{m}nNk{k} (N = {widths[0]}, {widths[1]}, ... {widths[-1]}: {len(widths)} shapes)"


def _choices(choices: Sequence[str], between: str = ", ") -> str:
    return choices[0] if len(choices) == 1 else between.join(choice or "(none)" for choice in choices)


def _rows(listed: Sequence[Listed], complete: bool) -> list[tuple[Choices, ...]]:
    """Rows whose every combination of choices is a legal opcode, and that together are exactly the instructions given.

    Complete ones have a column of the PTX version before the targets, and differ in it.
    """
    rows = [(*_fields(ins)[:-1], *([(version_text(ins.ptx),)] if complete else []), ins.targets) for ins in listed]
    for column in (1, 4, 3, 2, 5) if complete else (1, 4, 3, 2, 5, 0):
        rows = merged(rows, column)
    return rows


def summary(listed: Sequence[Listed]) -> list[list[str]]:
    """Cells of the rows that leave shapes out which differ in n only."""
    return [
        [", ".join(head), _shapes(shapes), *map(_choices, (d, a, b)), _choices(modifiers, " "), spans(targets, PTX_TARGETS)]
        for head, shapes, d, a, b, modifiers, targets in _rows(listed, complete=False)
    ]


def _all_shapes(shapes: Sequence[str]) -> str:
    """Shapes without an omission: those that differ in n only as that of the first and the other n."""
    first, *others = [matched and matched.groups() for matched in map(_SHAPE.fullmatch, shapes)]
    if first is None or not others or any(each is None or each[::2] != first[::2] for each in others):
        return ", ".join(shapes)
    return ", ".join((shapes[0], *(f"n{each[1]}" for each in others if each)))


def families(listed: Sequence[Listed]) -> list[list[str]]:
    """Cells of the rows that leave nothing out: each holds for one PTX version and the same targets."""
    return [
        [", ".join(head), _all_shapes(shapes), *map(_choices, (d, a, b)), _choices(modifiers, " "), *ptx, spans(targets, PTX_TARGETS)]
        for head, shapes, d, a, b, modifiers, ptx, targets in _rows(listed, complete=True)
    ]


def _check(value: str | None, known: Iterable[str], what: str) -> None:
    choices = list(dict.fromkeys(known))
    if value is not None and value not in choices:
        shown = ", ".join(choices[:24]) + (f" and {len(choices) - 24} more" if len(choices) > 24 else "")
        raise InstructionError(f"there is no {what} {value!r}; there are {shown}")


def select(target: str | None, element: str | None, shape: str | None, op: str | None) -> list[Listed]:
    """The instructions that pass every filter given.

    Raises
    ------
    InstructionError, TargetError
        If a filter names something that no instruction has.
    """
    target = None if target is None else target_named(target)
    everything: Sequence[Listed] = instructions(target)
    known: Sequence[Listed] = instructions()
    _check(op, (*(ins.op for ins in known), OP, *_TENSOR_MEMORY, *(ins.op for ins in amd.every())), "op")
    if op == OP:  # one of all shapes each
        everything, known = largest(target, every_form=True), largest(every_form=True)
    elif op is not None and op.startswith("v_"):
        everything, known = [ins for ins in amd.every() if target is None or target in ins.targets], amd.every()
    elif op in _TENSOR_MEMORY:
        everything, known = [ins for ins in _TENSOR_MEMORY[op] if target is None or target in ins.targets], _TENSOR_MEMORY[op]
    _check(element, (each for ins in known for each in _types(ins)), "type")
    _check(shape, map(_shape, known), "shape")
    return [
        ins
        for ins in everything
        if (op is None or ins.op == op) and (element is None or element in _types(ins)) and (shape is None or _shape(ins) == shape)
    ]


def list_instructions(
    target: str | None,
    element: str | None,
    shape: str | None,
    op: str | None,
    grouped: bool,
    complete: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    """List the instructions."""
    listed = select(target, element, shape, op)
    headings = FAMILY_HEADINGS if complete else SUMMARY_HEADINGS
    table = families if complete else summary
    if as_json and (grouped or complete):
        print_json([dict(zip(headings, row, strict=True)) for row in _rows(listed, complete)])
    elif as_json:
        print_json([_described(ins) for ins in listed])
    elif grouped or complete or markdown:
        if complete:
            print_text(f"Targets: {', '.join(PTX_TARGETS)}\n\n")
        (print_markdown if markdown else print_table)(headings, table(listed))
    else:
        lines = [(ins.opcode, version_text(ins.ptx), spans(ins.targets, PTX_TARGETS)) for ins in listed]
        print_table(("opcode", "PTX", "targets"), lines)


def _described(ins: Listed) -> dict[str, Any]:
    """Describe one instruction for JSON."""
    version = version_text(ins.ptx)
    return {"opcode": ins.opcode, "op": ins.op, "shape": _shape(ins), "types": _types(ins), "targets": list(ins.targets), "ptx": version}
