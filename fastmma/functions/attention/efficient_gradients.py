"""Memory-efficient attention, backward: ``fmha_cutlassB`` of torch 2.11, kernels of xFormers for compute capability 8.0.

A block of threads has a block of keys and takes the blocks of queries in turn, each block of threads from another one on.
Probabilities are rounded to the operands' type before they weigh what the output's gradient gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import round_to
from fastmma.functions.attention.blocks import Efficient, count_key_splits, efficient_sizes
from fastmma.functions.attention.dropout import Dropout, keep_by_places
from fastmma.functions.attention.efficient_forward import drop_scale
from fastmma.functions.attention.operands import EVERY, Array, Floats, Heads, check_gradient, flatten, heads_of, read_bias, see
from fastmma.functions.attention.products import multiply_rows, multiply_tiles
from fastmma.functions.attention.row_sums import add_in_pairs
from fastmma.functions.attention.turns import first_query, order_keys, start_of
from fastmma.functions.reduce import reduce_sum
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import default_floats


class Results(NamedTuple):
    """The output's gradient, the output, and the logarithms of the sums of exponentials."""

    grad_out: Array
    out: Array
    logsumexp: Floats


class Given(NamedTuple):
    """Operands that all blocks of keys read, the output's gradient, and what is known of each query."""

    operands: Heads
    grad_out: Array
    logs: Floats
    delta: Floats  # sums of products of the output and its gradient
    bias: Floats | None
    kept: Array | None
    drop_scale: np.float32
    causal: bool


@np.errstate(all="ignore")
@default_floats
def efficient_backward(
    grad_out: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Floats,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: Dropout | None = None,
    deterministic: bool = False,
) -> tuple[Array, Array, Array]:
    """Compute ``aten::_scaled_dot_product_efficient_attention_backward``: the gradients of queries, keys and values.

    The gradient of the queries is added up in the order in which blocks of keys reach a block of queries if all take equally long.
    `efficient_repeats` tells where a GPU may add in another order.

    Parameters
    ----------
    grad_out : array
        The gradient of the output.
    q, k, v, bias : array
        As in `efficient`.
    out, logsumexp : array
        The results of `efficient`.
    causal, scale, dropout
        As in `efficient`.
    deterministic : bool
        ``torch.use_deterministic_algorithms(True)`` is set: one block of threads takes all keys.

    Returns
    -------
    dq, dk, dv : array
        In the shapes of q, k and v.

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import numpy as np
    >>> from fastmma.functions.attention import efficient
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    >>> dq, dk, dv = efficient_backward(q, q, k, v, *efficient(q, k, v))  # doctest: +SKIP
    >>> float(dv[0, 0, 0, 0])  # doctest: +SKIP
    0.1690673828125
    """
    given, sizes = _read(Results(grad_out, out, logsumexp), (q, k, v), bias, causal, scale, dropout)
    operands, gradient = given.operands, given.grad_out
    heads, queries, dimension = operands.q.shape
    keys = k.shape[2]
    splits = 1 if deterministic else count_key_splits(keys, heads, sizes)
    dk, dv = np.zeros_like(operands.k), np.zeros_like(operands.v)
    slopes: list[Array] = []
    for index, start in enumerate(range(0, keys, sizes.backward_keys)):
        part = slice(start, min(start + sizes.backward_keys, keys))
        p, ds = _weigh(given, part)
        ds = (ds * operands.scale).astype(q.dtype)
        slopes.append(ds)
        first = first_query(start, queries, sizes.backward_queries, causal=causal)
        turn = first + start_of(index, splits, queries, sizes.backward_queries, causal=causal)
        starts = [*range(turn, queries, sizes.backward_queries), *range(first, min(turn, queries), sizes.backward_queries)]
        dv[:, part] = round_to(_add_queries(p, gradient, starts, sizes), q.dtype)
        dk[:, part] = round_to(_add_queries(ds.transpose(0, 2, 1), operands.q, starts, sizes), q.dtype)
    dq = np.empty(operands.q.shape, np.float32)
    blocks = sizes.backward_queries, sizes.backward_keys
    for query in range(0, queries, blocks[0]):
        rows = slice(query, query + blocks[0])
        total = np.zeros((heads, min(blocks[0], queries - query), dimension), np.float32)
        for _, _, index in order_keys(query, queries, keys, splits, blocks, causal=causal):
            total = multiply_tiles(slopes[index][:, rows], operands.k[:, index * blocks[1] : (index + 1) * blocks[1]], total)
        dq[:, rows] = total
    return round_to(dq, q.dtype).reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


@np.errstate(all="ignore")
@default_floats
def efficient_bias_gradient(
    grad_out: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Floats,
    *,
    bias: Array,
    causal: bool = False,
    scale: float | None = None,
    dropout: Dropout | None = None,
) -> Array:
    """Compute the gradient of the bias by ``aten::_scaled_dot_product_efficient_attention_backward``.

    Parameters
    ----------
    grad_out, q, k, v, out, logsumexp, bias, causal, scale, dropout
        As in `efficient_backward`.

    Returns
    -------
    array (batch, heads, queries, keys)

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import numpy as np
    >>> from fastmma.functions.attention import efficient
    >>> q = k = v = bias = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    >>> efficient_bias_gradient(q, q, k, v, *efficient(q, k, v, bias=bias), bias=bias).shape  # doctest: +SKIP
    (1, 1, 8, 8)
    """
    given, _ = _read(Results(grad_out, out, logsumexp), (q, k, v), bias, causal, scale, dropout)
    _, slopes = _weigh(given, slice(0, k.shape[2]))
    return round_to(slopes, q.dtype).reshape(*q.shape[:3], k.shape[2])


def _read(
    results: Results,
    given: tuple[Array, Array, Array],
    bias: Array | None,
    causal: bool,
    scale: float | None,
    dropout: Dropout | None,
) -> tuple[Given, Efficient]:
    """Check and lay out what is given, and find the sizes of the kernel."""
    q, k, v = given
    grad_out, out, logsumexp = results
    operands = heads_of("efficient_backward", q, k, v, scale, EVERY)
    check_gradient("efficient_backward", grad_out, q, v, out, logsumexp)
    if k.shape[1] != q.shape[1]:
        raise OperandError(f"efficient_backward: keys have {k.shape[1]} heads, and queries {q.shape[1]}")
    heads, queries, dimension = operands.q.shape
    keys = k.shape[2]
    sizes = efficient_sizes(8 * q.dtype.itemsize, max(dimension, v.shape[3]))
    gradient, result = flatten(grad_out), flatten(out)
    single = q.dtype == np.float32  # whose sums torch's reduction kernel computes
    delta = reduce_sum(np.ascontiguousarray(gradient * result), 2) if single else add_in_pairs(gradient, result, sizes.backward_keys)
    kept = None if dropout is None else keep_by_places(dropout, heads, queries, keys)
    factor = np.float32(1) if dropout is None else drop_scale(dropout)
    added = read_bias("efficient_backward", bias, q, keys)
    logs = flatten(logsumexp)
    logs = np.where(np.isneginf(logs), np.float32(np.inf), logs)  # queries that see no key have no weights
    return Given(operands, gradient, logs, delta, added, kept, factor, causal), sizes


def _weigh(given: Given, part: slice) -> tuple[Array, Floats]:
    """Return probabilities (head, key, query) of a block of keys, without those dropped, and gradients of scores (head, query, key)."""
    q, k, v, scale = given.operands
    scores = multiply_rows(k[:, part], q) * scale
    if given.bias is not None:
        scores += given.bias[..., part].transpose(0, 2, 1)
    visible = see(q.shape[1], part.start, part.stop, 0 if given.causal else None)
    scores[:, np.arange(part.stop - part.start)[:, None] >= visible] = -np.inf
    p = libdevice.call("expf", scores - given.logs[:, None]).astype(q.dtype)
    dp = multiply_rows(given.grad_out, v[:, part])
    weights = p.astype(np.float32).transpose(0, 2, 1)
    if given.kept is not None:
        chosen = np.where(given.kept[..., part], given.drop_scale, np.float32(0))
        dp *= chosen
        p = p * chosen.astype(q.dtype).transpose(0, 2, 1)
    return p, (dp - given.delta[..., None]) * weights


def _add_queries(weights: Array, rows: Array, starts: list[int], sizes: Efficient) -> Floats:
    """Multiply weights (head, key, query) by rows of queries, and add up blocks of these in the order of a kernel."""
    total = np.zeros((*weights.shape[:2], rows.shape[2]), np.float32)
    for start in starts:
        part = slice(start, start + sizes.backward_queries)
        if sizes.sums == "result":
            total = total + multiply_tiles(weights[..., part], rows[:, part])
        else:
            total = multiply_tiles(weights[..., part], rows[:, part], total)
    return total
