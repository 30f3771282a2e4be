"""``fastmma gpus``: the names of GPUs that are accepted as targets, and what is known of each."""

from __future__ import annotations

from fastmma.cli.table import print_json, print_markdown, print_table
from fastmma.host.errors import FastmmaError
from fastmma.isa.targets import ARCHITECTURES, Architecture
from fastmma.numerics.lookup import arithmetic
from fastmma.products.choice import usual_instruction

TYPES = ("f16", "tf32", "e4m3")
HEADINGS = ("target", "GPUs", "vendor", "capability", *TYPES)


def _known(row: Architecture, fmt: str) -> str:
    """Tell how a GPU adds products of a format, by the instruction that its libraries take, and how that is known; "-" if it has none."""
    ins = usual_instruction(fmt, fmt, None, row.usual)
    if ins is None:
        return "-"
    try:
        found = arithmetic(ins, row.usual, strict=False)
    except FastmmaError:
        return "-"
    return f"{found.family} ({found.evidence.level})"


def rows() -> list[tuple[str, ...]]:
    """List the architectures: target, names, vendor, compute capability, then arithmetic and evidence by format."""
    return [
        (row.usual, ", ".join(row.gpus), row.vendor, ".".join(map(str, row.capability)), *(_known(row, fmt) for fmt in TYPES))
        for row in ARCHITECTURES
    ]


def gpus(markdown: bool, as_json: bool) -> None:
    """List the names of GPUs that are accepted as targets, how each adds products, and how that is known."""
    listed = rows()
    if as_json:
        print_json([{**dict(zip(HEADINGS, row, strict=True)), "GPUs": row[1].split(", ") if row[1] else []} for row in listed])
    else:
        (print_markdown if markdown else print_table)(HEADINGS, listed)
