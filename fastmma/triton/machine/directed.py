"""Operations on f32 that round toward zero, down or up, by PTX's names of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.numbers import find_lost, fused, join_lost, round_in_direction

Array = NDArray[Any]
DIRECTIONS = ("rz", "rm", "rp")
_ZERO = np.zeros((), np.float64)


def _wide(*values: Array) -> list[Array]:
    return [one.astype(np.float64) for one in np.broadcast_arrays(*values)]


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    x, y = _wide(x, y)
    total = x + y
    return total, find_lost(x, y, total)


def _quotient(x: Array, y: Array) -> tuple[Array, Array]:
    x, y = _wide(x, y)
    found = x / y
    return found, np.where(y < 0, -1.0, 1.0) * fused(-found, y, x)


def _root(x: Array) -> tuple[Array, Array]:
    (wide,) = _wide(x)
    found = np.sqrt(wide)
    return found, fused(-found, found, wide)


def _product(x: Array, y: Array) -> Array:
    x, y = _wide(x, y)
    return x * y  # exact


# by name: the result in f64 and what its rounding lost, or the sign of that
_EXACT: Mapping[str, Callable[..., tuple[Array, Array]]] = {
    "add": _sum,
    "sub": lambda x, y: _sum(x, -y),
    "mul": lambda x, y: (_product(x, y), _ZERO),
    "fma": lambda x, y, z: _sum(_product(x, y), z),
    "div": _quotient,
    "rcp": lambda x: _quotient(np.ones_like(x), x),
    "sqrt": _root,
}
_SUMS = ("add", "sub", "fma")


def _terms(name: str, values: tuple[Array, ...]) -> tuple[Array, Array]:
    """Return the two terms of a sum."""
    if name == "fma":
        return _product(values[0], values[1]), values[2]
    return values[0], values[1] if name == "add" else -values[1]


def direct(name: str, direction: str) -> Callable[..., Array] | None:
    """Return what computes an operation on f32 with one rounding in a direction; None where there is no such operation.

    A sum that is exactly zero is -0 under ``"rm"``, unless both of its terms are +0.

    Examples
    --------
    >>> one = np.float32([1]), np.float32([2.0**-30])
    >>> [direct("sub", direction)(*one).tolist() for direction in DIRECTIONS]
    [[0.9999999403953552], [0.9999999403953552], [1.0]]
    """
    exact = _EXACT.get(name)
    if exact is None:
        return None

    def computed(*values: Array) -> Array:
        total, lost = exact(*values)
        result = round_in_direction(join_lost(total, np.where(np.isfinite(lost), lost, 0.0)), "f32", direction)
        if direction == "rm" and name in _SUMS:
            first, second = _terms(name, values)
            positive = ~np.signbit(first) & ~np.signbit(second)
            result = np.where((total == 0) & ~positive, np.float32(-0.0), result)
        return result

    return computed
