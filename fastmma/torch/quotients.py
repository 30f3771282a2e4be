"""By operator of torch that divides, the formula that its CUDA kernel computes of each element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastmma.torch.conditions import HALVES
from fastmma.torch.formulas import BITS, Arguments, Formula, Row, as_operand, pair

_EXACT, _DOWN, _TOWARD_ZERO = None, "floor", "trunc"
_LARGE = 2048.0
# by how a quotient is rounded: the formula of two tensors, and that of a tensor and a number
_NAMES = {
    _EXACT: ("divide", "divide_by"),
    _DOWN: ("floor_divide", "floor_divide_by"),
    _TOWARD_ZERO: ("truncated_divide", "truncated_divide_by"),
}


def _is_number(first: Any, second: Tensor) -> bool:
    """Tell whether a number is divided by 16-bit numbers."""
    return second.dtype in HALVES and second.dim() > 0 and not (isinstance(first, Tensor) and first.dim())


def _are_large(first: Any, second: Tensor) -> bool:
    """Tell whether quotients of float16 numbers are so large that their format lacks some whole numbers."""
    if second.dtype is not torch.float16 or not isinstance(first, Tensor):
        return False
    quotients = (first.float() / second.float()).abs()
    return bool(((quotients >= _LARGE) & first.isfinite() & (second != 0)).any())


def _quotient(given: Arguments, rounding: str | None) -> Formula | None:
    """Divide; by a number, multiply by its inverse. How a GPU rounds large quotients of float16, or of a number, down is not known."""
    first, second = given["self"], given["other"]
    if rounding == _DOWN and isinstance(second, Tensor) and (_is_number(first, second) or _are_large(first, second)):
        return None
    of_tensors, by_number = _NAMES[rounding]
    if not isinstance(second, Tensor):
        return Formula(by_number, (first,), (float(second), *((BITS[first.dtype],) if rounding == _DOWN else ())))
    bits = (BITS[second.dtype],) if rounding == _TOWARD_ZERO else ()
    return Formula(of_tensors, (as_operand(first, second), second), bits)


ROWS: dict[str, Row] = {
    "div": lambda given: _quotient(given, given.get("rounding_mode")),
    "floor_divide": lambda given: _quotient(given, _DOWN),
    "fmod": pair("fmodf"),
    "remainder": pair("remainder"),
}
