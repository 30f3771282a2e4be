"""The problem of a plan: what is multiplied and added, and what results. Plans of one problem can be compared."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fastmma.agreement.ranks import RanksPlan
from fastmma.agreement.simplify import Inputs
from fastmma.agreement.spans import Span, span_of
from fastmma.backends.plan import Plan
from fastmma.execution.plan import MmaPlan
from fastmma.host.errors import OperandError
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.sparsity import pattern_of
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.plan import AccumulationPlan
from fastmma.products.steps import operands_of
from fastmma.scaling.schemes import scheme_of


@dataclass(frozen=True)
class Problem:
    """What a plan takes, and what it gives.

    Attributes
    ----------
    a, b : str
        The formats of the elements; float32 is f32, whatever is read of it.
    result : str
    takes : frozenset of str
        What the epilogue takes.
    sparse : str
        The pattern of sparse A, or empty.
    scales : str
        What the instruction takes as scales, or the schemes of both operands.
    start : str
        The format of c, where sums start from it; else empty.
    shape : (int, int, int) or None
        Where the plan is one instruction's.
    """

    a: str
    b: str
    result: str
    takes: frozenset[str] = frozenset()
    sparse: str = ""
    scales: str = ""
    start: str = ""
    shape: tuple[int, int, int] | None = None

    @property
    def every_input(self) -> str:
        """Name all inputs: those that are no numbers too, where the formats of operands have any."""
        plain = all(FORMATS[name].specials == "none" for name in (self.a, self.b, self.start) if name) and not (self.scales or self.takes)
        return "all inputs" if plain else "all inputs, NaN and infinities too"


def of_each(plan: Plan) -> Plan:
    """Return what every rank does, where several share k."""
    return plan.each if isinstance(plan, RanksPlan) else plan


def problem_of(plan: Plan, starts_from_c: bool) -> Problem:
    """Return the problem of a plan."""
    plan = of_each(plan)
    ins = plan.operation.instruction
    if isinstance(plan, LanesPlan):
        takes = _taken(plan.epilogue) | ({"alpha"} if plan.scaled else set())
        return Problem(plan.operands, plan.operands, plan.out or "f32", frozenset(takes))
    sparse = f"{pattern_of(ins).name} {'ordered' if ins.ordered_metadata else ''}" if ins.sparse else ""
    scales = f"{ins.stype} for {ins.k // ins.scale_vec_size} k" if ins.scale_vec_size else ""
    a, b = (_array(fmt) for fmt in ins.formats[:2])
    if isinstance(plan, MmaPlan):
        return Problem(a, b, ins.dtype, sparse=sparse, scales=scales, start=ins.ctype, shape=(ins.m, ins.n, ins.k))
    if isinstance(plan, AccumulationPlan):
        first, second = plan.schemes
        taken = frozenset(name for name in _taken(plan.epilogue) if not name.startswith("scale"))
        return Problem(scheme_of(first).element, scheme_of(second).element, plan.out, taken, scales=f"{first} and {second}")
    if not isinstance(plan, GemmPlan):
        raise OperandError(f"same_bits takes plans of gemm, mma and scaled_matmul, not {type(plan).__name__}")
    start = ins.ctype if starts_from_c and not plan.adds_c else ""
    return Problem(a, b, plan.out or ins.dtype, frozenset(_taken(plan.epilogue)), sparse, scales, start)


def check_same(first: Problem, second: Problem) -> None:
    """Raise OperandError unless two plans are about one problem."""
    for each in fields(Problem):
        one, other = (_said(getattr(problem, each.name)) for problem in (first, second))
        if one != other:
            raise OperandError(f"same_bits: p and q must multiply the same operands, but {each.name} is {one} for p and {other} for q")


def _said(value: Any) -> str:
    return (", ".join(sorted(value)) if isinstance(value, frozenset) else str(value)) or "none"


def _taken(epilogue: tuple[str, ...]) -> set[str]:
    return {name for step in epilogue for name in operands_of(step)}


def _array(fmt: Format) -> str:
    """Name the format of the arrays of elements that are multiplied in a format."""
    return "f32" if fmt.name == "tf32" else fmt.name


def reading(plan: Plan) -> str:
    """Return what of float32 elements is read, where not all is."""
    plan = of_each(plan)
    if plan.operation.instruction.atype != "tf32":
        return ""
    return "rounded to tf32" if getattr(plan, "cast", False) else "truncated to tf32"


def inputs_of(plan: Plan, problem: Problem, *, unbounded: bool = False) -> Inputs:
    """Return the spans of what a plan multiplies and adds."""
    plan = of_each(plan)
    ins = plan.operation.instruction
    if ins.formats.a.kind != "float":
        one, other = (max(abs(int(fmt.min)), int(fmt.max)) for fmt in ins.formats[:2])
        return Inputs(None, unbounded=unbounded, most=one * other)
    wide = FORMATS.get(plan.operation.arithmetic.widened)
    own = FORMATS[problem.a], FORMATS[problem.b]
    read = [ins_fmt if ins_fmt.name == "tf32" else fmt for fmt, ins_fmt in zip(own, ins.formats[:2], strict=True)]
    # elements may be multiplied in a wider format, which the arithmetic may widen again
    held = [
        wide or (None if isinstance(plan, LanesPlan) or ins_fmt == fmt else ins_fmt)
        for fmt, ins_fmt in zip(read, ins.formats, strict=False)
    ]
    term = span_of(read[0], held[0]).times(span_of(read[1], held[1]))
    if ins.scale_vec_size:
        term = term.times(span_of(FORMATS[ins.stype])).times(span_of(FORMATS[ins.stype]))
    return Inputs(term, *_of_c(problem.start, ins.formats.sums), unbounded)


def _of_c(start: str, sums: Format) -> tuple[Span | None, Span | None]:
    """Return the spans of c: as the sums hold it, and by its own exponents."""
    if not start:
        return None, None
    return span_of(FORMATS[start], sums), span_of(FORMATS[start])
