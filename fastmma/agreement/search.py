"""Search for operands on which two plans differ, and make them small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.agreement.draw import FULL, Hints, draw
from fastmma.agreement.form import Node, Steps, rules, walk
from fastmma.agreement.problem import Problem
from fastmma.agreement.run import Operands, compute
from fastmma.backends.plan import Plan
from fastmma.isa.codes import decode, encode, from_codes
from fastmma.isa.formats import FORMATS

_MOST_EDGES = 256
_MOST_CUTS = 64
_PATIENCE = 40  # draws after which operands whose results are infinite, or no numbers, are taken
_DEEP = 1 << 16  # k beyond which sums alone are drawn that are as large as can be, and fewer
_MOST_COMPILED, _MOST_EXACT = 1 << 33, 1 << 19  # multiply-adds of a search, by kernels and in exact integers
_MOST_PLAIN = 32  # elements that are made plainer
_MOST_TRIES = 400  # operands with fewer products
_MOST_WORK = 1 << 25  # multiply-adds that are drawn at once
_ALWAYS = (0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 22, 23, 24, 25)  # fraction bits of formats, and near them


class Pair(NamedTuple):
    """Two plans of a problem, their forms, and how many places of k an element has."""

    p: Plan
    q: Plan
    problem: Problem
    forms: tuple[Node, Node]
    depth: int
    slow: bool = False  # whether one is computed in exact integers
    whole: int = 0  # K, where depth is that of what is stored of sparse A


def search(pair: Pair, budget: int, seed: int = 0) -> tuple[Operands | None, int]:
    """Search among at most so many elements; return the operands of one that differs, if one was found, and how many were computed."""
    rng, hints, done, turn = np.random.default_rng(seed), hints_of(pair), 0, 0
    found: Operands | None = None
    patience = _PATIENCE
    deep = pair.depth > _DEEP
    budget = budget * _DEEP // pair.depth if deep else budget
    budget = min(budget, (_MOST_EXACT if pair.slow else _MOST_COMPILED) // pair.depth)
    while done < budget and patience:
        operands = draw(pair.problem, hints, rng, FULL if deep else turn)
        results = [compute(plan, pair.problem, operands) for plan in (pair.p, pair.q)]
        differs = results[0] != results[1]
        done, turn = done + differs.size, turn + 1
        if differs.any():
            plain = differs & _finite(results[0], pair.problem.result) & _finite(results[1], pair.problem.result)
            row, column = (int(each) for each in np.argwhere(plain if plain.any() else differs)[0])
            found, patience = operands.element(row, column), 0 if plain.any() else patience
        patience -= found is not None and patience > 0
    return None if found is None else small(pair, found), done


def _finite(codes: NDArray[Any], fmt: str) -> NDArray[np.bool_]:
    """Tell which codes are numbers."""
    return np.asarray(np.isfinite(decode(codes, fmt).astype(np.float64)))


def differ(pair: Pair, operands: Operands, backend: str = "numba") -> bool:
    """Tell whether two plans differ on the operands of an element."""
    return bool((compute(pair.p, pair.problem, operands, backend) != compute(pair.q, pair.problem, operands, backend)).any())


def hints_of(pair: Pair) -> Hints:
    """Find where steps and parts begin, and by how many bits terms are aligned."""
    edges, distances = {0, pair.depth - 1}, set(_ALWAYS)
    for form in pair.forms:
        starts = sorted({place for place in _starts(form) if 0 <= place < pair.depth})
        edges |= set(starts[:: max(len(starts) // _MOST_EDGES, 1)])
        for rule in rules(form):
            distances |= {max(rule.align_bits + by, 0) for by in range(-4, 4)} | {rule.keep_bits + by for by in range(3)}
            distances |= {max(rule.join_bits + by, 0) for by in range(-2, 3)}
    formats = {FORMATS[pair.problem.result], *(FORMATS[rule.sums] for form in pair.forms for rule in rules(form))}
    halves = tuple(sorted(fmt.emin - fmt.mantissa_bits - 1 for fmt in formats if fmt.kind == "float"))
    size = 32
    while size > 4 and size * size * pair.depth > (_MOST_WORK >> 11 if pair.slow else _MOST_WORK):
        size //= 2
    cuts = sorted({place for form in pair.forms for place in _part_starts(form)} - {pair.depth})
    few = tuple(cuts[:: -(-len(cuts) // _MOST_CUTS)]) if len(cuts) > 1 else ()
    return Hints(pair.depth, tuple(sorted(edges)), tuple(sorted(distances)), halves, size, pair.whole, few)


def _part_starts(form: Node) -> Iterator[int]:
    """Yield where the parts begin that are added to each other."""
    for node in walk(form):
        for part in getattr(node, "parts", ()):
            yield from list(_starts(part[1] if isinstance(part, tuple) else part))[:1]


def _starts(form: Node) -> Iterator[int]:
    for node in walk(form):
        if isinstance(node, Steps):
            yield from (places[0] for _, places in node.steps if places)
            yield from (places[-1] for _, places in node.steps if places)
        elif getattr(node, "places", ()):
            yield node.places[0]
            yield node.places[-1]


def small(pair: Pair, operands: Operands) -> Operands:
    """Make operands of one element small: fewer products, then plainer numbers, while the plans still differ."""
    operands = _fewer(pair, operands)
    for name in ("a", "b"):
        operands = _plainer(pair, operands, name)
    if "c" in operands.others:
        zero = operands._replace(others=operands.others | {"c": np.zeros_like(operands.others["c"])})
        operands = zero if differ(pair, zero) else operands
    return operands


def _used(operands: Operands) -> list[int]:
    """Find the places whose product is not zero."""
    if operands.a.shape[1] != len(operands.b):  # stored places of sparse A
        return [int(place) for place in np.flatnonzero(operands.a[0].astype(np.float64) != 0)]
    with np.errstate(all="ignore"):
        return [
            int(place) for place in np.flatnonzero((operands.a[0].astype(np.float64) != 0) | (operands.b[:, 0].astype(np.float64) != 0))
        ]


def _without(operands: Operands, places: list[int]) -> Operands:
    a, b = operands.a.copy(), operands.b.copy()
    a[0, places] = 0
    if a.shape[1] == len(b):
        b[places, 0] = 0
    return operands._replace(a=a, b=b)


def _fewer(pair: Pair, operands: Operands) -> Operands:
    """Leave out products: halves, quarters, and so on, down to single ones."""
    used, tries = _used(operands), 0
    size = max(len(used) // 2, 1)
    while used and tries < _MOST_TRIES:
        found = False
        for first in range(0, len(used), size):
            tried, tries = _without(operands, used[first : first + size]), tries + 1
            if differ(pair, tried):
                operands, used, found = tried, used[:first] + used[first + size :], True
                break
        if not found:
            if size == 1:
                break
            size = max(size // 2, 1)
    return operands


def _plainer(pair: Pair, operands: Operands, name: str) -> Operands:
    """Put 1 or the nearest power of two in place of elements, while the plans still differ."""
    fmt = FORMATS[getattr(pair.problem, name)]
    if fmt.kind != "float":
        return operands
    for place in _used(operands)[:_MOST_PLAIN]:
        array = getattr(operands, name)
        at = (0, place) if name == "a" else (place, 0)
        if name == "b" and operands.a.shape[1] != len(operands.b):
            break
        value = float(array[at])
        if not np.isfinite(value) or value == 0:
            continue
        for plain in (1.0, float(np.copysign(2.0 ** np.floor(np.log2(abs(value))), value))):
            tried = array.copy()
            tried[at] = from_codes(encode(np.array([plain]), fmt), fmt)[0]
            other = operands._replace(**{name: tried})
            if differ(pair, other):
                operands = other
                break
    return operands
