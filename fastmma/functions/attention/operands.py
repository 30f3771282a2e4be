"""Operands of attention: queries, keys and values of all heads one after the other, and what their shapes say."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError, OperandTypeError

Floats = NDArray[np.float32]
Array = NDArray[Any]

HALVES = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
EVERY = (*HALVES, np.dtype(np.float32))
_ALIGNED = 8  # elements to which torch pads head dimensions
_LOG2E = float.fromhex("0x1.71547652b82fep+0")


class Heads(NamedTuple):
    """Queries, keys and values as (head of all batches, length, head dimension), and the scale of scores."""

    q: Array
    k: Array
    v: Array
    scale: np.float32

    @property
    def scale_log2(self) -> np.float32:
        """The scale for exponentials to base 2, as the host rounds it."""
        return np.float32(float(self.scale) * _LOG2E)


def flatten(array: Array) -> Array:
    """Take the heads of all batches as one dimension."""
    return array.reshape(-1, *array.shape[2:])


def _share(array: Array, heads: int) -> Array:
    return flatten(np.repeat(array, heads // array.shape[1], 1) if array.shape[1] != heads else array)


def heads_of(where: str, q: Array, k: Array, v: Array, scale: float | None, dtypes: tuple[np.dtype[Any], ...]) -> Heads:
    """Check operands (batch, heads, length, head dimension), and lay out their heads; keys and values may have fewer.

    Raises
    ------
    OperandError, OperandTypeError
    """
    if q.dtype not in dtypes or {k.dtype, v.dtype} != {q.dtype}:
        raise OperandTypeError(f"{where}: operands are all of {' or '.join(map(str, dtypes))}, not {q.dtype}, {k.dtype} and {v.dtype}")
    fits = q.ndim == k.ndim == v.ndim == 4 and k.shape[:3] == v.shape[:3] and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not fits or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise OperandError(f"{where}: queries {q.shape}, keys {k.shape} and values {v.shape} do not go together")
    if q.shape[3] % _ALIGNED or v.shape[3] % _ALIGNED or 0 in (*q.shape, *k.shape, *v.shape):
        raise OperandError(f"{where}: head dimensions are multiples of {_ALIGNED}, which torch pads to, and nothing is empty")
    factor = np.float32(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    return Heads(flatten(q), _share(k, q.shape[1]), _share(v, q.shape[1]), factor)


def see(queries: int, start: int, stop: int, offset: int | None) -> NDArray[np.int64]:
    """Count the keys from `start` to `stop` that each query sees: all, or with an offset those up to its own place plus that."""
    whole = np.full(queries, stop - start, np.int64)
    return whole if offset is None else np.clip(np.arange(queries) + (1 + offset - start), 0, stop - start)
