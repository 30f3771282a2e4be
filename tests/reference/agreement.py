"""Pairs of plans whose bits are decided: rows of the numerics tables, and arithmetics of one's own; and what checks a decision.

``python tests/reference/agreement.py [COUNT [SEED]]`` decides about all pairs of rows, and so many pairs of own arithmetics, and prints how
many were equal, differ, or were not decided, and what was computed to contradict them.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import fastmma
from fastmma.agreement.build import Cell, form_of
from fastmma.agreement.problem import problem_of
from fastmma.agreement.search import Pair, search
from fastmma.isa.table import multiplications
from fastmma.isa.targets import TARGETS

OPCODES = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90a"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32", "sm_90a"),
    ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32", "sm_120a"),
    ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m3.e3m2.f32", "sm_120a"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "sm_90a"),
)
_WEIGHTS = {"align_bits": 4, "keep_bits": 2, "rounding": 2, "align_rounding": 3, "emax_floor": 3, "terms": 3, "group": 1}
_WEIGHTS |= {"widened": 1, "interleave": 1, "split": 1, "c_joins": 1, "flush_inputs": 1, "flush_results": 1}
_ROUNDINGS = ["rz", "rn", "ro", "rm"]


class Decision(NamedTuple):
    """Two plans, and for which K they are compared."""

    p: fastmma.GemmPlan
    q: fastmma.GemmPlan
    k: int | None
    c: bool = False


def row_pairs() -> Iterator[Decision]:
    """Pair plans of all rows of the numerics tables that are of one problem; one plan for all instructions that compute alike."""
    plans: dict[Any, fastmma.GemmPlan] = {}
    for target in TARGETS:
        for ins in multiplications(target):
            if ins.ctype != ins.dtype or ins.satfinite or ins.rounding not in ("", "rn"):
                continue
            try:
                arithmetic = fastmma.arithmetic(ins, target, strict=False)
            except fastmma.TargetError:  # nothing is known of it
                continue
            form = ins.k, ins.atype, ins.btype, ins.dtype, ins.sparse, ins.stype, ins.scale_vec_size, ins.bit_op
            key = arithmetic.numbers, form, arithmetic.evidence.level == "reported"
            if key not in plans:
                plans[key] = fastmma.GemmPlan(target, ins.opcode)
    groups = defaultdict(list)
    for plan in plans.values():
        groups[problem_of(plan, False)].append(plan)
    for group in groups.values():
        yield from (Decision(p, q, None) for p, q in itertools.combinations(group, 2))


def own_pairs(count: int, seed: int) -> Iterator[Decision]:
    """Draw pairs of arithmetics that differ in one or two numbers from each other, and in up to two from a GPU's."""
    rng, found = np.random.default_rng(seed), 0
    while found < count:
        opcode, target = OPCODES[rng.integers(len(OPCODES))]
        p = fastmma.arithmetic(opcode, target)
        for _ in range(rng.integers(0, 3)):
            p = _varied(p, opcode, rng)
        q = p
        for _ in range(rng.integers(1, 3)):
            q = _varied(q, opcode, rng)
        k = (None, 2, 3, 8, 16, 40, 200)[rng.integers(7)]
        try:
            yield Decision(*(fastmma.GemmPlan(target, opcode, arithmetic=each) for each in (p, q)), k, bool(rng.random() < 0.3))
        except fastmma.OperandError:  # numbers that do not go together
            continue
        found += 1


def _varied(arithmetic: fastmma.Arithmetic, opcode: str, rng: np.random.Generator) -> fastmma.Arithmetic:
    """Change one number."""
    ins = fastmma.instruction(opcode)
    name = str(rng.choice(list(_WEIGHTS), p=np.array(list(_WEIGHTS.values())) / sum(_WEIGHTS.values())))
    near = arithmetic.align_bits + int(rng.choice([-1, 1]))
    values: dict[str, Any] = {
        "align_bits": max(int(rng.choice([near, near, rng.integers(0, 40), rng.integers(0, 200)])), 0),
        "keep_bits": int(rng.integers(2, ins.formats.sums.mantissa_bits + 1)),
        "rounding": str(rng.choice(_ROUNDINGS)),
        "align_rounding": str(rng.choice([*_ROUNDINGS, "exact"])),
        "emax_floor": int(rng.choice([-1000, -133, -132, -40, -20, -10, rng.integers(-200, 20)])),
        "terms": int(rng.choice([each for each in (1, 2, 4, 8, 16, 32) if each <= ins.k])),
        "group": int(rng.choice([1, 2, 4])),
        "widened": str(rng.choice(["", "f16"])),
        "interleave": int(rng.choice([0, 1, 2, 4])),
        "split": int(rng.choice([0, 1, 2, 4])),
        "c_joins": "sum",
        "flush_inputs": True,
        "flush_results": True,
    }
    joins = {"join_bits": int(rng.integers(20, 40))} if name == "c_joins" else {}
    return replace(arithmetic, **{name: values[name]}, **joins)


def contradicts(decision: Decision, verdict: fastmma.Verdict, elements: int) -> str:
    """Compute operands by both plans; return what is wrong with a verdict, or nothing."""
    p, q, k, c = decision
    equal = verdict.as_written
    if equal is False:
        results = [fastmma.gemm(*verdict.witness, plan=plan, **verdict.others, backend="reference")[verdict.at] for plan in (p, q)]
        return "" if results[0].tobytes() != results[1].tobytes() else "the witness does not differ"
    if equal is None:
        return ""
    depth = k or 3 * max(plan.operation.instruction.k for plan in (p, q)) + 8
    problem, cell = problem_of(p, c), Cell(depth, ((0, depth),), c)
    stored = depth * p.operation.instruction.stored_k // p.operation.instruction.k
    forms = tuple(form_of(plan, cell) for plan in (p, q))
    found, _ = search(Pair(p, q, problem, forms, stored, whole=depth if problem.sparse else 0), elements, seed=7)
    return "" if found is None else "plans that are said to be equal differ"


def said(plan: fastmma.GemmPlan) -> str:
    """Name an instruction and its arithmetic."""
    return f"{plan.instruction} on {plan.target}, {plan.operation.arithmetic.family}"


def main(count: int = 3000, seed: int = 0) -> None:
    """Decide about all pairs, and print what came of it."""
    for name, pairs in (("rows of the tables", list(row_pairs())), ("own arithmetics", own_pairs(count, seed))):
        counts: Counter[str] = Counter()
        for decision in pairs:
            verdict = fastmma.same_bits(decision.p, decision.q, k=decision.k, c=decision.c)
            slow = any(plan.operation.arithmetic.c_joins == "sum" for plan in decision[:2])
            wrong = contradicts(decision, verdict, 1 << 10 if slow else 1 << 16)
            counts[str(verdict.as_written)] += 1
            if wrong or verdict.as_written is None:
                print(f"{wrong or 'not decided'}, {decision[2:]}: {said(decision.p)}; {said(decision.q)}", flush=True)
            counts["wrong"] += bool(wrong)
        print(name, dict(counts), flush=True)


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
