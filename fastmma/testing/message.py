"""The message of a failed comparison: how much differs, where, and which plans have the bits that came."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.agreement.reasons import assumed
from fastmma.backends.plan import Plan
from fastmma.explanation.numbers import number_text
from fastmma.host.errors import FastmmaError
from fastmma.isa.formats import Format
from fastmma.products.gemm_plan import GemmPlan
from fastmma.testing.bits import codes_of, distances, is_nan, is_zero, known_format
from fastmma.verification.identify import Match, identify

_ALIKE = 3  # plans that are named for a result


@dataclass(frozen=True)
class ComparedProduct:
    """The origin of a result: operands, the rest of the call, and the plan that was expected."""

    a: Any
    b: Any
    c: Any = None
    plan: Plan | None = None
    options: dict[str, Any] = field(default_factory=dict)


def message(actual: NDArray[Any], expected: NDArray[Any], differ: NDArray[np.bool_], product: ComparedProduct | None, show: int) -> str:
    """The whole message."""
    fmt = known_format(actual.dtype)
    lines = [*_summary(actual, expected, differ, fmt), *_elements(actual, expected, differ, fmt, show)]
    if product is not None and actual.ndim > 1:
        lines += _origin(actual, expected, tuple(np.argwhere(differ)[0].tolist()), product)
    return "\n".join(lines)


def _summary(actual: NDArray[Any], expected: NDArray[Any], differ: NDArray[np.bool_], fmt: Format | None) -> Iterator[str]:
    count, shape = int(np.count_nonzero(differ)), " x ".join(map(str, actual.shape))
    yield f"{count} of {differ.size} elements differ ({100 * count / differ.size:.3g} %): {shape or 'one'}, {actual.dtype}"
    if fmt is None:
        return
    x, y = codes_of(actual)[differ], codes_of(expected)[differ]
    if signs := int(np.count_nonzero(is_zero(x, fmt) & is_zero(y, fmt))):
        yield f"  sign of zero   {signs}"
    nans = is_nan(x, fmt) | is_nan(y, fmt)
    if nans.any():
        yield f"  NaN            {int(np.count_nonzero(nans))}"
    apart = distances(x, y, fmt)[~nans]
    if apart.size:
        yield f"  ulps           median {int(np.median(apart))}, largest {int(apart.max())}"
        with np.errstate(all="ignore"):
            nearer = np.abs(actual[differ].astype(np.float64)) < np.abs(expected[differ].astype(np.float64))
        yield f"  closer to zero actual in {100 * nearer[~nans].mean():.3g} %"


def _elements(actual: NDArray[Any], expected: NDArray[Any], differ: NDArray[np.bool_], fmt: Format | None, show: int) -> Iterator[str]:
    x, y = codes_of(actual), codes_of(expected)
    for place in np.argwhere(differ)[:show]:
        at = tuple(place.tolist())
        texts = [_text(int(codes[at]), fmt) for codes in (x, y)]
        yield f"  {list(at)}  actual {texts[0]}; expected {texts[1]}"


def _text(code: int, fmt: Format | None) -> str:
    return f"{code:#x}" if fmt is None else number_text(code, fmt)


def _origin(actual: NDArray[Any], expected: NDArray[Any], at: tuple[int, ...], product: ComparedProduct) -> Iterator[str]:
    """Return which plans have the bits of either result, found on the matrix of the first element that differs."""
    lead, row, col = at[:-2], at[-2], at[-1]
    try:
        given = _matrix(product, actual.shape, lead)
    except (ValueError, IndexError, TypeError, FastmmaError) as error:
        yield f"  the plans cannot be tried: {error}"
        return
    if given is not None:
        yield f"  exact          sum of products at {list(at)}: {_exact(given['a'], given['b'], row, col)}"
        for name, result in (("actual", actual), ("expected", expected)):
            plan = product.plan if name == "expected" else None
            yield from _name(name, result[lead], given, plan)
    if product.plan is not None:
        yield "expected:"
        yield from ("  " + line for line in str(product.plan).splitlines())
        for text in assumed(product.plan, "this product", True):
            yield f"  assumed        {text}"


def _matrix(product: ComparedProduct, shape: tuple[int, ...], lead: tuple[int, ...]) -> dict[str, Any] | None:
    """The operands of one matrix of a batch, as `identify` takes them; None where it does not."""
    known = {"alpha", "beta", "bias"}
    if not isinstance(product.a, np.ndarray) or not isinstance(product.b, np.ndarray) or "metadata" in product.options:
        return None
    batch = shape[:-2]
    found = {name: np.broadcast_to(each, (*batch, *each.shape[-2:]))[lead] for name, each in (("a", product.a), ("b", product.b))}
    if product.c is not None:
        found["c"] = np.broadcast_to(product.c, shape)[lead]
    return found | {name: value for name, value in product.options.items() if name in known and value is not None}


def _exact(a: NDArray[Any], b: NDArray[Any], row: int, col: int) -> float:
    """A sum of products, rounded once to float64."""
    with np.errstate(all="ignore"):
        terms = a[row].astype(np.float64) * b[:, col].astype(np.float64)
    return math.fsum(terms.tolist()) if np.isfinite(terms).all() else float(terms.sum())


def _name(name: str, result: NDArray[Any], given: dict[str, Any], plan: Plan | None) -> Iterator[str]:
    """The plans that have the bits of a result."""
    if isinstance(plan, GemmPlan):
        yield f"  {name:<14} {short(plan)}"
        return
    try:
        found = identify(result, **given)
    except FastmmaError as error:
        yield f"  {name:<14} no plan was tried: {error}"
        return
    best = [match for match in found if match.share == found[0].share][:_ALIKE]
    if not best:
        yield f"  {name:<14} no plan takes these operands"
    elif best[0].share < 1:
        yield f"  {name:<14} of the plans tried none has these bits; {100 * best[0].share:.3g} % of them has {short(best[0].plan)}"
    else:
        for match in best:
            yield f"  {name:<14} {short(match.plan)}{_alike(match)}"


def _alike(match: Match) -> str:
    """Other instructions with the same bits."""
    others = match.alike[1 : 1 + _ALIKE]
    return f" (computed alike: {', '.join(others)}{', ...' if len(match.alike) > 1 + _ALIKE else ''})" if others else ""


def short(plan: GemmPlan) -> str:
    """A plan in one line: the instruction, the target, and what is not as usual."""
    changes = [
        (each.name, getattr(plan, each.name)) for each in fields(plan) if each.name not in ("target", "instruction", "source", "out")
    ]
    usual = {each.name: each.default for each in fields(plan)}
    own = [f"{name}={value!r}" for name, value in changes if value != usual[name]]
    return ", ".join([f"{plan.instruction} on {plan.target}", *own])
