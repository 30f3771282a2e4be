"""The difference of two explanations of an element: the first sum that differs, and the terms that make it differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fastmma.explanation.steps import Dyadic, Step, Term, special_of, value_of
from fastmma.isa.formats import FORMATS


@dataclass(frozen=True)
class Difference:
    """The first place where two running sums differ.

    Attributes
    ----------
    stage : str
        The stage of the steps, as in `Step`.
    k : (int, int)
        The k between the last sums that agreed and the first that differ.
    steps, other_steps : tuple of Step
        What either did there.
    terms : tuple of int
        The k of the products of which the two keep different parts.
    """

    stage: str
    k: tuple[int, int]
    steps: tuple[Step, ...]
    other_steps: tuple[Step, ...]
    terms: tuple[int, ...]


def _keys(steps: Sequence[Step]) -> dict[Hashable, int]:
    """The place of the last step that reaches each k in a stage; steps of an epilogue are counted."""
    found: dict[Hashable, int] = {}
    epilogue = 0
    for index, step in enumerate(steps):
        epilogue += step.stage == "epilogue"
        found[step.stage, epilogue or step.k[1]] = index
    return found


def _meaning(step: Step) -> tuple[Dyadic, str, bool]:
    result = step.result
    return value_of(step.code, FORMATS[step.format]), special_of(result), result.negative


def first_difference(steps: Sequence[Step], others: Sequence[Step]) -> Difference | None:
    """Return where the sums of two explanations differ first; None if they never do."""
    left, right = _keys(steps), _keys(others)
    agreed = other_agreed = 0  # the places behind the last steps that agree
    for key, index in sorted(left.items(), key=lambda item: item[1]):
        other = right.get(key, -1)
        if other < other_agreed:
            continue  # the other one has no such sum, or had it in another order
        if _meaning(steps[index]) != _meaning(others[other]):
            return _between(steps[agreed : index + 1], others[other_agreed : other + 1])
        agreed, other_agreed = index + 1, other + 1
    rest, other_rest = steps[agreed:], others[other_agreed:]
    if (rest or other_rest) and (not steps or not others or _meaning(steps[-1]) != _meaning(others[-1])):
        return _between(rest, other_rest)
    return None


def _between(steps: Sequence[Step], others: Sequence[Step]) -> Difference:
    ks = [k for step in (*steps, *others) for k in step.k]
    kept, other_kept = _keep(steps), _keep(others)
    parted = [k for k in sorted(kept.keys() & other_kept.keys()) if kept[k] != other_kept[k]]
    last = (*others, *steps)[-1]
    return Difference(last.stage, (min(ks, default=0), max(ks, default=0)), tuple(steps), tuple(others), tuple(parted))


def _keep(steps: Sequence[Step]) -> dict[int, tuple[Dyadic, str]]:
    """Return what is kept of every product, by its k."""
    found: dict[int, tuple[Dyadic, str]] = {}
    for step in steps:
        for term in step.terms:
            if len(term.k) == 1:
                found[term.k[0]] = kept_of(term), term.special
    return found


def kept_of(term: Term) -> Dyadic:
    """Return what of a term goes into the sum."""
    return term.value if term.kept is None else term.kept
