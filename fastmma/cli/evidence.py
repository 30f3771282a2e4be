"""``fastmma evidence``: which GPUs' arithmetic is known, and how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from fastmma.cli.table import Choices, merged, print_json, print_markdown, print_table
from fastmma.host.errors import InstructionError, TargetError
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.isa.targets import NO_PTX, TARGETS, architecture
from fastmma.isa.tcgen05.instruction import largest
from fastmma.numerics.arithmetic import NO_FLOOR
from fastmma.numerics.evidence import LEVELS
from fastmma.numerics.lookup import arithmetic
from fastmma.numerics.methods import METHODS

HEADINGS = ("instructions", *LEVELS)
ARITHMETIC_HEADINGS = (
    "instructions",
    "k",
    "A",
    "B",
    "sums in",
    "architectures",
    "method",
    "L",
    "F",
    "emax >=",
    "keep",
    "split",
    "widened to",
    "group",
    "evidence",
)


def _family(ins: Instruction) -> str:
    """Head and shape-independent name of what a row of the table is about."""
    if ins.form:
        other = "" if ins.form == "cta_group::1" and not ins.sparse else ", .sp, .ws or cta_group::2,"
        return f"tcgen05.mma{other} kind::{ins.kind}"
    if ins.ptx == NO_PTX:
        return f"{ins.op} {ins.kind}".strip()
    head = ins.opcode.split(".aligned")[0].removesuffix(".sync").replace("::ordered_metadata", "")
    kind = f" kind::{ins.kind}" if ins.kind else ""
    lowered = " m8n8k4" if ins.shape == "m8n8k4" and ins.atype == "f16" else ""
    return f"{head}{kind}{lowered}"


@lru_cache(256)
def _by_architecture(targets: tuple[str, ...]) -> dict[str, str]:
    """One target of each architecture: the others compute alike."""
    return {architecture(target): target for target in targets}


def _level(ins: Instruction, target: str) -> str:
    try:
        return arithmetic(ins, target, strict=False).evidence.level
    except TargetError:
        return "unknown"


def _listed(ops: Sequence[str]) -> list[Instruction]:
    """List the instructions that multiply, one of those that differ in N alone: N changes no sum. All, or those of some ops.

    Raises
    ------
    InstructionError
        If there is no such op.
    """
    every = (*multiplications(), *largest(every_form=True))
    known = dict.fromkeys(ins.op for ins in every)
    for op in ops:
        if op not in known:
            raise InstructionError(f"there is no op {op!r}; there are {', '.join(known)}")
    alike: dict[tuple[object, ...], Instruction] = {}
    for ins in every:
        if not ops or ins.op in ops:
            sums = ins.m, ins.k, ins.atype, ins.btype, ins.accumulator, ins.sparse
            alike.setdefault((ins.op, ins.kind, ins.form, ins.targets, *sums), ins)
    return list(alike.values())


def evidence_rows(ops: Sequence[str] = ()) -> list[tuple[str, *tuple[list[str], ...]]]:
    """One row a family of instructions that share their evidence: its name, and the architectures at each level."""
    levels: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: {level: set() for level in LEVELS})
    for ins in _listed(ops):
        found = levels[_family(ins), ins.atype]
        for base, target in _by_architecture(ins.targets).items():
            found[_level(ins, target)].add(base)
    merged: defaultdict[tuple[str, tuple[frozenset[str], ...]], list[str]] = defaultdict(list)
    for (family, atype), found in levels.items():
        merged[family, tuple(frozenset(found[level]) for level in LEVELS)].append(atype)
    order = list(dict.fromkeys(architecture(target) for target in TARGETS))
    return [
        (f"{family} {', '.join(atypes)}", *(sorted(each, key=order.index) for each in groups))
        for (family, groups), atypes in merged.items()
    ]


def _parameters(ins: Instruction, target: str) -> tuple[str, ...]:
    """The cells of `ARITHMETIC_HEADINGS` from the method on; those that the method does not use are empty."""
    try:
        row = arithmetic(ins, target, strict=False)
    except TargetError:
        return ("unknown", *[""] * 8)
    method = METHODS[row.method]
    if not method.in_steps or row.c_joins != "terms" or row.align_rounding != "rz":
        return (row.family, *[""] * 7, row.evidence.level)
    floor = "" if row.emax_floor == NO_FLOOR else str(row.emax_floor)
    group = str(row.group) if method.by_scales else ""
    split = str(row.split or "")
    return (row.method, str(row.terms), str(row.align_bits), floor, str(row.keep_bits), split, row.widened, group, row.evidence.level)


def arithmetic_rows(ops: Sequence[str] = ()) -> list[tuple[Choices, ...]]:
    """Show what every architecture computes: a row for instructions and architectures that compute alike, in the terms of `Arithmetic`."""
    rows: dict[tuple[str, ...], None] = {}
    for ins in _listed(ops):
        form = "" if ins.form in ("", "cta_group::1") else f" {ins.form}"
        head = f"{ins.op}{'.sp' if ins.sparse else ''}{form}{f' kind::{ins.kind}' if ins.kind else ''}"
        about = (head, str(ins.k), ins.atype, ins.btype, ins.accumulator)
        for base, target in _by_architecture(ins.targets).items():
            rows[(*about, base, *_parameters(ins, target))] = None
    found: list[tuple[Choices, ...]] = [tuple((cell,) for cell in row) for row in rows]
    for column in (3, 2, 1, 5):
        found = merged(found, column)
    return found


def evidence(
    parameters: bool,
    ops: tuple[str, ...],
    markdown: bool,
    as_json: bool,
) -> None:
    """Show how the arithmetic of each GPU is known."""
    headings: Sequence[str] = ARITHMETIC_HEADINGS if parameters else HEADINGS
    rows: Sequence[Sequence[str | Sequence[str]]] = arithmetic_rows(ops) if parameters else evidence_rows(ops)
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return
    empty = "" if parameters else "-"
    cells = [[cell if isinstance(cell, str) else ", ".join(cell) or empty for cell in row] for row in rows]
    (print_markdown if markdown else print_table)(headings, cells)
