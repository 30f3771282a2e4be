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
LOG2E = np.float32(float.fromhex("0x1.7154760000000p+0"))
LN2 = np.float32(float.fromhex("0x1.62e4300000000p-1"))
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
        raise OperandTypeError(f"{where}: operands must all be {' or '.join(map(str, dtypes))}, not {q.dtype}, {k.dtype} and {v.dtype}")
    fits = q.ndim == k.ndim == v.ndim == 4 and k.shape[:3] == v.shape[:3] and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not fits or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise OperandError(f"{where}: queries {q.shape}, keys {k.shape} and values {v.shape} do not go together")
    if q.shape[3] % _ALIGNED or v.shape[3] % _ALIGNED or 0 in (*q.shape, *k.shape, *v.shape):
        raise OperandError(f"{where}: head dimensions are multiples of {_ALIGNED}, which torch pads to, and nothing is empty")
    factor = np.float32(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    return Heads(flatten(q), _share(k, q.shape[1]), _share(v, q.shape[1]), factor)


def read_bias(where: str, bias: Array | None, q: Array, keys: int) -> Floats | None:
    """Lay out a bias that is added to scores as float32 (head, query, key), or of one head for all.

    Raises
    ------
    OperandError
    """
    if bias is None:
        return None
    shape = (*q.shape[:3], keys)
    if bias.dtype != q.dtype or bias.ndim > len(shape) or np.broadcast_shapes(bias.shape, shape) != shape:
        raise OperandError(f"{where}: a bias is of {q.dtype} and {shape}, or what broadcasts to it, not of {bias.dtype} and {bias.shape}")
    shared = all(size == 1 for size in bias.shape[:-2])
    whole = np.broadcast_to(bias.reshape(bias.shape[-2:]), shape[2:])[None] if shared else flatten(np.broadcast_to(bias, shape))
    return whole.astype(np.float32)


def check_gradient(where: str, grad_out: Array, q: Array, v: Array, out: Array, logsumexp: Floats) -> None:
    """Check what a backward pass is given beside the operands.

    Raises
    ------
    OperandError
    """
    shape = (*q.shape[:3], v.shape[3])
    if not grad_out.shape == out.shape == shape or logsumexp.shape != q.shape[:3]:
        raise OperandError(f"{where}: grad_out {grad_out.shape}, out {out.shape} and logsumexp {logsumexp.shape} do not fit {shape}")


def see(queries: int, start: int, stop: int, offset: int | None) -> NDArray[np.int64]:
    """Count the keys from `start` to `stop` that each query sees: all, or with an offset those up to its own place plus that."""
    whole = np.full(queries, stop - start, np.int64)
    return whole if offset is None else np.clip(np.arange(queries) + (1 + offset - start), 0, stop - start)


def hide(queries: int, start: int, stop: int, offset: int | None) -> NDArray[np.bool_]:
    """Tell which keys from `start` to `stop` each query does not see: (query, key)."""
    return np.arange(stop - start) >= see(queries, start, stop, offset)[:, None]
