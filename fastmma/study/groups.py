"""Records that are compared with each other: those of the same operands, and of these the deepest."""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.study.grid import case_of
from fastmma.study.records import Record


def series(record: Record) -> str:
    """Return what is compared between records of the same operands: the format and the accumulator."""
    case = case_of(record)
    return f"{case.format}, {case.accumulator}"


def grouped(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by where their operands come from, in order of appearance; also by M x N and by seed, if there are several."""
    sizes, seeds = {(record["m"], record["n"]) for record in records}, {record["seed"] for record in records}
    found: dict[str, list[Record]] = {}
    for record in records:
        size = f", {record['m']} x {record['n']}" if len(sizes) > 1 else ""
        seed = f", seed {record['seed']}" if len(seeds) > 1 else ""
        found.setdefault(case_of(record).source + size + seed, []).append(record)
    return found


def deepest(records: Sequence[Record]) -> list[Record]:
    """Those with the largest K, those of one format next to each other."""
    depth = max(record["k"] for record in records)
    formats = list(dict.fromkeys(record["format"] for record in records))
    return sorted((record for record in records if record["k"] == depth), key=lambda record: formats.index(record["format"]))
