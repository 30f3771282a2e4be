"""Approximations of a GPU's special function unit (ex2, lg2, rcp, rsqrt, sqrt; ex2 and tanh of 16 bits), and what PTX builds on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.host.float_mode import default_floats

Floats = NDArray[np.float32]

RECORDED = (90,)  # compute capabilities
_TINY = np.float32(math.ldexp(1, -126))
_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
_LOG2E = np.uint32(0x3FB8AA3B).view(np.float32)


def _apply(name: str, x: Floats) -> Floats:
    found: Floats = kernels.functions.apply.apply(name, x)
    return found


@default_floats
def ex2(x: Floats, *, flush: bool) -> Floats:
    """Compute ``ex2.approx.f32``, with ``.ftz`` if results below the normal numbers are flushed to zero.

    The fraction of x has 23 bits; those of negative numbers are inverted, unless all are zero.

    Examples
    --------
    >>> import numpy as np
    >>> ex2(np.float32([0.5, -1, 0.3, -200]), flush=True).tolist()
    [1.4142135381698608, 0.5, 1.2311444282531738, 0.0]
    """
    return _apply("ex2.approx.ftz.f32" if flush else "ex2.approx.f32", x)


@default_floats
def ex2_of_halves(x: NDArray[Any]) -> NDArray[Any]:
    """Compute ``ex2.approx.f16`` or ``ex2.approx.ftz.bf16``: the float32 result, truncated.

    Parameters
    ----------
    x : float16 or bfloat16 array

    Examples
    --------
    >>> import numpy as np
    >>> ex2_of_halves(np.float16([0.5, -1, 16])).tolist()
    [1.4140625, 0.5, inf]
    """
    return _cut(ex2(x.astype(np.float32), flush=x.dtype != np.float16), x.dtype)


@default_floats
def tanh_of_halves(x: NDArray[Any]) -> NDArray[Any]:
    """Compute ``tanh.approx.f16`` or ``tanh.approx.bf16``: the result of ``tanh.approx.f32``, truncated.

    Parameters
    ----------
    x : float16 or bfloat16 array

    Examples
    --------
    >>> import numpy as np
    >>> tanh_of_halves(np.float16([0.5, -1, 16])).tolist()
    [0.4619140625, -0.76123046875, 1.0]
    """
    return _cut(_apply("tanh.approx.f32", x.astype(np.float32)), x.dtype)


def _cut(wide: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Truncate to 16 bits."""
    if dtype != np.float16:
        return (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        found = wide.astype(np.float16)
        above = np.isfinite(found) & (np.abs(found.astype(np.float32)) > np.abs(wide))
    cut = np.where(above, np.nextafter(found, np.float16(0)), found)
    return np.where(np.isnan(cut), np.uint16(0x7FFF).view(np.float16), cut)


@default_floats
def lg2(x: Floats, *, flush: bool) -> Floats:
    """Compute ``lg2.approx.f32``, with ``.ftz`` if numbers below the normal ones are taken as zeros.

    Beyond the two octaves around 1, it is the sum of the exponent and of a logarithm in them, cut off.

    Examples
    --------
    >>> import numpy as np
    >>> lg2(np.float32([0.25, 1, 3, 1e-45]), flush=False).tolist()
    [-1.9999998807907104, 0.0, 1.5849624872207642, -149.0]
    """
    return _apply("lg2.approx.ftz.f32" if flush else "lg2.approx.f32", x)


@default_floats
def exp(x: Floats) -> Floats:
    """Compute ``exp`` as Triton does: ``ex2.approx.f32`` of x times log2(e), rounded."""
    return ex2(x * _LOG2E, flush=False)


@default_floats
def rcp(x: Floats) -> Floats:
    """Compute ``rcp.approx.ftz.f32``."""
    return _apply("rcp.approx.ftz.f32", x)


@default_floats
def rsqrt(x: Floats) -> Floats:
    """Compute ``rsqrt.approx.ftz.f32``."""
    return _apply("rsqrt.approx.ftz.f32", x)


@default_floats
def sqrt(x: Floats) -> Floats:
    """Compute ``sqrt.approx.ftz.f32``."""
    return _apply("sqrt.approx.ftz.f32", x)


@default_floats
def factorise(x: Floats, y: Floats, *, constant: float | None = None) -> tuple[Floats, Floats]:
    """Return the two factors that ``div.full.f32`` multiplies: x and the reciprocal of y.

    Both are scaled first where y is beyond 2^126 or below the normal numbers. The reciprocal of a constant is the compiler's, correctly
    rounded.
    """
    if constant is not None and _TINY <= abs(constant) <= np.float32(2.0**126):
        return x, np.full(x.shape, 1 / np.float64(np.float32(constant)), np.float32)
    scale = np.where(np.abs(y) > np.float32(2.0**126), np.float32(0.25), np.where(np.abs(y) < _TINY, np.float32(2.0**24), np.float32(1)))
    with np.errstate(all="ignore"):
        return x * scale, rcp(y * scale)


@default_floats
def divided(x: Floats, y: Floats, *, constant: float | None = None) -> Floats:
    """Divide as ``div.full.f32`` does; by a constant of the kernel, if one is given.

    Examples
    --------
    >>> import numpy as np
    >>> divided(np.float32([1, 1, 1e-40]), np.float32([3, 0, 1e-40])).tolist()
    [0.3333333432674408, inf, 1.0]
    """
    return multiplied(*factorise(x, y, constant=constant))


def multiplied(first: Floats, second: Floats) -> Floats:
    """Multiply the factors of a quotient."""
    with np.errstate(all="ignore"):
        result = first * second
    return np.where(np.isnan(result), _NAN, result).astype(np.float32)
