"""Whether two plans have the same bits for every input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import lcm

from fastmma.agreement.build import Cell, form_of
from fastmma.agreement.decide import decide, is_slow
from fastmma.agreement.form import Node
from fastmma.agreement.placed import placed
from fastmma.agreement.problem import Problem, check_same, inputs_of, problem_of, reading
from fastmma.agreement.ranks import RanksPlan
from fastmma.agreement.reasons import alike, assumed, unlike
from fastmma.agreement.run import of_cuts
from fastmma.agreement.simplify import simplify
from fastmma.agreement.verdict import Verdict
from fastmma.backends.plan import Plan
from fastmma.execution.plan import MmaPlan
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import flag, integer
from fastmma.isa.sparsity import PATTERNS
from fastmma.numerics.methods import METHODS
from fastmma.products.by_tile import ByTile
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_plan import LibraryPlan
from fastmma.products.order import Order

BUDGET = 1 << 18
_DEEPEST = 1 << 20  # K of sums of narrow formats, in search of one that steps do not keep


@public_call
def same_bits(
    p: Plan,
    q: Plan,
    *,
    k: int | None = None,
    m: int | None = None,
    n: int | None = None,
    c: bool = False,
    budget: int = BUDGET,
) -> Verdict:
    """Decide whether two plans of a problem have the same bits, whatever the operands.

    Each plan is brought to a normal form: the operations of an element's sum, without those that cannot affect a bit. If the normal forms
    are the same, the plans are equal by proof. If not, operands are searched on which the plans differ; these are made small, and both
    plans compute them.

    Parameters
    ----------
    p, q : Plan
        Of `fastmma.gemm_plan`, `fastmma.cublas.plan`, `fastmma.scaled_plan` or `fastmma.mma_plan`; with an arithmetic of your own, too.
    k : int, optional
        K. By default plans are equal if they are for every K, and differ if they do for one, which the verdict names.
    m, n : int, optional
        Rows and columns of the result, on which stream-K depends.
    c : bool
        Whether sums start from a c that is given, where no step of the epilogue takes it; those of one instruction always do.
    budget : int
        The largest number of elements to compute in search of a difference.

    Returns
    -------
    Verdict
        ``equal`` is True, False or None; ``reason`` says why; ``witness`` holds a and b where the plans differ, at the element ``at``.

    Raises
    ------
    OperandError, OperandTypeError
        If the plans are not of one problem, or k, m or n are needed and not given.

    Examples
    --------
    >>> from fastmma import GemmPlan
    >>> wgmma = GemmPlan("sm_90a", "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
    >>> mma = GemmPlan("sm_90a", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> same_bits(wgmma, mma).equal
    True
    >>> ampere = GemmPlan("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> verdict = same_bits(wgmma, ampere)
    >>> verdict.equal, verdict.reason
    (False, 'steps of 16 against steps of 8; F = 25 against F = 24')
    """
    for name, plan in (("p", p), ("q", q)):
        if not isinstance(plan, Plan):
            raise OperandTypeError(f"same_bits: {name} must be a plan, not {type(plan).__name__}; fastmma.gemm_plan makes one")
    starts, most = flag(c, "c"), integer(budget, "budget", 0)
    problem = problem_of(p, starts)
    check_same(problem, problem_of(q, starts))
    sizes = [None if size is None else integer(size, name, 1) for name, size in (("k", k), ("m", m), ("n", n))]
    depth = _depth(p, q, problem, sizes[0])
    shape = sizes[1], sizes[2]
    found = _for_every_k(p, q, problem, starts, most) if depth is None else _for_k(p, q, problem, shape, depth, starts, most)
    return _known(found, p, q)


def _known(found: Verdict, p: Plan, q: Plan) -> Verdict:
    """Take a verdict back where what a GPU or a library does is assumed; a GPU's arithmetic is as it is where both plans are one."""
    other = _bare(p) != _bare(q)
    taken = (*assumed(p, "p", other), *assumed(q, "q", other))
    fields = dict(found.__dict__, assumed=taken, as_written=found.equal)
    if taken:
        fields |= {"equal": None, "reason": f"{'; '.join(taken)}. As the plans are written, {_written(found)}"}
    return Verdict(**fields)


def _bare(plan: Plan) -> Plan:
    """Return a plan without its evidence."""
    if isinstance(plan, RanksPlan):
        return replace(plan, each=replace(plan.each, evidence=None))
    return replace(plan, evidence=None) if isinstance(plan, LibraryPlan) else plan


def _written(found: Verdict) -> str:
    same = f"they have the same bits{found.scope and f' for {found.scope}'}"
    said = {True: same, False: "they differ", None: "it is not decided"}[found.equal]
    return f"{said}: {found.reason}"


def _depth(p: Plan, q: Plan, problem: Problem, k: int | None) -> int | None:
    """Return the K that plans have, or the caller gave."""
    wanted = set() if k is None else {k}
    for plan in (p, q):
        if isinstance(plan, MmaPlan):
            wanted.add(plan.operation.instruction.k)
        parts = getattr(plan, "split_k", 1)
        if isinstance(parts, tuple):
            wanted.add(parts[-1][1])
    if len(wanted) > 1:
        raise OperandError(f"same_bits: the plans (and k) must have one K, but K = {' and '.join(str(each) for each in sorted(wanted))}")
    found = next(iter(wanted), None)
    chunk = PATTERNS[problem.sparse.split()[0]].chunk if problem.sparse else 1
    if found is not None and found % chunk:
        raise OperandError(f"same_bits: K must be a multiple of {chunk} where A is sparse, not {found}")
    return found


def _for_every_k(p: Plan, q: Plan, problem: Problem, starts: bool, budget: int) -> Verdict:
    """Compare plans over whole periods of both, where they cut k alike; else look for a K at which they differ."""
    if any(isinstance(plan, RanksPlan) for plan in (p, q)):
        raise OperandError("same_bits: ranks share one K: give k")
    if any(isinstance(getattr(plan, "split_k", 1), ByTile) for plan in (p, q)):
        raise OperandError("same_bits: the parts of k of an element depend on its tile: give m, n and k")
    unit = _period(p, q)
    if (_cuts_alike(p, q) or (_adds_in_any_order(p) and _adds_in_any_order(q))) and reading(p) == reading(q):
        # whole periods, and such that one, the other or both instructions are filled with zeros at the end
        depths = [
            2 * unit + more for more in (0, 1, p.operation.instruction.k, q.operation.instruction.k) if not problem.sparse or not more
        ]
        forms = [_open_forms(p, q, problem, depth, starts) for depth in depths]
        if all(one == other for one, other in forms):
            return Verdict(True, alike(p, q, problem, forms[0][0], None), problem.every_input)
    chunk = PATTERNS[problem.sparse.split()[0]].chunk if problem.sparse else 1
    proved, others = list[int](), list[int]()
    for depth in _depths(p, q, unit, problem):
        if depth % chunk == 0:
            found = _for_k(p, q, problem, (1, 1), depth, starts, budget)
            if found.equal is False:
                return found
            (proved if found.equal else others).append(depth)
    said = [(proved, "equal by proof for K = "), (others, "no difference was found for K = ")]
    tried = [text + ", ".join(map(str, depths)) for depths, text in said if depths]
    return Verdict(None, f"{unlike(p, q)}; {'; '.join(tried)}; for one K, give k")


def _open_forms(p: Plan, q: Plan, problem: Problem, depth: int, starts: bool) -> tuple[Node, Node]:
    """Return the normal forms of one part of k, of sums that may be as large as their format allows."""
    cell = Cell(depth, ((0, depth),), starts)
    one, other = (simplify(form_of(_whole(plan), cell), inputs_of(plan, problem, unbounded=True)) for plan in (p, q))
    return one, other


def _whole(plan: Plan) -> Plan:
    """Return the plan with one part of k."""
    return replace(plan, split_k=1, join="ascending", join_dtype="") if getattr(plan, "split_k", 1) != 1 else plan  # type: ignore[call-arg]


def _cuts_alike(p: Plan, q: Plan) -> bool:
    """Tell whether both plans cut k, and join the parts, alike for every K."""
    if isinstance(p, LanesPlan) or isinstance(q, LanesPlan):
        return isinstance(p, LanesPlan) and isinstance(q, LanesPlan) and p.lanes == q.lanes
    one, other = (getattr(plan, "order", Order()) for plan in (p, q))
    alone = one.parts == other.parts == 1 and one.first_tile == other.first_tile
    return alone or (one == other and getattr(p, "in_place", False) == getattr(q, "in_place", False))


def _adds_in_any_order(plan: Plan) -> bool:
    """Tell whether the order of k, and how it is cut, cannot show: sums of integers modulo 2**32."""
    exact = METHODS[plan.operation.arithmetic.method].exact and not plan.operation.instruction.satfinite
    return exact and isinstance(plan, GemmPlan) and not plan.in_place and not plan.leaves_out


def _period(p: Plan, q: Plan) -> int:
    """Return after how many k the steps of both plans begin anew together."""
    found = [plan.operation.instruction.k for plan in (p, q)]
    found += [each for plan in (p, q) for each in (getattr(plan, "promote_every", None), getattr(plan, "first_tile", 0)) if each]
    found += [plan.lanes.lanes * max(plan.lanes.vector, 1) for plan in (p, q) if isinstance(plan, LanesPlan)]
    return lcm(*found)


def _depths(p: Plan, q: Plan, unit: int, problem: Problem) -> Iterator[int]:
    """Yield the K that are tried where none is given, each once; at last one of which sums have more bits than steps keep."""
    parts = [each for each in (getattr(plan, "split_k", 1) for plan in (p, q)) if isinstance(each, int)]
    units = [getattr(plan, "unit", 0) or getattr(plan, "split_unit", 0) or unit for plan in (p, q)]
    least = min(plan.operation.instruction.k for plan in (p, q))
    whole = max(parts, default=1) * max(units)
    chunk = PATTERNS[problem.sparse.split()[0]].chunk if problem.sparse else 1
    tried = [least, unit, 2 * unit, whole, whole + chunk, 2 * whole + 8, 4096]
    yield from dict.fromkeys(sorted(each for each in tried if each <= 1 << 16))
    term = inputs_of(p, problem).term
    most = None if term is None else term.most
    bits = min(plan.operation.arithmetic.align_bits for plan in (p, q))
    needed = 0 if most is None else -(-(4 << min(bits, 40)) // (most * unit)) * unit
    if 4096 < needed <= _DEEPEST and not any(is_slow(plan) for plan in (p, q)):
        yield needed


def _for_k(p: Plan, q: Plan, problem: Problem, extents: tuple[int | None, int | None], depth: int, starts: bool, budget: int) -> Verdict:
    """Compare plans for every way in which their elements' k are cut."""
    whole: Verdict | None = None
    for at, cells in _cells(p, q, extents, depth, starts):
        plans = [of_cuts(plan, cell.cuts) for plan, cell in zip((p, q), cells, strict=True)]
        found = decide((plans[0], plans[1]), cells, problem, budget)
        if found.equal is False:
            return _placed(found, at, extents, plans != [p, q])
        if whole is None or found.equal is None:
            whole = found
    assert whole is not None
    return whole


def _placed(found: Verdict, at: tuple[int, int], extents: tuple[int | None, int | None], streamed: bool) -> Verdict:
    """Put a witness of one element at its place in a product of these extents, where the place decides."""
    if not streamed or found.witness is None:
        return found
    witness, others = placed(found.witness, found.others, at, (extents[0] or 1, extents[1] or 1))
    return Verdict(**dict(found.__dict__, witness=witness, others=others, at=at))


def _cells(
    p: Plan, q: Plan, extents: tuple[int | None, int | None], depth: int, starts: bool
) -> Iterator[tuple[tuple[int, int], tuple[Cell, Cell]]]:
    """Yield an element of each kind: those whose k both plans cut in one way."""
    blocks = []
    for plan in (p, q):
        order: Order = getattr(plan, "order", Order(unit=1))
        if isinstance(order.parts, ByTile) and None in extents:
            raise OperandError("same_bits: the parts of k of an element depend on its tile: give m, n and k")
        blocks.append(list(order.blocks(extents[0] or 1, extents[1] or 1, depth)))
    seen = set()
    for rows, columns, cuts in blocks[0]:
        for others, across, second in blocks[1]:
            at = max(rows.start, others.start), max(columns.start, across.start)
            meet = at[0] < min(rows.stop, others.stop) and at[1] < min(columns.stop, across.stop)
            if meet and (cuts, second) not in seen:
                seen.add((cuts, second))
                yield at, (Cell(depth, cuts, starts), Cell(depth, second, starts))
