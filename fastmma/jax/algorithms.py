"""JAX's precisions and dot algorithms on tensor cores, as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.targets import architecture

FP8 = ("float8_e4m3fn", "float8_e5m2")
_PROMOTION = 128  # k, of cuBLAS on Hopper without fast accumulation


@dataclass(frozen=True)
class Algorithm:
    """The way in which operands are multiplied.

    Attributes
    ----------
    takes : tuple of str
        The dtypes that operands may have.
    operand : str
        The dtype that they are rounded to first; empty: their own.
    accumulator : str
        The format of the sums; empty: the widest.
    promoted : bool
        Whether Hopper's sums of fp8 are promoted to f32.
    tf32 : bool
        Whether float32 is multiplied as tf32, to which it is rounded, ties away from zero.
    """

    takes: tuple[str, ...]
    operand: str = ""
    accumulator: str = ""
    promoted: bool = False
    tf32: bool = False


_TF32 = Algorithm(("float32",), tf32=True)
_F8 = Algorithm(FP8)
_F8_PROMOTED = Algorithm(FP8, promoted=True)
# by the name of a jax.lax.DotAlgorithmPreset; what is missing is no single product of tensor cores, or is not known
_PRESETS = {
    "TF32_TF32_F32": _TF32,
    "BF16_BF16_F32": Algorithm(("float32", "bfloat16"), "bfloat16"),
    "F16_F16_F32": Algorithm(("float32", "float16"), "float16"),
    "F16_F16_F16": Algorithm(("float32", "float16"), "float16", accumulator="f16"),
    "ANY_F8_ANY_F8_F32": _F8_PROMOTED,
    "ANY_F8_ANY_F8_F32_FAST_ACCUM": _F8,
    "ANY_F8_ANY_F8_ANY": _F8_PROMOTED,
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM": _F8,
}
# without one: by the dtype of the operands
_DEFAULTS = {
    "bfloat16": Algorithm(("bfloat16",)),
    "float16": Algorithm(("float16",)),
    **dict.fromkeys(FP8, _F8),
    "int8": Algorithm(("int8",)),
    "uint8": Algorithm(("uint8",)),
}


def algorithm_of(precision: Any, lhs: np.dtype[Any], rhs: np.dtype[Any], f32: str | None) -> Algorithm:
    """The algorithm of a product.

    Parameters
    ----------
    precision : as ``jax.lax.dot_general`` canonicalises it
    lhs, rhs : dtype
    f32 : {"tf32", None}

    Raises
    ------
    NotEmulatedError
        If no tensor core computes it so.
    """
    both = precision if isinstance(precision, tuple) else (precision, precision)
    first, second = both
    if first != second:
        raise NotEmulatedError(f"operands of different precisions, {first} and {second}, are no product of tensor cores that is known")
    names = lhs.name, rhs.name
    if isinstance(first, jax.lax.DotAlgorithmPreset) and first.name != "DEFAULT":
        found = _PRESETS.get(first.name)
        if found is None:
            raise NotEmulatedError(f"the algorithm {first.name} is no single product of tensor cores, or not known")
    elif isinstance(first, jax.lax.DotAlgorithm):
        raise NotEmulatedError("a DotAlgorithm of one's own is not known: take a DotAlgorithmPreset")
    elif names == ("float32", "float32"):
        if first in (jax.lax.Precision.HIGH, jax.lax.Precision.HIGHEST):
            raise NotEmulatedError(f"float32 with {first} is no single product of tensor cores")
        if f32 is None:
            raise NotEmulatedError("float32 is multiplied by tensor cores as tf32 only: name f32='tf32' or an algorithm")
        found = _TF32
    else:
        found = _DEFAULTS.get(names[0])
    if found is None or any(name not in found.takes for name in names):
        raise NotEmulatedError(f"{names[0]} times {names[1]} is no product of tensor cores that is known")
    if names[0] != names[1] and names[0] not in FP8:
        raise NotEmulatedError(f"{names[0]} times {names[1]} is not known")
    return found


def kernel_precision(precision: Any, operand: Any, out: Any) -> Any:
    """Return the precision of a product as Pallas gives it to Triton: float32 as tf32 unless it is the highest, float16 with sums in it.

    Parameters
    ----------
    precision : as ``jax.lax.dot_general`` canonicalises it
    operand, out : anything with a dtype
    """
    both = precision if isinstance(precision, tuple) else (precision, precision)
    if any(isinstance(each, jax.lax.DotAlgorithm) or getattr(each, "name", "") not in ("", "DEFAULT", "HIGH") for each in both):
        return precision
    return jax.lax.DotAlgorithmPreset.F16_F16_F16 if operand.dtype == out.dtype == np.float16 else None


def common_dtype(lhs: np.dtype[Any], rhs: np.dtype[Any], out: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype to which JAX converts operands of two dtypes before it multiplies them: that of the result.

    None where both have one dtype, or one is no float32, bfloat16 or float16.

    Examples
    --------
    >>> common_dtype(np.dtype("float32"), np.dtype("bfloat16"), np.dtype("float32"))
    dtype('float32')
    """
    return out if lhs != rhs and {lhs.name, rhs.name, out.name} <= {"float32", "bfloat16", "float16"} else None


def operand_dtype(algorithm: Algorithm, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that an operand is multiplied in."""
    return np.dtype(getattr(ml_dtypes, algorithm.operand, algorithm.operand)) if algorithm.operand else dtype


def promotion(algorithm: Algorithm, target: str) -> int | None:
    """k between promotions."""
    return _PROMOTION if algorithm.promoted and architecture(target) == "sm_90" else None
