"""Calls that are computed by what an earlier call of the same form found out, from the addresses of their tensors alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fastmma.functions import autocast
from fastmma.host.float_mode import is_default
from fastmma.torch.functions import Placed, PlacedRows, Reduced, place, places_of, reduction
from fastmma.torch.kinds import FIXED, MENDED, Kind
from fastmma.torch.norms import PlacedNorm
from fastmma.torch.plans import ALIGNED
from fastmma.torch.report import EMULATED, Line, Tally
from fastmma.torch.sums import PlacedSum

if TYPE_CHECKING:
    from fastmma.torch.emulation import Computation, Emulation

Key = tuple[Any, ...]
_SCALARS = (bool, int, float, str, torch.dtype, type(None))
_SETTLED = FIXED, MENDED  # answers to calls of functions whose numbers may decide that no kernel is needed
_AGAIN = "again"  # stands in keys for a tensor that is the one before, so that places of operands among arguments are told apart


def key_of(kind: object, args: tuple[Any, ...], kwargs: dict[str, Any], modes: Callable[[torch.dtype], Any] | None = None) -> Key | None:
    """Describe all of a call but the numbers in its tensors; None where it takes lists of them, or some that do not lie in strides.

    Parameters
    ----------
    kind : object
        Of the operator.
    args, kwargs
        Its own.
    modes : callable, optional
        torch's settings by the dtype of the last tensor, for calls that depend on them, and take no lists at all.
    """
    key: list[Any] = [kind]
    before = None
    try:
        for each in args:
            if isinstance(each, Tensor):
                if each is before:
                    key.append(_AGAIN)
                    continue
                before = each
                place = each.data_ptr() % ALIGNED
                key.append((each.dtype, each.shape, each.stride(), place, each.is_cpu, each.is_neg(), each.layout))
            elif isinstance(each, _SCALARS):
                key.append(repr(each))  # which tells 1 from 1.0, and 0.0 from -0.0
            elif modes is None and type(each) is list and all(isinstance(one, _SCALARS) for one in each):
                key.append(repr(each))
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


class KeptProduct:
    """Compute and count products of one form."""

    def __init__(self, computation: Computation, numbers: tuple[int, int, int]) -> None:
        _, self.line, out, shape, self._fixed, self._filled = computation
        self._a, self._b, self._addend = numbers
        self._result = _without_memory(shape, torch.empty(shape, device="meta").stride(), out)
        self._is_emulated = self.line.status == EMULATED

    def compute(self, run: Emulation, tally: Tally, args: tuple[Any, ...]) -> Tensor | None:
        """Compute a call; return None where numbers are out of reach."""
        result = torch.empty_like(self._result)
        added = 0 if self._addend < 0 else args[self._addend].data_ptr()
        if not is_default() or not self._fixed(args[self._a].data_ptr(), args[self._b].data_ptr(), result.data_ptr(), None, added):  # type: ignore[misc]
            return None
        if run.guess:
            run.done(self.line)
        else:
            tally.count(self, run.report)
            if not self._is_emulated:
                run.warn(self.line)
        return result.add_(0.0) if self._filled else result


def kept_product(computation: Computation, operands: tuple[Tensor | None, ...], args: tuple[Any, ...]) -> KeptProduct | None:
    """Return what computes calls of a form, given the product that one of them was; None where its operands are not the call's.

    The last tensor is to be an operand: by its dtype torch's settings were looked up.
    """
    numbers = places_of(args)
    a, b, addend = (-1 if each is None else numbers.get(id(each)) for each in operands)
    last = [each for each in args if isinstance(each, Tensor)][-1]
    if computation.fixed is None or a is None or b is None or addend is None or last is not operands[1]:
        return None
    return KeptProduct(computation, (a, b, addend))


class KeptFunction:
    """Compute and count calls of one form of a function of each element, or of rows."""

    def __init__(self, placed: Placed | PlacedRows, line: Line) -> None:
        self._placed, self.line = placed, line
        self._result = _without_memory(placed.shape, placed.stride, placed.dtype)

    def compute(self, run: Emulation, tally: Tally, args: tuple[Any, ...]) -> Tensor | None:
        """Compute a call; return None where products are only assumed, or the order of additions is not known."""
        if run.guess or not is_default():
            return None
        result = self._placed.compute(args, torch.empty_like(self._result), run.settings.threads)
        if result is not None:
            tally.count(self, run.report)
        return result


class KeptRow:
    """Compute and count calls of one form of a sum, or of what contains one."""

    def __init__(self, found: Reduced | PlacedNorm | PlacedSum, line: Line) -> None:
        self._found, self.line = found, line

    def compute(self, run: Emulation, tally: Tally, args: tuple[Any, ...]) -> Any:
        """Compute a call; return None where products are only assumed, or the order of additions is not known."""
        if run.guess or autocast.is_on() or not is_default():
            return None
        result = self._found.compute(args, run.settings.threads)
        if result is not None:
            tally.count(self, run.report)
        return result


def kept_function(kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], line: Line) -> KeptFunction | KeptRow | None:
    """Return what computes calls like one that was computed, and has a line in the report; None where nothing does so at once."""
    placed = place(func, args, kwargs)
    if placed is not None:
        return KeptFunction(placed, line)
    reduced = None if kind.other in _SETTLED else reduction(func, args, kwargs)
    return None if reduced is None else KeptRow(reduced, line)


def _without_memory(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Make a tensor that only tells how results lie: `empty_like` reads it sooner than shapes and strides."""
    found = torch.empty_strided(shape, stride, dtype=dtype)
    found.untyped_storage().resize_(0)
    return found
