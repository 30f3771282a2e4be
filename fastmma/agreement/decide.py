"""The decision about elements whose k two plans cut in one way each: a proof, operands on which they differ, or neither."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.agreement.build import Cell, form_of
from fastmma.agreement.form import Node
from fastmma.agreement.problem import Problem, inputs_of, reading
from fastmma.agreement.reasons import alike, unlike
from fastmma.agreement.run import Operands, compute, scaled_array
from fastmma.agreement.search import Pair, differ, search, small
from fastmma.agreement.simplify import simplify
from fastmma.agreement.verdict import Verdict, Witness
from fastmma.backends.plan import Plan
from fastmma.isa.codes import all_codes, from_codes
from fastmma.isa.formats import FORMATS
from fastmma.isa.sparsity import PATTERNS
from fastmma.numerics.methods import METHODS
from fastmma.products.plan import AccumulationPlan

_FIRST = 1 << 11  # elements that are computed before all operands are, where they are few
_MOST_CODES, _FEW_CODES = 12, 8  # bits of the codes of a row, of which all are computed: by kernels, and in exact integers
_CHECKED = 1 << 14  # k that are computed in exact integers, too


def normal_form(plan: Plan, cell: Cell, problem: Problem) -> Node:
    """Return the normal form of an element of a plan's product."""
    return simplify(form_of(plan, cell), inputs_of(plan, problem))


def decide(plans: tuple[Plan, Plan], cells: tuple[Cell, Cell], problem: Problem, budget: int) -> Verdict:
    """Compare two plans for the elements whose k each cuts in one way: by a proof, by a search, or by all inputs where they are few."""
    p, q = plans
    depth = cells[0].depth
    forms = [normal_form(plan, cell, problem) for plan, cell in zip(plans, cells, strict=True)]
    if forms[0] == forms[1] and reading(p) == reading(q):
        return Verdict(True, alike(p, q, problem, forms[0], depth), problem.every_input, k=depth)
    stored = depth if not problem.sparse else len(_stored_places(problem, depth))
    slow = any(is_slow(plan) for plan in plans)
    pair = Pair(p, q, problem, (forms[0], forms[1]), stored, slow, depth if problem.sparse else 0)
    operands, done = search(pair, _FIRST)
    if operands is None and (every := all_rows(problem, depth, _FEW_CODES if slow else _MOST_CODES)) is not None:
        differing = compute(p, problem, every) != compute(q, problem, every)
        if not differing.any():
            return Verdict(True, f"all {differing.size:,} inputs of K = {depth} were computed by both plans", problem.every_input, k=depth)
        operands = small(pair, every.element(*(int(each) for each in np.argwhere(differing)[0])))
    if operands is None:
        operands, done = search(pair, budget // 32 if slow else budget, 1)
    if operands is not None:
        return _differing(pair, operands, depth)
    return Verdict(None, f"{unlike(p, q, pair.forms, depth)}; no difference among {done:,} elements, and no proof", k=depth)


def _stored_places(problem: Problem, depth: int) -> range:
    row = PATTERNS[problem.sparse.split()[0]]
    return range(depth // row.chunk * row.stored)


def is_slow(plan: Plan) -> bool:
    """Tell whether a plan's arithmetic is computed in exact integers alone."""
    own = plan.operation.arithmetic
    down = METHODS[own.method].in_steps and "rm" in (own.rounding, own.align_rounding)
    return own.c_joins != "terms" or own.flush_inputs or own.flush_results or down


def all_rows(problem: Problem, depth: int, most: int = _MOST_CODES) -> Operands | None:
    """Return all operands of a depth, where they are few."""
    formats = FORMATS[problem.a], FORMATS[problem.b]
    plain = not (problem.start or problem.takes or problem.sparse or problem.scales)
    if not plain or max(fmt.bits for fmt in formats) * depth > most:
        return None
    lines = []
    for fmt in formats:
        grid = np.meshgrid(*[all_codes(fmt.name)] * depth, indexing="ij")
        lines.append(from_codes(np.stack([each.ravel() for each in grid], 1).astype(fmt.code_dtype), fmt))
    return Operands(lines[0], np.ascontiguousarray(lines[1].T), {})


def _differing(pair: Pair, operands: Operands, depth: int) -> Verdict:
    """Return the verdict that plans differ on operands, on which they were computed twice: compiled, and in exact integers."""
    p, q, problem = pair.p, pair.q, pair.problem
    if depth <= _CHECKED and not differ(pair, operands, "reference"):
        return Verdict(None, "two backends of fastmma disagree about these operands", k=depth)
    found = [from_codes(compute(plan, problem, operands), problem.result).reshape(-1)[0] for plan in (p, q)]
    a, b, others = operands
    left: Any = a
    right: Any = b
    if isinstance(p, AccumulationPlan):
        scales = {name: others[name] for name in ("scale_a", "scale_b")}
        left, right = (
            scaled_array(x, scales[f"scale_{name}"], scheme, axis)
            for x, name, scheme, axis in zip((a, b), "ab", p.schemes, (1, 0), strict=True)
        )
        others = {name: value for name, value in others.items() if name not in scales}
    if problem.shape is not None:
        left, right, others = _tile(problem.shape, operands)
    return Verdict(False, unlike(p, q, pair.forms, depth), "", Witness(left, right), (0, 0), (found[0], found[1]), others, depth)


def _tile(shape: tuple[int, int, int], operands: Operands) -> tuple[Any, Any, dict[str, Any]]:
    """Return the matrices of one instruction of which the first element has these operands."""
    m, n, _ = shape
    spread = {"c": (m, n), "metadata": (m, None), "scale_a": (m, None), "scale_b": (None, n)}
    others = {}
    for name, value in operands.others.items():
        whole = [size or own for size, own in zip(spread[name], value.shape, strict=True)]
        others[name] = np.ascontiguousarray(np.broadcast_to(value, whole))
    a = np.ascontiguousarray(np.broadcast_to(operands.a, (m, operands.a.shape[1])))
    return a, np.ascontiguousarray(np.broadcast_to(operands.b, (len(operands.b), n))), others
