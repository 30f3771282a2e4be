"""Pairs of plans whose bits are decided: rows of the numerics tables, and arithmetics of one's own; and what checks a decision.

``python tests/reference/agreement.py [COUNT [SEED [PROCESSES [SECONDS]]]]`` decides about all pairs of rows, or of COUNT pairs of own
arithmetics, and prints how many were equal, differ, or were not decided. What is said to be equal is computed by both plans: all inputs of
short sums of tiny formats, 10 million of others, as far as the seconds allow.
"""

from __future__ import annotations

import itertools
import math
import queue
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pool
from typing import Any, NamedTuple

import numpy as np

try:
    from reference import wide_adder
except ImportError:  # run as a program
    import wide_adder  # type: ignore[import-not-found,no-redef]

import fastmma
from fastmma.agreement.build import Cell, form_of
from fastmma.agreement.decide import all_rows, is_slow
from fastmma.agreement.draw import draw
from fastmma.agreement.problem import Problem, problem_of
from fastmma.agreement.run import Operands, compute
from fastmma.agreement.search import Pair, hints_of
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
MOST = 10_000_000  # inputs of plans that are said to be equal
_FIRST, _FEW = 1 << 12, 1 << 12  # inputs that are computed first, and where exact integers alone compute
_SIDE = 1 << 10  # rows and columns of a product


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
    return (own_pair(seed, number) for number in range(count))


def own_pair(seed: int, number: int) -> Decision:
    """Draw a pair by its number."""
    rng = np.random.default_rng([seed, number])
    while True:
        opcode, target = OPCODES[rng.integers(len(OPCODES))]
        p = fastmma.arithmetic(opcode, target)
        for _ in range(rng.integers(0, 3)):
            p = _varied(p, opcode, rng)
        q = p
        for _ in range(rng.integers(1, 3)):
            q = _varied(q, opcode, rng)
        k = (None, 1, 2, 3, 8, 16, 40, 200)[rng.integers(8)]
        try:
            return Decision(*(fastmma.GemmPlan(target, opcode, arithmetic=each) for each in (p, q)), k, bool(rng.random() < 0.3))
        except fastmma.OperandError:  # numbers that do not go together
            continue


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


class Check(NamedTuple):
    """What contradicts a verdict, if anything does, of how many inputs, and whether they are all that there are."""

    wrong: str
    inputs: int = 1
    exhaustive: bool = False


def check(decision: Decision, verdict: bool | None, inputs: int) -> Check:
    """Compute what is said to be equal by both plans: all inputs where they are few, or so many."""
    p, q, k, c = decision
    if verdict is not True:
        return Check("", 0)
    depth, done = k or 3 * max(plan.operation.instruction.k for plan in (p, q)) + 8, 0
    problem = problem_of(p, c)
    every = all_rows(problem, depth)
    if every is not None:
        differ = _codes(p, problem, every) != _codes(q, problem, every)
        return Check("plans that are said to be equal differ" if differ.any() else "", differ.size, exhaustive=True)
    if not all(_is_fast(plan) for plan in (p, q)):
        inputs = min(inputs, _FEW)
    stored, cell = depth * p.operation.instruction.stored_k // p.operation.instruction.k, Cell(depth, ((0, depth),), c)
    forms = form_of(p, cell), form_of(q, cell)
    hints = hints_of(Pair(p, q, problem, forms, stored, whole=depth if problem.sparse else 0))._replace(size=min(math.isqrt(inputs), _SIDE))
    rng = np.random.default_rng(7)
    for turn in itertools.count():
        operands = draw(problem, hints, rng, turn)
        differ = _codes(p, problem, operands) != _codes(q, problem, operands)
        done += differ.size
        if differ.any() or done >= inputs:
            return Check("plans that are said to be equal differ" if differ.any() else "", done)
    raise AssertionError


def _is_fast(plan: fastmma.GemmPlan) -> bool:
    return not _rounds_down_or(plan) or wide_adder.holds(plan)


def _rounds_down_or(plan: Any) -> bool:
    """Tell whether the library computes a plan in exact integers alone."""
    own = plan.operation.arithmetic
    return own.method == "fused" and (is_slow(plan) or "rm" in (own.rounding, own.align_rounding))


def _codes(plan: Any, problem: Problem, operands: Operands) -> Any:
    if _rounds_down_or(plan) and wide_adder.holds(plan):
        return wide_adder.multiply(plan, operands.a, operands.b, operands.others.get("c"))
    return compute(plan, problem, operands)


def contradicts(decision: Decision, verdict: fastmma.Verdict, inputs: int) -> str:
    """Return what is wrong with a verdict, or nothing."""
    if verdict.as_written is False:
        given = {"backend": "reference", **verdict.others}
        results = [fastmma.gemm(*verdict.witness, plan=plan, **given)[verdict.at] for plan in decision[:2]]
        return "" if results[0].tobytes() != results[1].tobytes() else "the witness does not differ"
    return check(decision, verdict.as_written, inputs).wrong


def said(plan: fastmma.GemmPlan) -> str:
    """Name an instruction and its arithmetic."""
    return f"{plan.instruction} on {plan.target}, {plan.operation.arithmetic.family}"


def _decided(decision: Decision) -> tuple[bool | None, str, float]:
    begin = time.time()
    verdict = fastmma.same_bits(decision.p, decision.q, k=decision.k, c=decision.c)
    wrong = contradicts(decision, verdict, _FIRST)
    if wrong or verdict.as_written is None:
        print(f"{wrong or 'not decided'}, {decision[2:]}: {said(decision.p)}; {said(decision.q)}", flush=True)
    return verdict.as_written, wrong, time.time() - begin


def _first(seed: int, number: int) -> tuple[int, bool | None, str, float]:
    return number, *_decided(own_pair(seed, number))


def _second(seed: int, number: int) -> tuple[int, Check, float]:
    begin = time.time()
    return number, check(own_pair(seed, number), True, MOST), time.time() - begin


def of_rows() -> None:
    """Decide about all pairs of rows, and print what came of it."""
    counts: Counter[str] = Counter()
    for decision in row_pairs():
        equal, wrong, _ = _decided(decision)
        counts[str(equal)] += 1
        counts["wrong"] += bool(wrong)
    print("rows of the tables", dict(counts), flush=True)


def main(count: int, seed: int = 0, processes: int = 1, seconds: float = threading.TIMEOUT_MAX) -> None:
    """Decide about pairs of own arithmetics, check what is said to be equal, and print what came of it."""
    end, counts, left = time.time() + seconds, Counter[str](), count
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with Pool(processes) as pool:
        for number in range(count):
            pool.apply_async(_first, (seed, number), callback=results.put, error_callback=results.put)
        while left and time.time() < end:
            try:
                number, *found = results.get(timeout=max(end - time.time(), 0))
            except queue.Empty:
                break
            left -= 1
            if isinstance(found[0], Check):
                kind = "all inputs" if found[0].exhaustive else f"{MOST} inputs" if found[0].inputs >= MOST else "fewer inputs"
                counts.update({kind: 1, "inputs": found[0].inputs, "wrong": bool(found[0].wrong)})
            else:
                counts.update({str(found[0]): 1, "wrong": bool(found[1])})
                if found[0]:
                    pool.apply_async(_second, (seed, number), callback=results.put, error_callback=results.put)
                    left += 1
            print(number, *found, flush=True)
        print(f"{time.time() - end + seconds:.0f} s, {left} left, own arithmetics", dict(counts), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*(int(each) for each in sys.argv[1:]))
    else:
        of_rows()
