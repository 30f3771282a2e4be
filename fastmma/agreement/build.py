"""From a plan to the form of an element, for the k that its parts have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmma.agreement.form import PADDING, Chain, Ended, Integers, Node, Places, Promoted, Rounded, Start, StepRule, Steps, add, moved
from fastmma.agreement.ranks import RanksPlan
from fastmma.agreement.spans import span_of
from fastmma.backends.call import Operation
from fastmma.backends.plan import Plan
from fastmma.execution.plan import MmaPlan
from fastmma.host.errors import OperandError
from fastmma.isa.formats import FORMATS
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.methods import METHODS
from fastmma.products.by_tile import Cuts
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.loop import join_parts
from fastmma.products.order import IN_PLACE, WORKSPACE, Order
from fastmma.products.plan import AccumulationPlan
from fastmma.products.steps import ACTIVATIONS, joining

_ZERO = Start()


class Cell(NamedTuple):
    """Where an element is, as far as its sum depends on it: the parts of k, and whether c is given to start from."""

    depth: int
    cuts: Cuts
    starts_from_c: bool = False


def form_of(plan: Plan, cell: Cell) -> Node:
    """Return the form of an element of a plan's product.

    Raises
    ------
    OperandError
        If plans of this kind have no form.
    """
    for kind, build in _BUILDERS.items():
        if isinstance(plan, kind):
            return build(plan, cell)
    raise OperandError(f"same_bits takes plans of gemm, mma, scaled_matmul and cublas, not {type(plan).__name__}")


def _of_mma(plan: MmaPlan, cell: Cell) -> Node:
    ins = plan.operation.instruction
    value = _run(plan.operation, _stored(ins, 0, ins.k, cell.depth), Start("c"))
    return value if ins.dtype == ins.accumulator else Rounded(ins.dtype, value)


def _of_gemm(plan: GemmPlan, cell: Cell) -> Node:
    first = Start("c") if cell.starts_from_c else _ZERO
    if plan.in_place:
        return _in_place(plan, cell, first)
    value = _joined(plan.operation, plan.order, cell, first, lambda start, stop, c: _part(plan, cell, start, stop, c))
    return _ended(plan.epilogue, plan.out, value)


def _of_scaled(plan: AccumulationPlan, cell: Cell) -> Node:
    value = _joined(plan.operation, plan.order, cell, _ZERO, lambda start, stop, _: _scaled_part(plan, start, stop))
    return _ended(plan.epilogue, plan.out, value)


def _of_lanes(plan: LanesPlan, cell: Cell) -> Node:
    places = plan.lanes.places(cell.depth)
    chains = np.empty(places.shape[:-1], object)
    for index in np.ndindex(chains.shape):
        taken = tuple(int(k) for k in places[index] if k >= 0)
        chains[index] = Chain(_ZERO, "f32", "rn", taken) if taken else _ZERO
    value: Any = np.asarray(plan.lanes.join(chains), object).item()  # values are added as numbers are
    steps = plan.epilogue if not plan.scaled else (f"alpha on {plan.scaled}", *plan.epilogue)
    return _ended(steps, plan.out, value)


def _of_ranks(plan: RanksPlan, cell: Cell) -> Node:
    parts = [plan.part(rank, cell.depth) for rank in range(plan.ranks)]
    size = parts[0].stop
    order = Order(unit=1) if isinstance(plan.each, LanesPlan) else plan.each.order
    one = form_of(plan.each, Cell(size, next(order.blocks(1, 1, size))[2]))

    def joined(total: Node, value: Node) -> Node:
        both = add("f32", total, value)
        return both if plan.out == "f32" else Rounded(plan.out, both)

    values: list[Node] = [moved(one, parts[rank].start) for rank in plan.turns]
    return join_parts(values, plan.joined, joined)


_BUILDERS: dict[type[Plan], Callable[..., Node]] = {
    MmaPlan: _of_mma,
    GemmPlan: _of_gemm,
    AccumulationPlan: _of_scaled,
    LanesPlan: _of_lanes,
    RanksPlan: _of_ranks,
}


def _ended(steps: tuple[str, ...], out: str, value: Node, c: Node | None = None) -> Node:
    """Apply an epilogue; to round f32 sums to f32 is nothing."""
    kept = tuple(step for step in steps if out != "f32" or step != "round")
    return Ended(kept, out, value, c) if kept else value


def _in_place(plan: GemmPlan, cell: Cell, first: Node) -> Node:
    """Let each part of k go through the epilogue, the result before being its c."""
    whole, result = replace(plan, split_k=1), None
    for start, stop in cell.cuts:
        part = _part(whole, cell, start, stop, _ZERO if start else first)
        last = (start, stop) == cell.cuts[-1]
        if result is None:
            steps = plan.epilogue if last else tuple(step for step in plan.epilogue if step not in ACTIVATIONS)
            result = _ended(steps, plan.out, part)
        else:
            result = _ended(joining(plan.epilogue, last=last), plan.out, part, result)
    assert result is not None
    return result


def _joined(operation: Operation, order: Order, cell: Cell, first: Node, part: Callable[[int, int, Node], Node]) -> Node:
    """Join the parts of k as `fastmma.products.loop` does."""
    fmt = operation.instruction.dtype
    if METHODS[operation.arithmetic.method].exact and not operation.instruction.satfinite:
        return Integers(tuple(sorted(place for cut in cell.cuts for place in range(*cut))), first, operation.instruction.bit_op)
    if order.parts == 1 or len(cell.cuts) == 1:
        whole = part(*cell.cuts[0], first)
        return Rounded(order.join_dtype, whole) if order.parts != 1 and order.join == WORKSPACE and isinstance(order.parts, int) else whole

    def parts() -> Iterator[Node]:
        for start, stop in cell.cuts:
            value = part(start, stop, first if start == 0 else _ZERO)
            rounds = order.join_dtype and (order.join != IN_PLACE or start == 0)
            yield Rounded(order.join_dtype, value) if rounds else value

    def joined(total: Node, value: Node) -> Node:
        both = add(fmt, total, value)
        return Rounded(order.join_dtype, both) if order.join_dtype and order.join != WORKSPACE else both

    return join_parts(parts(), order, joined)


def _places(plan: GemmPlan, cell: Cell) -> Sequence[int]:
    """Order k as the parts take them."""
    dealt = plan.order.places(cell.depth)
    return range(cell.depth) if dealt is None else dealt.tolist()


def _part(plan: GemmPlan, cell: Cell, start: int, stop: int, first: Node) -> Node:
    """One part of k: what is left over of tiles first, or chunks that are promoted, or one run."""
    ins, taken = plan.operation.instruction, _places(plan, cell)[start:stop]
    left = len(taken) % plan.first_tile if plan.first_tile else 0
    if left % ins.k and left < len(taken):
        return _run(plan.operation, taken[left:], _run(plan.operation, taken[:left], first))
    if plan.promote_every is None:
        return _run(plan.operation, _stored(ins, start, stop, cell.depth) if ins.sparse else taken, first)
    total = first
    for begin in range(start, max(stop, start + 1), plan.promote_every):
        chunk = _stored(ins, begin, min(begin + plan.promote_every, stop), cell.depth)
        partial = _run(plan.operation, chunk if ins.sparse else taken[begin - start : begin - start + plan.promote_every], _ZERO)
        total = partial if total == _ZERO and ins.dtype != "f32" else add(ins.dtype, total, partial)
    return total


def _scaled_part(plan: AccumulationPlan, start: int, stop: int) -> Node:
    every = plan.promote_every
    if every is None:
        return _run(plan.operation, range(start, stop), _ZERO)
    parts = [
        (begin // every, _run(plan.operation, range(begin, min(begin + every, stop)), _ZERO))
        for begin in range(start, max(stop, start + 1), every)
    ]
    if plan.promotion != "add":
        return Promoted(plan.promotion, tuple(parts))
    total: Node = _ZERO
    for _, partial in parts:
        total = add("f32", total, partial)
    return total


def _stored(ins: Instruction, start: int, stop: int, depth: int) -> Sequence[int]:
    """The stored places between two k."""
    return range(start * ins.stored_k // ins.k, -(-min(stop, depth) * ins.stored_k // ins.k))


_DERIVED = ("sums", "widened", "native_c", "flush_before")


@lru_cache(1024)
def rule_of(ins: Instruction, arithmetic: Arithmetic) -> StepRule:
    """Return the rule of an arithmetic's steps."""
    numbers = {each.name: getattr(arithmetic, each.name) for each in fields(StepRule) if each.name not in _DERIVED}
    wide, native = FORMATS.get(arithmetic.widened), arithmetic.native_c and ins.ctype != ins.accumulator
    # a format in which all elements have the exponents of their own is none
    widened = {fmt.name: wide.name for fmt in ins.formats[:2] if wide is not None and span_of(fmt, wide) != span_of(fmt)}
    return StepRule(
        sums=ins.accumulator, widened=" ".join(f"{fmt} as {name}" for fmt, name in sorted(widened.items())), native_c=native, **numbers
    )


@lru_cache(1024)
def _turns(ins: Instruction, arithmetic: Arithmetic) -> tuple[Places, ...]:
    """Return which places of an instruction make a step, one after the other."""
    stored, chunk = (pattern_of(ins).stored, pattern_of(ins).chunk) if ins.sparse else (1, 1)
    place = range(ins.stored_k)
    k = [each // stored * chunk for each in place]
    size = arithmetic.terms * arithmetic.group
    if arithmetic.split:
        halves = [[each for each in place if k[each] // arithmetic.split % 2 == half] for half in (0, 1)]
        return tuple(step for half in halves for step in _sized(half, size))
    order = list(place)
    if arithmetic.interleave:
        steps = ins.stored_k // size
        order = [each for step in range(steps) for each in place if k[each] // arithmetic.interleave % steps == step]
    return tuple(_sized(order, size))


def _sized(places: Sequence[int], size: int) -> Iterator[Places]:
    return (tuple(places[first : first + size]) for first in range(0, len(places), size))


def _run(operation: Operation, taken: Sequence[int], before: Node) -> Node:
    """One run of an instruction over places of k, from a value on."""
    ins, arithmetic = operation.instruction, operation.arithmetic
    method = METHODS[arithmetic.method]
    if method.exact:
        steps = tuple(_sized(taken, ins.stored_k)) if ins.satfinite else ()
        return Integers(tuple(sorted(taken)), before, ins.bit_op, steps)
    if method.chain is not None:
        return _chained(operation, taken, before)
    rule, total = rule_of(ins, arithmetic), before
    for first in range(0, len(taken), ins.stored_k):
        filled = _filled(rule, _turns(ins, arithmetic), taken[first : first + ins.stored_k])
        total = add(ins.accumulator, total, _steps(filled, _ZERO)) if arithmetic.split else _steps(filled, total)
    return total


def _filled(rule: StepRule, turns: Iterable[Places], taken: Sequence[int]) -> Iterator[tuple[StepRule, Places]]:
    """Yield the steps of an instruction; those that zeros fill are one, as the first of them is all that may take bits."""
    first, empty = replace(rule, flush_before=rule.flush_inputs), False
    for number, turn in enumerate(turns):
        step = tuple(taken[each] for each in turn if each < len(taken))
        if step or not empty:
            yield (rule if number else first), step
        empty = not step


def _steps(steps: Iterable[tuple[StepRule, Places]], before: Node) -> Node:
    found = tuple(steps)
    return Steps(before.before, before.steps + found) if isinstance(before, Steps) else Steps(before, found)


def _chained(operation: Operation, taken: Sequence[int], before: Node) -> Node:
    """Chains of fma: one from a value, or several from zero that are added to it."""
    ins, chain = operation.instruction, METHODS[operation.arithmetic.method].chain
    assert chain is not None
    padded = len(taken) % ins.k != 0
    if not chain.products:
        places = (*taken, PADDING) if padded else tuple(taken)
        return _linked(before, chain.format, ins.rounding or "rn", places)
    filled = [*taken, *[PADDING] * (-len(taken) % ins.k)]
    total, start = before, Start("-0" if chain.start else "0")
    for places in _sized(filled, chain.products):
        kept = tuple(place for place in places if place != PADDING)
        own = (*kept, PADDING) if len(kept) < len(places) else kept
        total = add(chain.format, total, _linked(start, chain.format, "rn", own))
    return total


def _linked(before: Node, fmt: str, mode: str, places: Places) -> Node:
    if isinstance(before, Chain) and (before.fmt, before.mode) == (fmt, mode):
        return Chain(before.before, fmt, mode, before.places + places)
    return Chain(before, fmt, mode, places) if places else before
