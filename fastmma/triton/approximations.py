"""The approximations of a GPU's special function unit: ex2, rcp, rsqrt and sqrt of f32, and what PTX builds on them.

For each mantissa that the unit looks at there is, in a table, by how many units in the last place its result differs from one computed in
f64 and rounded. The tables were recorded on an H100, exhaustively; the f64 values come from IEEE operations alone, and so are the same on
every machine.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RECORDED = (90,)  # compute capabilities
_BITS = 23  # of a fraction
_SIZE = 1 << _BITS
_TINY = np.float32(math.ldexp(1, -126))
_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
_LOG2E = np.uint32(0x3FB8AA3B).view(np.float32)


def _powers() -> NDArray[np.float64]:
    """2 to the fractions of so many bits."""
    result, root = np.ones(1), np.float64(2)
    for _ in range(_BITS):
        root = np.sqrt(root)
        result = np.stack([result, result * root], axis=-1).ravel()
    return result


@lru_cache(maxsize=4)
def _table(name: str) -> Floats:
    """Tabulate what the unit returns, by mantissa; of roots, by the lowest bit of the exponent and mantissa."""
    with files("fastmma.triton").joinpath("tables", "sm_90.npz").open("rb") as file, np.load(file) as archive:
        difference = archive[name]
    mantissas = 1 + np.arange(_SIZE) / _SIZE
    both = np.concatenate([mantissas, 2 * mantissas]) if name in ("rsqrt", "sqrt") else mantissas
    exactly = _powers() if name == "ex2" else {"rcp": 1 / both, "rsqrt": 1 / np.sqrt(both), "sqrt": np.sqrt(both)}[name]
    return np.asarray(exactly.astype(np.float32).view(np.int32) + difference).view(np.float32)


def _fields(x: Floats) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Exponent and fraction."""
    codes = x.view(np.int32)
    return (codes >> _BITS & 255) - 127, codes & (_SIZE - 1)


def _with_specials(x: Floats, result: NDArray[Any], zero: Any, infinity: Any, *, negative: bool = False) -> Floats:
    """The result, but for numbers too small to be normal (taken for zeros), infinities, negative numbers and NaN."""
    signed = np.where(np.abs(x) < _TINY, np.copysign(np.float32(zero), x), np.where(np.isinf(x), np.float32(infinity), result))
    invalid = np.isnan(x) | ((x <= -_TINY) if negative else False)
    return np.where(invalid, _NAN, signed).astype(np.float32)


def ex2(x: Floats, *, flush: bool) -> Floats:
    """``ex2.approx.f32``, with ``.ftz`` if results below the normal numbers are flushed to zero.

    The fraction of x has 23 bits; those of negative numbers are inverted, unless all are zero.

    Examples
    --------
    >>> import numpy as np
    >>> ex2(np.float32([0.5, -1, 0.3, -200]), flush=True).tolist()
    [1.4142135381698608, 0.5, 1.2311444282531738, 0.0]
    """
    low = np.zeros(x.shape, bool) if flush else x < -126
    bounded = np.clip(np.where(np.isnan(x), np.float32(0), np.where(low, x * np.float32(0.5), x)), -512, 512)
    steps = np.trunc(np.abs(bounded).astype(np.float64) * _SIZE).astype(np.int64)
    code = np.where(bounded < 0, np.where(steps & (_SIZE - 1), ~steps, -steps), steps)
    result = np.ldexp(_table("ex2")[code & (_SIZE - 1)], (code >> _BITS).astype(np.int32))
    result = np.where(low, result * result, np.where(flush & (result < _TINY), np.float32(0), result))
    return np.where(np.isnan(x), _NAN, result).astype(np.float32)


def exp(x: Floats) -> Floats:
    """Compute ``exp`` as Triton does: ``ex2.approx.f32`` of x times log2(e), rounded."""
    return ex2(x * _LOG2E, flush=False)


def rcp(x: Floats) -> Floats:
    """``rcp.approx.ftz.f32``."""
    exponent, fraction = _fields(x)
    result = np.copysign(np.ldexp(_table("rcp")[fraction], -exponent), x)
    flushed = np.where(np.abs(result) < _TINY, np.copysign(np.float32(0), x), result)
    return _with_specials(x, flushed, np.inf, np.copysign(np.float32(0), x))


def rsqrt(x: Floats) -> Floats:
    """``rsqrt.approx.ftz.f32``."""
    exponent, fraction = _fields(x)
    odd = exponent & 1
    return _with_specials(x, np.ldexp(_table("rsqrt")[fraction + (odd << _BITS)], (odd - exponent) >> 1), np.inf, 0, negative=True)


def sqrt(x: Floats) -> Floats:
    """``sqrt.approx.ftz.f32``."""
    exponent, fraction = _fields(x)
    odd = exponent & 1
    return _with_specials(x, np.ldexp(_table("sqrt")[fraction + (odd << _BITS)], (exponent - odd) >> 1), 0, np.inf, negative=True)


def factorise(x: Floats, y: Floats, *, constant: float | None = None) -> tuple[Floats, Floats]:
    """Return the factors of which ``div.full.f32`` is the product: x and the reciprocal of y.

    Both are scaled first where y is beyond 2^126 or below the normal numbers. The reciprocal of a constant is the compiler's, correctly
    rounded.
    """
    if constant is not None and _TINY <= abs(constant) <= np.float32(2.0**126):
        return x, np.full(x.shape, 1 / np.float64(np.float32(constant)), np.float32)
    scale = np.where(np.abs(y) > np.float32(2.0**126), np.float32(0.25), np.where(np.abs(y) < _TINY, np.float32(2.0**24), np.float32(1)))
    return x * scale, rcp(y * scale)


def divided(x: Floats, y: Floats, *, constant: float | None = None) -> Floats:
    """Divide as ``div.full.f32`` does; by a constant of the kernel, if one is given.

    Examples
    --------
    >>> import numpy as np
    >>> divided(np.float32([1, 1, 1e-40]), np.float32([3, 0, 1e-40])).tolist()
    [0.3333333432674408, inf, 1.0]
    """
    first, second = factorise(x, y, constant=constant)
    result = first * second
    return np.where(np.isnan(result), _NAN, result).astype(np.float32)
