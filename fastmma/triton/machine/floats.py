"""Floats, by the opcodes of PTX: one rounding each, approximations as the special function unit has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions import special
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.machine.values import PAIRS, join_pairs, split_pairs
from fastmma.triton.numbers import fused, take_extremum

Array = NDArray[Any]
_TINY = np.float32(float.fromhex("0x1p-126"))
_NORMAL = {np.dtype(np.float32): _TINY, np.dtype(np.float16): np.float16(float.fromhex("0x1p-14"))}


def flush(x: Array) -> Array:
    """Return numbers of f32 or f16, with those below the normal ones as zeros."""
    small = np.abs(x) < _NORMAL[x.dtype]
    return np.asarray(np.where(small, np.copysign(x.dtype.type(0), x), x)) if small.any() else x


def saturate(x: Array) -> Array:
    """Return numbers from 0 to 1: a zero is positive, and stands for NaN."""
    return np.asarray(np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))).astype(x.dtype)


def _wide(x: Array) -> Array:
    return x if x.dtype.itemsize > 2 else x.astype(np.float32)


def _narrow(x: Array, dtype: np.dtype[Any]) -> Array:
    return x if x.dtype == dtype else x.astype(dtype)


def _by_way_of_f32(function: Callable[..., Array]) -> Callable[..., Array]:
    def computed(*values: Array) -> Array:
        return _narrow(function(*map(_wide, values)), values[0].dtype)

    return computed


def compare_ordered(name: str, x: Array, y: Array) -> Array:
    """Compare floats: by names with a u, also true where one is NaN."""
    x, y = _wide(x), _wide(y)
    if name in ("num", "nan"):
        return np.isnan(x) | np.isnan(y) if name == "nan" else ~(np.isnan(x) | np.isnan(y))
    found: Array = _ORDERED[name.removesuffix("u")](x, y)
    if name == "ne":
        return found & ~(np.isnan(x) | np.isnan(y))
    return found | np.isnan(x) | np.isnan(y) if name.endswith("u") else found


_ORDERED = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def negate(x: Array) -> Array:
    """Change the sign bit."""
    kind = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(x.view(kind) ^ kind.type(1 << (8 * x.dtype.itemsize - 1))).view(x.dtype)


def magnitude(x: Array) -> Array:
    """Clear the sign bit."""
    kind = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(x.view(kind) & kind.type((1 << (8 * x.dtype.itemsize - 1)) - 1)).view(x.dtype)


def copy_sign(x: Array, y: Array) -> Array:
    """Return the second number with the sign of the first, as ``copysign`` does."""
    return np.where(np.signbit(x) != np.signbit(y), negate(y), y)


def _extremum(*values: Array, largest: bool, keeps_nan: bool) -> Array:
    return reduce(partial(take_extremum, largest=largest, keeps_nan=keeps_nan), values)


def join_signs(function: Callable[..., Array], x: Array, y: Array) -> Array:
    """Apply a function to magnitudes, and give the result the sign of a product, ``.xorsign.abs``."""
    result = function(magnitude(x), magnitude(y))
    return np.where(np.signbit(x) != np.signbit(y), negate(result), result)


def _unit(name: str) -> Callable[[Array], Array]:
    def computed(x: Array) -> Array:
        return np.asarray(kernels.functions.apply.apply(name, np.ascontiguousarray(x)))

    return computed


def _of_pairs(function: Callable[[Array], Array], kind: str) -> Callable[[Array], Array]:
    return lambda x: join_pairs(function(split_pairs(x, PAIRS[kind])))


def _flushed(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: flush(function(flush(x)))


def factorise_fully(x: Array, y: Array, constant: float | None = None) -> tuple[Array, Array]:
    """Return the factors of which a quotient of ``div.full.f32`` is the product."""
    x, y = np.broadcast_arrays(x, y)
    return special.factorise(x, y, constant=constant)


def factorise_approximately(x: Array, y: Array, constant: float | None = None) -> tuple[Array, Array]:
    """Return the factors of which a quotient of ``div.approx.f32`` is the product."""
    if constant is not None:
        return factorise_fully(x, y, constant)
    x, y = np.broadcast_arrays(x, y)
    scale = np.where(np.abs(y) < _TINY, np.float32(2.0**24), np.float32(1))
    return x * scale, special.rcp(y * scale)


def divide_flushed(x: Array, y: Array) -> Array:
    """Compute ``div.approx.ftz.f32``, of which libdevice makes ``fast_dividef``."""
    x, y = np.broadcast_arrays(x, y)
    return canonicalise_nan(flush(flush(x) * special.rcp(y)))


QUOTIENTS = {"div.full.f32": factorise_fully, "div.approx.f32": factorise_approximately}
ADDITIONS: Mapping[str, Callable[..., Array]] = {"add": _by_way_of_f32(np.add), "sub": _by_way_of_f32(np.subtract)}
multiply = _by_way_of_f32(np.multiply)
UNIT: dict[str, Callable[..., Array]] = {
    f"{name}.approx{ftz}.f32": _unit(f"{name}.approx{ftz}.f32")
    for name in ("ex2", "lg2", "rsqrt", "sqrt", "rcp")
    for ftz in ("", ".ftz")
    if (name, ftz) != ("rcp", "")
} | {f"{name}.approx.f32": _unit(f"{name}.approx.f32") for name in ("sin", "cos", "tanh")}
UNIT |= {f"{name}.approx.ftz.f32": _flushed(UNIT[f"{name}.approx.f32"]) for name in ("sin", "cos")}
_OF_HALVES = {
    "ex2.approx.f16": special.ex2_of_halves,
    "ex2.approx.ftz.bf16": special.ex2_of_halves,
    "tanh.approx.f16": special.tanh_of_halves,
    "tanh.approx.bf16": special.tanh_of_halves,
}
UNIT |= _OF_HALVES
UNIT |= {f"{name}x2": _of_pairs(function, f"{name.rpartition('.')[2]}x2") for name, function in _OF_HALVES.items()}
UNIT["div.approx.ftz.f32"] = divide_flushed
# IEEE 754 fixes these: by name and rounding
EXACT: Mapping[str, Callable[..., Array]] = {
    "fma": fused,
    "sqrt": np.sqrt,
    "div": np.divide,
    "rcp": lambda x: x.dtype.type(1) / x,
}
SIGNS: Mapping[str, Callable[..., Array]] = {"neg": negate, "abs": magnitude}
EXTREMA: Mapping[str, Callable[..., Array]] = {name: partial(_extremum, largest=name == "max") for name in ("max", "min")}
TESTS: Mapping[str, Callable[[Array], Array]] = {  # of testp
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & ((np.abs(x) >= np.finfo(x.dtype).tiny) | (x == 0)),
    "subnormal": lambda x: (np.abs(x) < np.finfo(x.dtype).tiny) & (x != 0),
}
