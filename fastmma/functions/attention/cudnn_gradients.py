"""cuDNN's fused attention, backward: ``compute_dot_do_o``, ``sm90_flash_bprop_wgmma_f16`` and ``convert_dq_to_16bits`` of cuDNN 9.19.

A probability is `ex2.approx` of what the scaled score exceeds the logarithm of the sum by, one fused multiply-add, times log2(e). Gradients
of scores are multiplied by the scale before they are rounded to 16 bits. Those of keys and values are sums over all queries in order; a
block of threads has a block of keys, and adds to the gradient of the queries by atomics.
"""

from __future__ import annotations

import numpy as np

from fastmma.functions.arithmetic import flush, fuse, round_to
from fastmma.functions.attention.blocks import CUDNN_KEYS
from fastmma.functions.attention.cudnn_forward import check_sizes
from fastmma.functions.attention.dropout import Dropout, keep_by_tiles
from fastmma.functions.attention.flash_gradients import add_groups
from fastmma.functions.attention.operands import HALVES, LOG2E, Array, Floats, check_gradient, flatten, heads_of, hide, read_bias
from fastmma.functions.attention.products import multiply_warpgroup
from fastmma.functions.attention.row_sums import add_neighbours
from fastmma.functions.special import ex2
from fastmma.host.float_mode import default_floats


@np.errstate(all="ignore")
@default_floats
def cudnn_backward(
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
) -> tuple[Array, Array, Array]:
    """Compute ``aten::_scaled_dot_product_cudnn_attention_backward``: the gradients of queries, keys and values.

    With three or more blocks of keys, a GPU adds up the gradient of the queries in no fixed order (see `cudnn_repeats`); here it is the
    order of the keys. If values are infinite, the gradient of the queries differs from a GPU's.

    Parameters
    ----------
    grad_out : array
        The gradient of the output.
    q, k, v : array
        As in `cudnn`.
    out, logsumexp : array
        The results of `cudnn`.
    bias, causal, scale, dropout
        As in `cudnn`.

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
    >>> from fastmma.functions.attention.cudnn_forward import cudnn
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    >>> dq, dk, dv = cudnn_backward(q, q, k, v, *cudnn(q, k, v))
    >>> float(dv[0, 0, 0, 0])
    0.1690673828125
    """
    operands = heads_of("cudnn_backward", q, k, v, scale, HALVES)
    check_sizes("cudnn_backward", q, v, operands.scale)
    check_gradient("cudnn_backward", grad_out, q, v, out, logsumexp)
    added = read_bias("cudnn_backward", bias, q, k.shape[2])
    queries, keys = q.shape[2], k.shape[2]
    gradient = flatten(grad_out)
    logs = np.where(flatten(logsumexp) == -np.inf, np.float32(0), flatten(logsumexp))[..., None]
    kept = None if dropout is None else keep_by_tiles(dropout, len(operands.q), queries, keys)
    share = np.float32(1) if dropout is None else dropout.kept
    again = np.float32(1) / share
    delta = (add_neighbours(gradient, flatten(out)) * share)[..., None]
    dq = np.zeros(operands.q.shape, np.float32)
    dk, dv = np.zeros_like(operands.k, np.float32), np.zeros_like(operands.v, np.float32)
    for start in range(0, keys, CUDNN_KEYS):
        part = slice(start, min(start + CUDNN_KEYS, keys))
        low = min(start, queries) if causal else 0  # queries before see none of the block
        if low == queries:
            break
        rows = operands.q[:, low:]
        scores = multiply_warpgroup(rows, operands.k[:, part].transpose(0, 2, 1))
        if added is None:
            exponents = fuse(scores, operands.scale, -logs[:, low:])
        else:
            exponents = fuse(scores, operands.scale, added[:, low:, part]) - logs[:, low:]
        hidden = hide(queries, start, part.stop, 0 if causal else None)[low:]
        p = np.where(hidden, np.float32(0), ex2(exponents * LOG2E, flush=True))
        dp = multiply_warpgroup(gradient[:, low:], operands.v[:, part].transpose(0, 2, 1))
        if kept is not None:
            dp = np.where(kept[:, low:, part], dp, np.float32(0))
        ds = flush(flush(flush(p * flush(flush(dp) - delta[:, low:])) * again) * operands.scale).astype(q.dtype)
        if kept is not None:
            p = np.where(kept[:, low:, part], p * again, np.float32(0))
        dv[:, part] = multiply_warpgroup(p.astype(q.dtype).transpose(0, 2, 1), gradient[:, low:])
        dk[:, part] = multiply_warpgroup(ds.transpose(0, 2, 1), rows)
        dq[:, low:] += multiply_warpgroup(ds, operands.k[:, part])
    return (
        round_to(dq, q.dtype).reshape(q.shape),
        _join_groups(round_to(dk, q.dtype), k.shape),
        _join_groups(round_to(dv, q.dtype), v.shape),
    )


def _join_groups(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Add the gradients of heads that share keys: ``fmha_reduce_head``."""
    if len(gradient) == shape[0] * shape[1]:
        return gradient.reshape(shape)
    total = add_groups(flush(gradient.astype(np.float32)).astype(gradient.dtype), shape)
    return flush(total.astype(np.float32)).astype(gradient.dtype)
