"""Quotients that are rounded to whole numbers, and remainders, as PyTorch's CUDA kernels compute them of each element.

All is computed in float32, but that numbers of 16 bits round a quotient to their format before it is cut off, or, where it is by a
number, after it was rounded down.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastmma.kernels.functions.expression import (
    WIDE,
    Formula,
    Value,
    call,
    choose,
    copy_sign,
    floor,
    narrow,
    rounded,
    scalar,
    truncate,
)


def _floor_quotient(a: Value, b: Value | float, quotient: Callable[[Value], Value], bits: float = WIDE) -> Value:
    rest = call("fmodf", a, b)
    below = b < 0.0 if isinstance(b, Value) else scalar(a, b) < 0.0
    alike = choose(below, 1.0, 0.0).equals(choose(rest < 0.0, 1.0, 0.0))
    exact = quotient(a - rest)
    whole = choose(rest.equals(0.0), exact, choose(alike, exact, exact - 1.0))
    low = rounded(floor(whole), bits)
    near = choose((whole - low) > 0.5, low + 1.0, low)
    result = choose(whole.equals(0.0), copy_sign(scalar(a, 0.0), quotient(a)), near)
    return choose(b.equals(0.0), a / b, result) if isinstance(b, Value) else result


def _inverse(divisor: float) -> float:
    """Divide 1 by a scalar, in float64, as kernels do that multiply by what they get."""
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.float64(1) / np.float64(divisor))


def _floor_divide_by(divisor: float, bits: float, x: Value) -> Value:
    inverse = _inverse(divisor)
    return _floor_quotient(x, divisor, lambda y: y * inverse, bits)


def _truncated_divide(bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    return truncate(a / b)


def _remainder(a: Value, b: Value) -> Value:
    rest = call("fmodf", a, b)
    alike = choose(rest < 0.0, 1.0, 0.0).equals(choose(b < 0.0, 1.0, 0.0))
    return choose(rest.equals(0.0), rest, choose(alike, rest, rest + b))


# by name: parameters first, then operands
QUOTIENTS: dict[str, Formula] = {
    "divide": lambda a, b: a / b,
    "divide_by": lambda divisor, x: x * _inverse(divisor),
    "floor_divide": lambda a, b: _floor_quotient(a, b, lambda y: y / b),
    "floor_divide_by": _floor_divide_by,
    "truncated_divide": _truncated_divide,
    "truncated_divide_by": lambda divisor, x: truncate(x * _inverse(divisor)),
    "remainder": _remainder,
}
