"""Calls of a form that came before: one look finds what computed that product, in place of choosing it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.engine import Backend
from fastmma.isa.instruction import Instruction
from fastmma.products.bound import Arguments, bind
from fastmma.products.prepared import Kept, Prepared

CallForm = tuple[Any, ...]  # values that calls with the same plan and kernel share

MOST = 64  # forms
_FACTOR = frozenset({float, type(None)})
PLAIN = frozenset({str, int, bool, type(None), type, Instruction})  # types whose equal values mean the same choice


class _Known(NamedTuple):
    """A product, and its kernel for a form."""

    product: Prepared
    kept: Kept


_known: dict[CallForm, _Known] = {}


def form_of_call(arguments: Arguments, runner: Backend, threads: int, choices: Mapping[str, Any]) -> CallForm | None:
    """Describe all of a call that its plan and its kernel depend on; None where equal descriptions might be of different products.

    Choices are given as they came.
    """
    call, a, b, c, bias, alpha, beta, out, metadata, scale_a, scale_b = arguments
    settings, kinds = runner.settings(), tuple(map(type, choices.values()))  # kinds, as 1 equals True
    if settings is None or not PLAIN.issuperset(kinds) or choices.get("target") == "native":
        return None
    if type(a) is not np.ndarray or type(b) is not np.ndarray or not metadata is scale_a is scale_b is None or type(alpha) is not float:
        return None
    ends = None
    if c is not None or bias is not None or beta is not None or out is not None:
        if type(beta) not in _FACTOR or not all(each is None or type(each) is np.ndarray for each in (c, bias, out)):
            return None
        ends = beta, *(None if each is None else (each.dtype, each.shape, each.strides) for each in (c, bias, out))
    left, right = (a.dtype, a.shape, a.strides), (b.dtype, b.shape, b.strides)
    return call, left, right, alpha, ends, runner, settings, threads, kinds, tuple(choices.items())


def multiply_again(form: CallForm, arguments: Arguments) -> NDArray[Any] | None:
    """Multiply by the kernel that computed a product of this form before; return None where there is none, or it cannot.

    Raises
    ------
    TargetError
        If strict mode refuses the plan by now.
    """
    known = _known.get(form)
    if known is None:
        return None
    known.product.plan.recheck()
    return known.product.multiply_by(known.kept, arguments)


def remember(form: CallForm, product: Prepared, arguments: Arguments) -> None:
    """Keep what computed a product, where one kernel does it at once."""
    bound = bind(arguments)
    kept = None if bound is None else product.kept_of(bound)
    if kept is not None:
        if len(_known) >= MOST:
            _known.clear()
        _known[form] = _Known(product, kept)
