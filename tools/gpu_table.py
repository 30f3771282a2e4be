"""The page on which GPUs agree: GPU by GPU by type, a verdict in each cell; ``python -m tools.gpu_table`` writes it anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from itertools import combinations
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from fastmma import GemmPlan, Verdict, same_bits
from fastmma.explanation.explorer.rules import KINDS, Kind, gpus, usual_of
from fastmma.isa.codes import to_codes

PAGE = Path(__file__).parents[1] / "docs" / "gpu_by_gpu.md"
_HEAD = """# GPU by GPU

Do two GPUs have the same bits? Choose a type, and find the cell of your two GPUs. A cell is for the instruction that
libraries usually take for this type, for any K and all inputs, including NaN and infinities.

- **same**, green: the bits are equal, by proof.
- **differ**, red: a few numbers tell the two GPUs apart. Both sums were computed; the link shows them side by side.
- **?**, grey: the arithmetic of one GPU is only reported; nobody has compared it with the GPU. The word after it holds
  if the report is right.

Point at a cell to see the reason. Two GPUs that agree here can still differ in a library's product, if the library cuts
k differently ([Do your GPUs agree?](agree.md)). `python -m tools.gpu_table` makes this page; `tests/test_gpu_table.py`
computes all numbers behind its links again.
"""
_SAID = {True: "same", False: "differ", None: "not decided"}
_COLOURS = {True: "same", False: "differ", None: "unknown"}


def address(kind: Kind, pair: tuple[str, str], verdict: Verdict) -> str:
    """Return what opens a witness on the page of one sum; empty where that page does not have it."""
    if verdict.witness is None or kind.scale or verdict.k is None or verdict.k > 128:
        return ""
    row, column = (to_codes(np.ascontiguousarray(each), kind.fmt).reshape(-1) for each in verdict.witness)
    places = [k for k in range(verdict.k) if row[k] or column[k]]
    found = "_".join(f"{k}.{int(row[k]):x}.{int(column[k]):x}" for k in places)
    return f"../sum.html#{urlencode({'type': kind.name, 'gpus': ','.join(pair), 'k': verdict.k, 'sum': found})}"


def verdicts(kind: Kind) -> Iterator[tuple[tuple[str, str], Verdict]]:
    """Decide about each pair of GPUs; those whose instructions compute alike are decided together."""
    usual, known = usual_of(kind), dict[object, Verdict]()
    for p, q in combinations(usual, 2):
        key = tuple((ins.k, arithmetic.numbers, arithmetic.evidence.level == "reported") for ins, arithmetic in (usual[p], usual[q]))
        if key not in known:
            known[key] = same_bits(*(GemmPlan(target, usual[target][0].opcode) for target in (p, q)))
        yield (p, q), known[key]


def _reported(kind: Kind, target: str) -> bool:
    return usual_of(kind)[target][1].evidence.level == "reported"


def _cell(kind: Kind, pair: tuple[str, str], verdict: Verdict) -> str:
    """Write a cell: its colour is that of what is known, and its note says why."""
    unsure = bool(verdict.assumed)
    text = f"? {_SAID[verdict.as_written]}" if unsure else _SAID[verdict.equal]
    usual, link = usual_of(kind), address(kind, pair, verdict)
    told = [
        f"what {target} computes is only reported: {usual[target][1].evidence.source}"
        for target in pair
        if unsure and _reported(kind, target)
    ]
    why = re.sub(r"; \S+ on \S+ adds like .*", "", verdict.reason.rpartition("As the plans are written, ")[2])
    inside = f'<a href="{escape(link)}">{text}</a>' if link else text
    return f'<td class="{"unknown" if unsure else _COLOURS[verdict.equal]}" title="{escape("; ".join([*told, why]))}">{inside}</td>'


def table(kind: Kind) -> Iterator[str]:
    """Yield the lines of a type's table."""
    usual, names, found = usual_of(kind), gpus(), dict(verdicts(kind))
    yield f"## {kind.title}\n"
    yield '<table class="gpus"><thead><tr><th></th>'
    yield "".join(f'<th title="{escape(ins.opcode)}">{names[target]}</th>' for target, (ins, _) in usual.items())
    yield "</tr></thead><tbody>"
    for p, (_, arithmetic) in usual.items():
        cells = []
        for q in usual:
            pair = (p, q) if (p, q) in found else (q, p)
            cells.append('<td class="own"></td>' if p == q else _cell(kind, pair, found[pair]))
        note = f"{arithmetic.family}; {arithmetic.evidence}"
        known = f"{p}, {arithmetic.evidence.level}" if names[p] != p else arithmetic.evidence.level
        yield f'<tr><th title="{escape(note)}">{names[p]} <small>{known}</small></th>{"".join(cells)}</tr>'
    yield "</tbody></table>\n"


def text() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for kind in KINDS for line in table(kind))])


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
