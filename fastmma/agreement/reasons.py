"""Say in a sentence in what two plans differ, or are alike, and what of them is assumed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastmma.agreement.form import Ended, Exact, Node, StepRule, rules
from fastmma.agreement.problem import Problem, of_each, reading
from fastmma.agreement.ranks import RanksPlan
from fastmma.backends.plan import Plan
from fastmma.numerics.arithmetic import NO_FLOOR, Arithmetic
from fastmma.numerics.methods import METHODS
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_plan import LibraryPlan
from fastmma.products.order import Order, left_out_text, order_text, split
from fastmma.products.plan import AccumulationPlan
from fastmma.products.steps import texts


def _in_steps(plan: Plan) -> Arithmetic | None:
    arithmetic = plan.operation.arithmetic
    return arithmetic if METHODS[arithmetic.method].in_steps else None


def _says(name: str, text: str, *, usual: Any = None, without: str = "") -> Callable[[Plan], str]:
    """Return what says a number of an arithmetic that is taken in steps, or that it is as usual."""

    def say(plan: Plan) -> str:
        arithmetic = _in_steps(plan)
        if arithmetic is None:
            return ""
        value = getattr(arithmetic, name)
        return without if value == usual else text.format(value)

    return say


def _step(plan: Plan) -> str:
    arithmetic = _in_steps(plan)
    return "" if arithmetic is None else f"steps of {arithmetic.terms * arithmetic.group}"


def _alignment(plan: Plan) -> str:
    arithmetic = plan.operation.arithmetic
    return "exact alignment" if arithmetic.align_rounding == "exact" else f"F = {arithmetic.align_bits}"


def order_of(plan: Plan, k: int | None = None) -> str:
    """Say how a plan cuts k, and whether it leaves out some."""
    if isinstance(plan, RanksPlan):
        return f"{plan.order_text}; of each, {order_of(plan.each, k and k // plan.ranks)}"
    if isinstance(plan, LanesPlan):
        return str(plan.lanes)
    order: Order = getattr(plan, "order", Order())
    if order.parts == 1:
        return "k in one part"
    whole = False
    if k is not None and isinstance(order.parts, int) and not order.dealt:
        whole = split(k, order.parts, order.unit, leaves_out=order.leaves_out)[-1][1] == k
    left = "" if whole else left_out_text(order)
    cut = "cut" if isinstance(order.parts, tuple) else "in"
    return f"k {cut} {order_text(order, plan.operation.instruction)}{f', without {left}' if left else ''}"


def _promotion(plan: Plan) -> str:
    every = getattr(plan, "promote_every", None)
    if every is None:
        return "no promotion"
    return f"promotion every {every} k by {plan.promotion}" if isinstance(plan, AccumulationPlan) else f"promotion every {every} k"


def _first_tile(plan: Plan) -> str:
    tile = getattr(plan, "first_tile", 0)
    return f"the remainder after tiles of {tile} k first" if tile else "the remainder last"


def _ends(plan: Plan) -> str:
    epilogue = getattr(plan, "epilogue", ())
    scaled = getattr(plan, "scaled", "")
    where = f"scales in the {plan.scales}" if isinstance(plan, AccumulationPlan) else f"alpha times {scaled}" if scaled else ""
    taken = [*([where] if where else []), *texts(epilogue, getattr(plan, "out", ""))]
    return f"epilogue: {', '.join(taken)}" if taken else "no epilogue"


def _saturation(plan: Plan) -> str:
    ins = plan.operation.instruction
    if not METHODS[plan.operation.arithmetic.method].exact or ins.bit_op:
        return ""
    return "sums that saturate" if ins.satfinite else "sums modulo 2^32"


# what plans may differ in, the most telling first, with the number of a step's rule that shows it
_FACTS: tuple[tuple[Callable[[Plan], str], str], ...] = (
    (lambda plan: reading(plan) or "all bits of f32", ""),
    (lambda plan: plan.operation.arithmetic.method, ""),
    (lambda plan: plan.operation.instruction.bit_op, ""),
    (_saturation, ""),
    (order_of, ""),
    (_promotion, ""),
    (_step, ""),
    (_says("align_rounding", "terms rounded {}", usual="exact", without="exact alignment"), "align_rounding"),
    (_says("align_bits", "F = {}"), "align_bits"),
    (_says("keep_bits", "keep {}"), "keep_bits"),
    (_says("rounding", "sums rounded {}"), "rounding"),
    (_says("emax_floor", "emax >= {}", usual=NO_FLOOR, without="no floor of emax"), "emax_floor"),
    (_says("split", "lowered in halves of {}", usual=0, without="not lowered"), ""),
    (_says("group", "groups of {}", usual=1, without="products alone"), "group"),
    (_says("interleave", "steps in turns of {} k", usual=0, without="steps of neighbours"), ""),
    (_says("widened", "elements widened to {}", usual="", without="elements of their own format"), "widened"),
    (_says("native_c", "c by its own exponent", usual=False, without="c by the exponent of sums"), "native_c"),
    (_says("c_joins", "c joins the {}"), ""),
    (_says("negative_zero", "negative sums are rounded to -0", usual=False, without="to +0"), "negative_zero"),
    (_says("join_bits", "c joins at {} bits", usual=0), ""),
    (_says("flush_inputs", "subnormal inputs are 0", usual=False, without="subnormal inputs are kept"), ""),
    (_says("flush_results", "subnormal results are 0", usual=False, without="subnormal results are kept"), ""),
    (_first_tile, ""),
    (_ends, ""),
)


def differences(p: Plan, q: Plan, shown: Collection[StepRule] | None = None, k: int | None = None) -> list[str]:
    """Return in what two plans differ: ``"F = 25 against F = 24"``; of steps only what shows in some rules, where they are given."""
    found = []
    for fact, number in _FACTS:
        one, other = (order_of(plan, k) if fact is order_of else fact(of_each(plan)) for plan in (p, q))
        hidden = shown is not None and number and len({getattr(rule, number) for rule in shown}) < 2
        if one != other and one and other and not hidden:
            found.append(f"{one} against {other}")
    return found


def alike(p: Plan, q: Plan, problem: Problem, form: Node, k: int | None) -> str:
    """Say why two plans with one normal form have the same bits."""
    others = differences(p, q, None, k)
    if not others:
        steps = "" if _in_steps(p) is None else f" in {_step(p)}, {_alignment(p)}"
        names = p.operation.instruction, q.operation.instruction
        same = "" if names[0] == names[1] else f"; {names[0]} on {p.target} adds like {names[1]} on {q.target}"
        return f"the same arithmetic{steps}, and the same order of k{same}"
    about = "any K" if k is None else f"K = {k}"
    value = form.value if isinstance(form, Ended) else form
    if isinstance(value, Exact):
        return f"no sum of {problem.a} x {problem.b} products loses a bit at {about}, so {' and '.join(others)} cannot matter"
    return f"{' and '.join(others)} cannot matter for {problem.a} x {problem.b} products at {about}"


def unlike(p: Plan, q: Plan, forms: tuple[Node, ...] = (), k: int | None = None) -> str:
    """Say in what two plans that have other bits differ."""
    shown = {rule for form in forms for rule in rules(form)}
    found = differences(p, q, shown or None, k) or differences(p, q, None, k)
    return "; ".join(found) or f"{p.operation.instruction} takes k in another order than {q.operation.instruction}"


def assumed(plan: Plan, name: str, about_arithmetic: bool) -> list[str]:
    """Return what of a plan is assumed, or only reported."""
    found = []
    known = plan.operation.arithmetic.evidence
    if about_arithmetic and known.level in ("reported", "unknown"):
        found.append(f"what {plan.target} computes for {name} is only {known.level}: {known.source}")
    each = of_each(plan)
    evidence = each.evidence if isinstance(each, LibraryPlan) else None
    if evidence is not None and not evidence.is_known:
        found.append(f"the library's order for {name} is not known: {evidence}")
    return found
