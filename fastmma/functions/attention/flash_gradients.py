"""Flash attention, backward: ``flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel`` of torch 2.11, and the kernels before and after it.

A block of threads has a block of keys and takes blocks of queries from the last to the first; it adds to the gradient of the queries by
atomics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmma.functions.arithmetic import flush, round_to
from fastmma.functions.attention.blocks import FLASH, PROCESSORS, round_dimension
from fastmma.functions.attention.dropout import Dropout, keep_by_warps
from fastmma.functions.attention.operands import HALVES, LOG2E, Array, Floats, Heads, check_gradient, flatten, heads_of
from fastmma.functions.attention.products import multiply
from fastmma.functions.attention.row_sums import add_by_threads
from fastmma.functions.attention.window import Window, place_window
from fastmma.functions.reduce import reduce_sum
from fastmma.functions.special import ex2
from fastmma.host.float_mode import default_floats

_ROWS = 16  # of an instruction


class Descending(NamedTuple):
    """Rows in blocks, the last block first; each is filled up with rows that are not there."""

    places: Array  # -1: none
    starts: Array  # where the block of a row begins

    def take(self, rows: Array, fill: float = 0) -> Array:
        """Take rows (head, row, ...) in this order."""
        found = rows[:, self.places]
        found[:, self.places < 0] = fill
        return found


def descend(count: int, block: int) -> Descending:
    """Order rows by blocks, the last first.

    Examples
    --------
    >>> descend(20, 16).places[:6].tolist()
    [16, 17, 18, 19, -1, -1]
    """
    starts = np.arange((count - 1) // block * block, -1, -block)
    lengths = -(-np.minimum(block, count - starts) // _ROWS) * _ROWS
    places = np.concatenate([start + np.arange(length) for start, length in zip(starts, lengths, strict=True)])
    return Descending(np.where(places < count, places, -1), np.repeat(starts, lengths))


@np.errstate(all="ignore")
@default_floats
def flash_backward(
    grad_out: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Floats,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    dropout: Dropout | None = None,
    deterministic: bool = False,
    processors: int = PROCESSORS,
) -> tuple[Array, Array, Array]:
    """Compute ``aten::_scaled_dot_product_flash_attention_backward``: the gradients of queries, keys and values.

    With three or more blocks of keys, a GPU adds up the gradient of the queries in no fixed order, unless `deterministic` (see
    `flash_repeats`); here it is the order of the keys.

    Parameters
    ----------
    grad_out : array
        The gradient of the output.
    q, k, v : array
        As in `flash`.
    out, logsumexp : array
        The results of `flash`.
    causal, scale, window, dropout, processors
        As in `flash`.
    deterministic : bool
        ``torch.use_deterministic_algorithms(True)`` is set.

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
    >>> from fastmma.functions.attention.flash_forward import flash
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    >>> dq, dk, dv = flash_backward(q, q, k, v, *flash(q, k, v))
    >>> float(dv[0, 0, 0, 0])
    0.1690673828125
    """
    operands = heads_of("flash_backward", q, k, v, scale, HALVES)
    check_gradient("flash_backward", grad_out, q, v, out, logsumexp)
    sight = place_window(q.shape[2], k.shape[2], causal, window)
    buffers = -(-processors // len(operands.q)) if deterministic else 1
    dq, dk, dv = differentiate(operands, flatten(grad_out), flatten(out), flatten(logsumexp), sight, dropout, buffers)
    return dq.reshape(q.shape), add_groups(dk, k.shape), add_groups(dv, v.shape)


def differentiate(
    operands: Heads, grad_out: Array, out: Array, logs: Floats, window: Window, dropout: Dropout | None, buffers: int
) -> tuple[Array, Array, Array]:
    """Compute the gradients of heads with their own keys.

    Parameters
    ----------
    operands : Heads
    grad_out, out : array (head, query, head dimension)
    logs : float32 array (head, query)
        Logarithms of the sums of exponentials.
    window : Window
        Which keys a query sees.
    dropout : Dropout, optional
    buffers : int
        Blocks of keys take turns in adding to so many buffers of the gradient of the queries.
    """
    heads, queries, dimension = operands.q.shape
    keys, dtype = operands.k.shape[1], operands.q.dtype
    padded = round_dimension(dimension)
    sizes = FLASH[padded]
    order = descend(queries, sizes.backward_queries)
    kept = np.float32(1) if dropout is None else dropout.kept
    again = np.float32(1) / kept
    rows, gradient = order.take(operands.q), order.take(grad_out)
    delta = order.take(add_by_threads(grad_out, out, padded) * kept)
    shifts = order.take(np.where(logs == -np.inf, np.float32(0), logs * LOG2E), np.inf)
    chosen = None if dropout is None else order.take(keep_by_warps(dropout, heads, queries, keys))
    columns = sizes.backward_keys
    starts = range(0, keys, columns)
    sums = np.zeros((min(buffers, len(starts)), *rows.shape), np.float32)
    dk, dv = np.zeros_like(operands.k, np.float32), np.zeros_like(operands.v, np.float32)
    for index, start in enumerate(starts):
        part = slice(start, min(start + columns, keys))
        seeing = window.rows(queries, part.start, part.stop)
        first = seeing.start // sizes.backward_queries * sizes.backward_queries
        seen = slice(int(np.count_nonzero(order.starts >= seeing.stop)), int(np.count_nonzero(order.starts >= first)))  # in whole blocks
        if seen.start >= seen.stop:
            continue
        scores = multiply(rows[:, seen], operands.k[:, part].transpose(0, 2, 1))
        hidden = window.hides(np.arange(queries), start, part.stop)[order.places[seen]]
        exponents = np.where(hidden, np.float32(-np.inf), scores * operands.scale_log2 - shifts[:, seen, None])
        p = ex2(exponents, flush=False)
        dp = multiply(gradient[:, seen], operands.v[:, part].transpose(0, 2, 1))
        below = delta[:, seen, None]
        if chosen is None:
            ds = p * (dp - below)
        else:
            ds = p * np.where(chosen[:, seen, part], dp - below, -below)
            p = np.where(chosen[:, seen, part], p, np.float32(0))
        p, ds = p.astype(dtype), ds.astype(dtype)
        dv[:, part] = multiply(p.transpose(0, 2, 1), gradient[:, seen])
        dk[:, part] = multiply(ds.transpose(0, 2, 1), rows[:, seen])
        to = sums[index % len(sums)]
        to[:, seen] = _add_atomically(to[:, seen], multiply(ds, operands.k[:, part]))
    total = sums[0]
    for more in sums[1:]:
        total = total + more
    dq = np.empty(operands.q.shape, dtype)
    there = order.places >= 0
    dq[:, order.places[there]] = round_to(total[:, there] * (again * operands.scale), dtype)
    dv = dv if dropout is None else dv * again
    return dq, round_to(dk * (again * operands.scale), dtype), round_to(dv, dtype)


def _add_atomically(sums: Floats, more: Floats) -> Floats:
    """Add as atomics in global memory do, for which subnormal numbers are zeros."""
    return flush(sums + flush(more))


def add_groups(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Add the gradients of heads that share keys, as torch's reduction kernel does."""
    groups = gradient.reshape(shape[0], shape[1], -1, *shape[2:])
    if groups.shape[2] == 1:
        return groups[:, :, 0]
    return reduce_sum(np.ascontiguousarray(groups.transpose(0, 3, 1, 2, 4)), 3).transpose(0, 2, 1, 3)
