"""Memory-efficient attention, forward: ``fmha_cutlassF`` of torch 2.11, kernels of xFormers for compute capability 8.0.

Scores are scaled, a bias is added, and they are multiplied by log2(e), each rounded; `ex2.approx` of what they exceed the row's
maximum so far is a probability. Blocks of keys are taken in order. Products are of 8 k an instruction; float32 is multiplied in three
passes of tf32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import fuse, round_to
from fastmma.functions.attention.blocks import STORED_QUERIES, efficient_sizes
from fastmma.functions.attention.dropout import Dropout, keep_by_places
from fastmma.functions.attention.operands import EVERY, LOG2E, Array, Floats, heads_of, read_bias, see
from fastmma.functions.attention.products import multiply_rows, multiply_tiles
from fastmma.functions.attention.running import Running
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import default_floats
from fastmma.host.threads import thread_count

_ONE = np.float32(1)


def drop_scale(dropout: Dropout) -> np.float32:
    """Return what probabilities that are kept are multiplied by."""
    return np.float32(1.0 / (1.0 - float(np.float32(dropout.probability))))


@np.errstate(all="ignore")
@default_floats
def efficient(
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: Dropout | None = None,
    threads: int | None = None,
) -> tuple[Array, Floats]:
    """Compute ``aten::_scaled_dot_product_efficient_attention``: the output, and the logarithms of the sums of exponentials.

    Parameters
    ----------
    q, k, v : array
        float32, bfloat16 or float16 (batch, heads, length, head dimension), the last a multiple of 8.
    bias : array, optional
        Added to the scores; of the same dtype, and of a shape that broadcasts to (batch, heads, queries, keys).
    causal : bool
        A query sees keys up to its own place, counted from the start of both.
    scale : float, optional
        By default one over the square root of the head dimension.
    dropout : Dropout, optional
    threads : int, optional

    Returns
    -------
    out : array (batch, heads, length, head dimension of the values)
    logsumexp : float32 array (batch, heads, length)

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.eye(8, dtype=np.float32).reshape(1, 1, 8, 8)
    >>> efficient(q, k, v)[1].shape  # doctest: +SKIP
    (1, 1, 8)
    """
    from fastmma.kernels.functions import attention as kernels

    operands, threads = heads_of("efficient", q, k, v, scale, EVERY), thread_count(threads)
    if k.shape[1] != q.shape[1]:
        raise OperandError(f"efficient: keys have {k.shape[1]} heads, and queries {q.shape[1]}")
    heads, queries, dimension = operands.q.shape
    keys, wide = operands.v.shape[1:]
    sizes = efficient_sizes(8 * q.dtype.itemsize, max(dimension, wide))
    added = read_bias("efficient", bias, q, keys)
    weights = None
    if dropout is not None:
        weights = np.where(keep_by_places(dropout, heads, queries, keys), drop_scale(dropout), np.float32(0)).astype(q.dtype)
    running = Running(heads, queries)
    out = np.zeros((heads, queries, wide), np.float32)
    last = _last_blocks(queries, keys, sizes.keys, causal=causal)
    for start in range(0, keys, sizes.keys):
        part = slice(start, min(start + sizes.keys, keys))
        scores = multiply_rows(operands.q, operands.k[:, part]) * operands.scale
        if added is not None:
            scores += added[..., part]
        scores *= LOG2E
        visible = see(queries, part.start, part.stop, 0 if causal else None)
        exponentials, factors = running.take(scores, visible, _ONE, kernels.add_tiles, threads)
        p = exponentials.astype(q.dtype)
        if weights is not None:
            p = p * weights[..., part]
        if sizes.in_registers:
            out = multiply_tiles(p, operands.v[:, part], out * factors)
        else:
            out = _store(out, multiply_tiles(p, operands.v[:, part]), (factors, running.sums), start, last)
    if sizes.in_registers:
        out = out * _inverse(running.sums)
    logs = running.top / LOG2E + libdevice.call("logf", running.sums)
    return round_to(out, q.dtype).reshape(*q.shape[:3], wide), logs.reshape(q.shape[:3])


def _inverse(sums: Floats) -> Floats:
    inverse: Floats = np.reciprocal(np.where(sums == 0, _ONE, sums))
    return inverse[..., None]


def _last_blocks(queries: int, keys: int, columns: int, *, causal: bool) -> NDArray[np.int64]:
    """Return where the last block of keys begins that the block of a query visits."""
    places = np.arange(queries) // STORED_QUERIES * STORED_QUERIES + STORED_QUERIES
    seen = np.minimum(places, keys) if causal else np.full(queries, keys)
    return (seen - 1) // columns * columns


def _store(out: Floats, part: Floats, coefficients: tuple[Floats, Floats], start: int, last: NDArray[np.int64]) -> Floats:
    """Add a block's part to results in memory, brought to the new maximum; at the last block, divide both by the sums."""
    factors, inverse = coefficients[0], _inverse(coefficients[1])
    ending, going = (last == start)[:, None], (last >= start)[:, None]
    if start == 0:
        return np.where(ending, part * inverse, part)
    ended = fuse(inverse, part, inverse * factors * out)
    return np.where(going, np.where(ending, ended, fuse(out, factors, part)), out)
