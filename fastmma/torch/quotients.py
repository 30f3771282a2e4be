"""By operator of torch that divides, the formula that its CUDA kernel computes of each element."""

from __future__ import annotations

from torch import Tensor

from fastmma.torch.formulas import BITS, Arguments, Formula, Row, as_operand, pair

_EXACT, _DOWN, _TOWARD_ZERO = None, "floor", "trunc"
# by how a quotient is rounded: the formula of two tensors, and that of a tensor and a number
_NAMES = {
    _EXACT: ("divide", "divide_by"),
    _DOWN: ("floor_divide", "floor_divide_by"),
    _TOWARD_ZERO: ("truncated_divide", "truncated_divide_by"),
}


def _quotient(given: Arguments, rounding: str | None) -> Formula:
    """Divide; by a number, multiply by its inverse."""
    first, second = given["self"], given["other"]
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
