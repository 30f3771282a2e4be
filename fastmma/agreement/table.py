"""The table of GPUs that agree: the usual instruction of each for a type, compared in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastmma.agreement.same_bits import same_bits
from fastmma.agreement.verdict import Verdict
from fastmma.host.errors import FastmmaError
from fastmma.isa.formats import format_of
from fastmma.isa.gpus import target_named
from fastmma.products.choice import default_instruction
from fastmma.products.gemm_plan import GemmPlan

# one for each kind of tensor cores
GPUS = ("V100", "T4", "A100", "RTX 3090", "L40S", "H100", "B200", "B300", "RTX 5090")
SAME, DIFFERS = "same", "differs"


def plans_of(dtype: Any) -> dict[str, GemmPlan]:
    """Return the plan of the instruction that libraries usually take for a type, by GPU; GPUs that have none are left out.

    Examples
    --------
    >>> list(plans_of("e4m3"))
    ['L40S', 'H100', 'B200', 'B300', 'RTX 5090']
    """
    name, found = format_of(dtype).name, {}
    for gpu in GPUS:
        try:
            target = target_named(gpu)
            found[gpu] = GemmPlan(target, default_instruction(name, name, "f32", target).opcode)
        except FastmmaError:
            continue
    return found


def verdicts(plans: dict[str, GemmPlan]) -> dict[tuple[str, str], Verdict]:
    """Decide about each pair of GPUs."""
    names = list(plans)
    return {(p, q): same_bits(plans[p], plans[q]) for number, p in enumerate(names) for q in names[number + 1 :]}


def cell(verdict: Verdict) -> str:
    """Write a verdict as a cell: in parentheses where what a GPU computes is only reported.

    Examples
    --------
    >>> cell(Verdict(None, "", assumed=("reported",), as_written=True)), cell(Verdict(False, "", as_written=False))
    ('(same)', 'differs')
    """
    text = {True: SAME, False: DIFFERS, None: "not known"}[verdict.as_written]
    return f"({text})" if verdict.assumed else text


def rows_of(plans: dict[str, GemmPlan], found: dict[tuple[str, str], Verdict]) -> Iterator[list[str]]:
    """Yield a row for each GPU: its arithmetic, how well it is known, and a cell for each GPU."""
    for name, plan in plans.items():
        arithmetic = plan.operation.arithmetic
        cells = [cell(found[name, other] if (name, other) in found else found[other, name]) if other != name else "" for other in plans]
        yield [name, arithmetic.family, arithmetic.evidence.level, *cells]


def reasons_of(found: dict[tuple[str, str], Verdict]) -> list[tuple[str, str, Verdict]]:
    """Return one pair of GPUs for each reason for which some differ."""
    kept: dict[tuple[str, ...], tuple[str, str, Verdict]] = {}
    for (p, q), verdict in found.items():
        if verdict.equal is False:
            kept.setdefault((verdict.reason,), (p, q, verdict))
    return list(kept.values())
