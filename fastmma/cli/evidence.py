"""``fastmma evidence``: which GPUs' arithmetic is known, and how."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import typer

from fastmma.cli.table import print_json, print_markdown, print_table
from fastmma.host.errors import TargetError
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.isa.targets import TARGETS, architecture
from fastmma.numerics.lookup import arithmetic

LEVELS = ("measured", "recorded", "reported", "unknown")
HEADINGS = ("instructions", *LEVELS)
_EXACT = ("integer", "bit")


def _family(ins: Instruction) -> str:
    """Head and shape-independent name of what a row of the table is about."""
    head = ins.opcode.split(".aligned")[0].removesuffix(".sync").replace("::ordered_metadata", "")
    kind = f" kind::{ins.kind}" if ins.kind else ""
    lowered = " m8n8k4" if ins.shape == "m8n8k4" and ins.atype == "f16" else ""
    return f"{head}{kind}{lowered}"


def _level(ins: Instruction, target: str) -> tuple[str, str]:
    try:
        row = arithmetic(ins, target, strict=False)
    except TargetError:
        return "unknown", "float"
    return row.evidence.level, "exact" if row.method in _EXACT else "float"


def evidence_rows() -> list[list[str]]:
    """One row a family of instructions that share their evidence: its name, and the architectures at each level."""
    levels: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: {level: set() for level in LEVELS})
    for ins in multiplications():
        found = levels[_family(ins), ins.atype]
        for target in ins.targets:
            found[_level(ins, target)[0]].add(architecture(target))
    merged: defaultdict[tuple[str, tuple[frozenset[str], ...]], list[str]] = defaultdict(list)
    for (family, atype), found in levels.items():
        merged[family, tuple(frozenset(found[level]) for level in LEVELS)].append(atype)
    order = list(dict.fromkeys(architecture(target) for target in TARGETS))
    return [
        [f"{family} {', '.join(atypes)}", *(", ".join(sorted(each, key=order.index)) or "-" for each in groups)]
        for (family, groups), atypes in merged.items()
    ]


def evidence(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show how the arithmetic of each GPU is known.

    Measured: on our own GPU. Recorded: equal to recordings of a GPU made by others. Reported: taken from publications or derived, not
    compared with a GPU; refused by FASTMMA_STRICT=1. Unknown: the opcode is legal there, and fastmma refuses to emulate it.
    """
    rows = evidence_rows()
    if as_json:
        print_json([dict(zip(HEADINGS, row, strict=True)) for row in rows])
    elif markdown:
        print_markdown(HEADINGS, rows)
    else:
        print_table(HEADINGS, rows)
