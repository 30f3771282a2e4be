"""Calls that are computed by what an earlier call of the same form found out, from the addresses of their tensors alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fastmma.host.float_mode import is_default
from fastmma.torch.functions import Placed, places_of
from fastmma.torch.places import where
from fastmma.torch.plans import ALIGNED
from fastmma.torch.report import EMULATED, Line

if TYPE_CHECKING:
    from fastmma.torch.emulation import Computation, Emulation

Key = tuple[Any, ...]
Answer = Callable[["Emulation", tuple[Any, ...]], Tensor | None]
_SCALARS = (bool, int, float, str, torch.dtype, type(None))
_AGAIN = "again"  # stands in keys for a tensor that is the one before, so that places of operands among arguments are told apart


def key_of(kind: object, args: tuple[Any, ...], kwargs: dict[str, Any], modes: Callable[[torch.dtype], Any] | None = None) -> Key | None:
    """Describe all of a call but the numbers in its tensors; None where it takes lists, or tensors that do not lie in strides.

    Parameters
    ----------
    kind : object
        Of the operator.
    args, kwargs
        Its own.
    modes : callable, optional
        torch's settings by the dtype of the last tensor, for calls that depend on them.
    """
    key: list[Any] = [kind]
    before = None
    try:
        for each in args:
            if isinstance(each, Tensor):
                if each is before:
                    key.append(_AGAIN)
                before = each
                place = each.data_ptr() % ALIGNED
                key.append((each.dtype, each.shape, each.stride(), place, each.is_cpu, each.is_neg(), each.layout))
            elif isinstance(each, _SCALARS):
                key.append(repr(each))  # which tells 1 from 1.0, and 0.0 from -0.0
            else:
                return None
    except RuntimeError:  # of tensors that are sparse or nested
        return None
    for name, each in kwargs.items():
        if not isinstance(each, _SCALARS):
            return None
        key += name, repr(each)
    if modes is not None and before is not None:
        key.append(modes(before.dtype))
    return tuple(key)


def kept_product(computation: Computation, operands: tuple[Tensor | None, ...], args: tuple[Any, ...]) -> Answer | None:
    """Return what computes and counts calls of a form, given the product that one of them was; None where its operands are not the call's.

    The last tensor is to be an operand: by its dtype torch's settings were looked up. The answer is None where numbers are out of reach.
    """
    _, line, out, shape, fixed, filled = computation
    numbers = places_of(args)
    a, b, addend = (-1 if each is None else numbers.get(id(each)) for each in operands)
    last = [each for each in args if isinstance(each, Tensor)][-1]
    if fixed is None or a is None or b is None or addend is None or last is not operands[1]:
        return None
    stride = torch.empty(shape, device="meta").stride()
    is_emulated = line.status == EMULATED

    def compute(run: Emulation, args: tuple[Any, ...]) -> Tensor | None:
        result = torch.empty_strided(shape, stride, dtype=out)
        added = 0 if addend < 0 else args[addend].data_ptr()
        if not is_default() or not fixed(args[a].data_ptr(), args[b].data_ptr(), result.data_ptr(), None, added):
            return None
        if is_emulated and not run.guess:
            run.report.count(line, where())
        else:
            run.done(line)
        return result.add_(0.0) if filled else result

    return compute


def kept_function(placed: Placed, line: Line) -> Answer:
    """Return what computes and counts calls of a function of each element. The answer is None where products are only assumed."""

    def compute(run: Emulation, args: tuple[Any, ...]) -> Tensor | None:
        if run.guess or not is_default():
            return None
        result = placed.compute(args, run.settings.threads)
        run.report.count(line, where())
        return result

    return compute
