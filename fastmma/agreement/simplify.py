"""The normal form: a form without what cannot show, in which values that are sums without a rounding are one exact sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fastmma.agreement.form import PADDING, Chain, Ended, Exact, Integers, Node, Places, Promoted, Rounded, Start, StepRule, Steps, Sum
from fastmma.agreement.spans import Span, holds, keeps, reach, span_of, sum_span
from fastmma.isa.formats import FORMATS, Format


class Inputs(NamedTuple):
    """What is multiplied and added.

    Attributes
    ----------
    term : Span or None
        Of a product; None of integers.
    c : Span or None
        Of what sums start from; None where they start from zero.
    native_c : Span or None
        Of the same by the exponents of its own format.
    unbounded : bool
        Whether k may be of any length, so that sums are as large as their format allows.
    most : int
        The largest magnitude of a product of integers.
    """

    term: Span | None
    c: Span | None = None
    native_c: Span | None = None
    unbounded: bool = False
    most: int = 0


class Simple(NamedTuple):
    """A value in the normal form.

    Attributes
    ----------
    node : Node
    span : Span or None
        None of a zero.
    exact : tuple of int or None
        The places of k of which it is the exact sum.
    negative_zero : bool
        Whether it may be -0.
    """

    node: Node
    span: Span | None
    exact: Places | None = None
    negative_zero: bool = False


_ZERO = Start()


def simplify(node: Node, inputs: Inputs) -> Node:
    """Return the normal form of a form.

    Two forms with one normal form have the same bits for all inputs, infinities and NaNs included.
    """
    return _simple(node, inputs).node


def _simple(node: Node, inputs: Inputs) -> Simple:
    return _RULES[type(node)](node, inputs)


def _start(node: Start, inputs: Inputs) -> Simple:
    if node.name == "c":
        return Simple(node, inputs.c, None, True)
    return Simple(node, None, (), node.name == "-0")


def _exact(places: Places, span: Span | None) -> Simple:
    found = tuple(sorted(places))
    return Simple(Exact(found) if found else _ZERO, span if found else None, found)


def _steps(node: Steps, inputs: Inputs) -> Simple:
    """Fused steps: the exact ones at the beginning are one sum."""
    value = _simple(node.before, inputs)
    assert inputs.term is not None
    kept: list[tuple[StepRule, Places]] = []
    sure, span, exact = value.exact if not value.negative_zero else None, value.span, value.span
    if node.before == Start("c") and node.steps[0][0].native_c:
        span = inputs.native_c
    if node.before == Start("-0"):
        sure = None
    taken = None if sure is None else list(sure)
    for rule, places in node.steps:
        # a step without products makes +0 of -0, which an accumulator may be, and a result that was flushed
        negative = any(_leaves_negative_zero(each) for each, _ in kept[-1:]) if kept else value.negative_zero
        if not places and (span is None or (keeps(rule, span) and not negative)):
            continue
        rule, after = reach(rule, len(places), inputs.term, span)
        fmt = FORMATS[rule.sums]
        if taken is not None and rule.is_exact and after.most is not None and after.most.bit_length() + after.unit <= fmt.emax + 1:
            taken += places
            exact = after
        else:
            if taken:
                value = _exact(tuple(taken), exact)
            taken = None
            kept.append((rule, places))
        span = after._replace(most=None, high=fmt.emax) if inputs.unbounded else after
    if taken is not None:
        return _exact(tuple(taken), exact)
    return Simple(Steps(value.node, tuple(kept)), span, None, any(_leaves_negative_zero(rule) for rule, _ in kept))


def _leaves_negative_zero(rule: StepRule) -> bool:
    """Tell whether a step's result may be -0."""
    return rule.flush_results or rule.negative_zero


def _chain(node: Chain, inputs: Inputs) -> Simple:
    value, fmt = _simple(node.before, inputs), FORMATS[node.fmt]
    assert inputs.term is not None
    places = tuple(place for place in node.places if place != PADDING)
    term, count = inputs.term, len(places)
    # zeros make -0 a +0, the first of them: elsewhere they are none
    negative = value.negative_zero or node.mode != "rn" or term.unit < fmt.emin - fmt.mantissa_bits
    before = (0, *node.places)
    kept = tuple(each for each, last in zip(node.places, before, strict=False) if each != PADDING or last != PADDING)
    node = replace(node, places=kept if negative else places)
    if node.mode == "rn" and value.exact is not None and not inputs.unbounded and fmt.name != "f64":
        span = _added(value.span, term, count)
        alone = value.span is None and count == 1 and holds(fmt, term, term.fraction + 2)
        if alone or holds(fmt, span):
            if not value.negative_zero:
                return _exact((*value.exact, *places), span)
            return Simple(replace(node, before=value.node), span, (*value.exact, *places), len(places) == len(node.places))
    ends = node.places[-1:] == (PADDING,)
    return Simple(replace(node, before=value.node), sum_span(fmt, term.unit, None), None, negative and not ends)


def _added(first: Span | None, second: Span, count: int = 1) -> Span:
    """Return the span of an exact sum of a value and so many others."""
    if first is None:
        return second._replace(most=None if second.most is None else second.most * count)
    unit = min(first.unit, second.unit)
    most = None
    if first.most is not None and second.most is not None:
        most = (first.most << (first.unit - unit)) + count * (second.most << (second.unit - unit))
    return Span(min(first.low, second.low), max(first.high, second.high), max(first.fraction, second.fraction), unit, most)


def _sum(node: Sum, inputs: Inputs) -> Simple:
    """Sums from the first value on: without zeros, and with one exact sum in place of values that add up exactly."""
    fmt = FORMATS[node.fmt]
    if fmt.kind != "float":
        return _sum_of_integers(node, inputs)
    total, kept = _opened(_simple(node.parts[0], inputs), node.fmt)
    for part in node.parts[1:]:
        value = _simple(part, inputs)
        if value.node == _ZERO and not total.negative_zero:
            continue
        if total.node == _ZERO and not kept and not value.negative_zero:
            total, kept = _opened(value, node.fmt)
            continue
        both = _exact_sum(total, value, fmt, inputs) if not kept else None
        if both is not None:
            total = both
            continue
        kept.append(value.node)
        unit = min(each.span.unit for each in (total, value) if each.span is not None) if total.span or value.span else 0
        total = Simple(total.node, sum_span(fmt, unit, None), None, total.negative_zero and value.negative_zero)
    if not kept:
        return total
    first, second, *others = total.node, *kept
    if _first_place(second) < _first_place(first):  # two values add up in either order
        first, second = second, first
    return total._replace(node=Sum(node.fmt, (first, second, *others)))


def _sum_of_integers(node: Sum, inputs: Inputs) -> Simple:
    """Sums modulo 2**32 are one, where none is saturated."""
    first, *others = (_simple(part, inputs).node for part in node.parts)
    plain = [part for part in (first, *others) if isinstance(part, Integers) and not part.saturated]
    if len(plain) <= len(others) or any(part.before != _ZERO for part in plain[1:]):
        return Simple(replace(node, parts=(first, *others)), None)
    return Simple(replace(plain[0], places=tuple(sorted(place for part in plain for place in part.places))), None)


def _opened(value: Simple, fmt: str) -> tuple[Simple, list[Node]]:
    """Return the first value of a sum in a format, with what is known of the whole, and what is added to it."""
    if isinstance(value.node, Sum) and value.node.fmt == fmt:
        return value._replace(node=value.node.parts[0]), list(value.node.parts[1:])
    return value, []


def _exact_sum(first: Simple, second: Simple, fmt: Format, inputs: Inputs) -> Simple | None:
    """Return two exact sums as one, if the format has it."""
    if first.exact is None or second.exact is None or (first.negative_zero and second.negative_zero) or inputs.unbounded:
        return None
    if first.span is None or second.span is None:
        return None
    span = _added(first.span, second.span)
    return _exact((*first.exact, *second.exact), span) if holds(fmt, span) else None


def _first_place(node: Node) -> tuple[int, ...]:
    """Return the smallest place of k of a value, by which the values of a sum of two are ordered."""
    if isinstance(node, Start):
        return (0, -2)
    found: list[int] = []
    waiting: list[Any] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Exact | Chain | Integers):
            found += [place for place in each.places if place >= 0][:1]
        if isinstance(each, Steps):
            found += [places[0] for _, places in each.steps[:1] if places]
        waiting += [value for value in (getattr(each, "before", None), getattr(each, "value", None)) if value is not None]
        waiting += [part[1] if isinstance(part, tuple) else part for part in getattr(each, "parts", ())]
    return (1, min(found, default=-1))


def _rounded(node: Rounded, inputs: Inputs) -> Simple:
    value, fmt = _simple(node.value, inputs), FORMATS[node.fmt]
    if value.exact is not None and not value.negative_zero and (value.span is None or holds(fmt, value.span)):
        return value
    if isinstance(value.node, Rounded) and value.node.fmt == node.fmt:
        return value
    return Simple(Rounded(node.fmt, value.node), value.span and sum_span(fmt, value.span.unit, None), None, True)


def _integers(node: Integers, inputs: Inputs) -> Simple:
    value = _simple(node.before, inputs)
    reaches = inputs.unbounded or value.node != _ZERO or len(node.places) * inputs.most > FORMATS["s32"].max
    return Simple(replace(node, places=tuple(sorted(node.places)), before=value.node, saturated=node.saturated if reaches else ()), None)


def _promoted(node: Promoted, inputs: Inputs) -> Simple:
    parts = tuple((chunk, _simple(part, inputs).node) for chunk, part in node.parts)
    return Simple(Promoted(node.rule, parts), Span(-126, 127, 23, -149, None), None, True)


def _ended(node: Ended, inputs: Inputs) -> Simple:
    value = _simple(node.value, inputs)
    c = None if node.c is None else _simple(node.c, inputs).node
    return Simple(Ended(node.steps, node.out, value.node, c), span_of(FORMATS[node.out]) if node.out else None, None, True)


_RULES: dict[type[Node], Callable[[Any, Inputs], Simple]] = {
    Start: _start,
    Steps: _steps,
    Chain: _chain,
    Sum: _sum,
    Rounded: _rounded,
    Integers: _integers,
    Promoted: _promoted,
    Ended: _ended,
}
