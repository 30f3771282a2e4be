"""The choice of a kernel: the first row of `ROUTES` that can computes a product, and others what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np

from fastmma.backends import routes
from fastmma.backends.call import Codes, Operands, Operation
from fastmma.backends.holds import cpu
from fastmma.backends.problem import Extents, Fallback, Fallbacks, Problem, Strides, part_of, problem_of
from fastmma.backends.quantities import ANY, QUANTITIES
from fastmma.backends.routes import CALLS, Route
from fastmma.backends.runs import kernel_of


class Chosen(NamedTuple):
    """A row, and its place in the table."""

    row: Route
    place: int


class Verdict(NamedTuple):
    """A row, and why it is not taken; empty for the one that is."""

    row: Route
    reason: str


def features_of(row: Route) -> tuple[frozenset[str], ...]:
    """List the sets of CPU features of which a kernel needs one; none where any CPU will do."""
    if not row.tiles:
        return ()
    from fastmma.kernels import tiles

    return tuple(tile.features for tile in getattr(tiles, row.tiles))


def refusal(row: Route, problem: Problem, threads: int = 1, call: str = "products") -> str:
    """Say why a row does not take a problem; nothing if it does."""
    method, features = problem.operation.arithmetic.method, features_of(row)
    if row.call != call:
        return f"takes {CALLS[row.call]}"
    if method not in row.methods:
        return f"computes {' and '.join(row.methods)}, not {method}"
    if row.scaled not in (None, problem.scaled):
        return "takes block scaling only" if row.scaled else "takes no block scaling"
    usable = cpu().usable() if features else frozenset[str]()
    if features and not any(each <= usable for each in features):
        return f"needs a CPU with {text_of_features(row)}"
    woken = paying(threads, problem, row)
    beyond = [_beyond(bounds, problem, woken) for bounds in row.ranges]
    if all(beyond):
        return "; or ".join(beyond)
    return "" if row.holds.test(problem) else f"holds only: {row.holds.text}"


def _beyond(bounds: object, problem: Problem, threads: int) -> str:
    """Name the first quantity that is out of its bounds."""
    assert isinstance(bounds, dict)
    for name, (least, most) in bounds.items():
        value = QUANTITIES[name](problem, threads)
        if value < least:
            return f"{name} {value} < {least}"
        if value > most:
            return f"{name} {value} > {most}"
    return ""


def text_of_features(row: Route) -> str:
    """Write the CPU features that a kernel needs."""
    found = features_of(row)
    return "any" if not found or frozenset() in found else "; or ".join("+".join(sorted(each)) for each in found)


def text_of_ranges(row: Route) -> str:
    """Write the products for which a kernel is taken."""

    def text(name: str, least: int, most: int) -> str:
        if most >= ANY:
            return f"{name} >= {least}"
        return f"{name} = {least}" if least == most else f"{name} <= {most}" if least <= 1 else f"{least} <= {name} <= {most}"

    bounded = [{name: bounds for name, bounds in each.items() if bounds != (0, ANY)} for each in row.ranges]
    return " or ".join("; ".join(text(name, *bounds) for name, bounds in each.items()) for each in bounded) or "all"


@lru_cache(4096)
def _chosen(problem: Problem, usable: frozenset[str], first: int, exact: bool) -> Chosen:  # noqa: ARG001 - a key
    for place, row in enumerate(routes.ROUTES):
        if place >= first and not (exact and row.fallback) and not refusal(row, problem):
            return Chosen(row, place)
    raise AssertionError(f"no kernel computes {problem}")


def choose(problem: Problem, first: int = 0, exact: bool = False) -> Chosen:
    """Find the row that computes products, from the `first` row on; where `exact`, one without a fallback."""
    return _chosen(problem, cpu().usable(), first, exact)


def explain(problem: Problem, threads: int = 1, calls: tuple[str, ...] = ("products",)) -> list[Verdict]:
    """Say of every row why it is not taken by `calls`; the reason of the one that is taken is empty."""
    taken, found = "", []
    for row in routes.ROUTES:
        reason = refusal(row, problem, threads, row.call if row.call in calls else calls[-1])
        if not reason and taken:
            reason = f"comes after {taken}"
        elif not reason:
            taken = row.name
        found.append(Verdict(row, reason))
    return found


def paying(threads: int, problem: Problem, row: Route) -> int:
    """Return how many of the threads are worth waking for what a row computes."""
    if threads == 1:
        return 1
    return min(threads, max(isqrt(problem.extents.products * problem.extents.work * row.cost // routes.WAKING), 1))


def row_named(name: str) -> Chosen:
    """Find a row.

    Examples
    --------
    >>> row_named("panels").row.kernel
    'fused/packed.py'
    """
    return next(Chosen(row, place) for place, row in enumerate(routes.ROUTES) if row.name == name)


@lru_cache(1024)
def is_left_to_reference(operation: Operation) -> bool:
    """Tell whether no kernel knows an arithmetic, whatever the operands, so that the reference takes its instructions one by one."""
    ins = operation.instruction
    one = Problem(operation, Extents(1, ins.m, ins.n, ins.k), Strides((), ()), True, bool(ins.scale_vec_size), bool(ins.sparse))
    return not refusal(row_named("reference").row, one, call="instructions")


def multiply(problem: Problem, operands: Operands, out: Codes, threads: int, first: int = 0, exact: bool = False) -> None:
    """Write products: choose a kernel, run it, and fall back where it leaves results out.

    `out` may be c, but not overlap it otherwise.
    """
    row, place = choose(problem, first, exact)
    if row.fallback and operands.c is not None and np.may_share_memory(operands.c, out):
        operands = operands._replace(c=operands.c.copy())
    fallbacks = kernel_of(row)(problem, operands, out, paying(threads, problem, row))
    if not fallbacks:
        return

    def again(_where: Fallback, part: Operands, results: Codes) -> None:
        multiply(problem_of(problem.operation, part, results), part, results, threads, place + 1, row.fallback == "exact")

    fall_back(fallbacks, operands, out, again)


def fall_back(fallbacks: Fallbacks, operands: Operands, out: Codes, compute: Callable[[Fallback, Operands, Codes], None]) -> None:
    """Call ``compute(place, operands, results)`` for everything that a kernel leaves out."""
    for place in fallbacks:
        results = out[place]
        compute(place, part_of(operands, place), results)
        if not all(isinstance(lines, slice) for lines in place):  # results are a copy
            out[place] = results


def run(operation: Operation, operands: Operands, out: Codes, threads: int) -> None:
    """`Backend.run` by the kernel that suits."""
    multiply(problem_of(operation, operands, out), operands, out, threads)
