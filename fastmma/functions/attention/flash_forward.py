"""Flash attention, forward: ``flash_fwd_kernel`` and ``flash_fwd_splitkv_kernel`` of torch 2.11.

Scores of a block of keys are multiplied by the scale times log2(e), rounded, and the row's maximum so far, multiplied likewise, is
subtracted (torch forbids to fuse these); `ex2.approx` of that is a probability. Blocks are taken from the last to the first. Where there
are few heads and queries, the keys are in parts, which a second kernel joins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import fuse, round_to
from fastmma.functions.attention.blocks import FLASH, PROCESSORS, count_parts, round_dimension
from fastmma.functions.attention.dropout import Dropout, keep_by_warps
from fastmma.functions.attention.operands import HALVES, LN2, Array, Floats, Heads, flatten, heads_of
from fastmma.functions.attention.products import multiply
from fastmma.functions.attention.running import Running
from fastmma.functions.attention.window import Window, place_window
from fastmma.functions.block import halve_rows
from fastmma.functions.special import lg2
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import default_floats
from fastmma.host.threads import thread_count

_THREADS = 128  # of a block of the kernel that joins parts
_LARGEST = max(FLASH)
_INFINITY = np.float32(np.inf)


class Part(NamedTuple):
    """Sums of blocks of keys: results not yet divided, maxima of scores, and sums of exponentials."""

    out: Floats
    top: Floats
    total: Floats


@np.errstate(all="ignore")
@default_floats
def flash(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    dropout: Dropout | None = None,
    processors: int = PROCESSORS,
    parts: int | None = None,
    threads: int | None = None,
) -> tuple[Array, Floats]:
    """Compute ``aten::_scaled_dot_product_flash_attention``: the output, and the logarithms of the sums of exponentials.

    Parameters
    ----------
    q, k, v : array
        bfloat16 or float16 (batch, heads, length, head dimension), the last a multiple of 8 up to 256. Keys and values may have
        fewer heads.
    causal : bool
        A query sees keys up to its own place, counted from the end of both.
    scale : float, optional
        By default one over the square root of the head dimension.
    window : tuple of int
        How many keys before and after its own place a query sees; -1: all.
    dropout : Dropout, optional
    processors : int
        Streaming multiprocessors of the GPU. Their number decides into how many parts the keys are divided.
    parts : int, optional
        The number of parts into which the keys are divided; by default the GPU's choice for the number of heads. With dropout there is one
        part.
    threads : int, optional

    Returns
    -------
    out : array (batch, heads, length, head dimension)
    logsumexp : float32 array (batch, heads, length)

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    >>> out, logsumexp = flash(q, k, v)
    >>> float(out[0, 0, 0, 0]), float(logsumexp[0, 0, 0])
    (0.1690673828125, 2.131098747253418)
    """
    operands = heads_of("flash", q, k, v, scale, HALVES)
    if max(q.shape[3], v.shape[3]) > _LARGEST or q.shape[3] != v.shape[3]:
        raise OperandError(f"flash: head dimensions are one and up to {_LARGEST}, not {q.shape[3]} and {v.shape[3]}")
    sight = place_window(q.shape[2], k.shape[2], causal and q.shape[2] > 1, window)
    if q.shape[2] == 1 and k.shape[1] < q.shape[1] and dropout is None and sight == Window():  # heads become queries
        operands = operands._replace(q=flatten(q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])), k=flatten(k), v=flatten(v))
    heads, queries, dimension = operands.q.shape
    usual = 1 if dropout is not None else count_parts(queries, k.shape[2], dimension, heads, processors)
    out, logs = attend(operands, sight, dropout, parts or usual, thread_count(threads))
    return round_to(out, q.dtype).reshape(q.shape), logs.reshape(q.shape[:3])


def attend(operands: Heads, window: Window, dropout: Dropout | None, parts: int, threads: int) -> tuple[Floats, Floats]:
    """Compute outputs, not yet rounded, and logarithms of heads with their own keys.

    Parameters
    ----------
    operands : Heads
    window : Window
        Which keys a query sees.
    dropout : Dropout, optional
    parts : int
        Into which the keys are divided.
    threads : int
    """
    heads, queries, dimension = operands.q.shape
    keys = operands.k.shape[1]
    sizes = FLASH[round_dimension(dimension)]
    if parts == 1:
        kept = None if dropout is None else keep_by_warps(dropout, heads, queries, keys)
        columns = sizes.keys if dropout is None else sizes.kept_keys
        found = attend_blocks(operands, range(0, keys, columns), columns, window, kept, threads)
        out, logs = normalise(found, operands.scale, _INFINITY, None if dropout is None else np.float32(1) / dropout.kept)
        return out, logs
    columns = sizes.split_keys
    starts = range(0, keys, columns)
    each = -(-len(starts) // parts)
    split = [starts[part * each : part * each + each] for part in range(parts)]
    found_parts = [normalise(attend_blocks(operands, part, columns, window, None, threads), operands.scale, -_INFINITY) for part in split]
    return _join([out for out, _ in found_parts], np.stack([logs for _, logs in found_parts]), round_dimension(dimension))


def attend_blocks(operands: Heads, starts: range, columns: int, window: Window, kept: Array | None, threads: int) -> Part:
    """Add up blocks of keys, the last first.

    Parameters
    ----------
    operands : Heads
    starts : range
        Where blocks begin.
    columns : int
        Keys of a block.
    window : Window
        Which keys a query sees.
    kept : bool array, optional
        Which probabilities (head, query, key) are not dropped.
    threads : int
    """
    from fastmma.kernels.functions import attention as kernels

    heads, queries, _ = operands.q.shape
    keys, dimension = operands.v.shape[1:]
    out = np.zeros((heads, queries, dimension), np.float32)
    running = Running(heads, queries, kernels.LANES)
    for start in reversed(starts):
        stop = min(start + columns, keys)
        rows = window.rows(queries, start, stop)
        if rows.start == rows.stop:
            continue
        places = np.arange(rows.start, rows.stop)
        scores = multiply(operands.q[:, rows], operands.k[:, start:stop].transpose(0, 2, 1))
        if window.first is not None:
            scores[:, window.hides(places, start, stop)] = -_INFINITY
        visible = window.ends(places, start, stop)
        exponentials, factors = running.take(scores, visible, operands.scale_log2, kernels.add_to_lanes, threads, rows=rows)
        weights = exponentials.astype(operands.q.dtype)
        if kept is not None:
            weights = np.where(kept[:, rows, start:stop], weights, weights.dtype.type(0))
        out[:, rows] = multiply(weights, operands.v[:, start:stop], out[:, rows] * factors)
    total = running.sums + running.sums[..., [2, 3, 0, 1]]
    return Part(out, running.top, (total + total[..., [1, 0, 3, 2]])[..., 0])


def normalise(part: Part, scale: np.float32, nothing: np.float32, again: np.float32 | None = None) -> tuple[Floats, Floats]:
    """Divide results by their sums; also return logarithms of these, `nothing` where no key is seen."""
    empty = (part.total == 0) | np.isnan(part.total)
    total = np.where(empty, np.float32(1), part.total)
    inverse = np.reciprocal(total)
    logs = np.where(empty, nothing, fuse(part.top, scale, lg2(total, flush=False) * LN2))
    return part.out * (inverse if again is None else inverse * again)[..., None], logs


def _join(outs: list[Floats], logs: Floats, dimension: int) -> tuple[Floats, Floats]:
    """Join parts of the keys as ``flash_fwd_splitkv_combine_kernel`` does: their sums in a tree of lanes, their results in order."""
    parts = len(logs)
    room = 1 << max(1, (parts - 1).bit_length())
    rows = 4 if dimension % 128 == 0 else 8 if dimension % 64 == 0 else 16
    most = logs.max(0)
    most = np.where(most == -_INFINITY, np.float32(0), most)
    sums = np.zeros((room, *logs.shape[1:]), np.float32)
    sums[:parts] = libdevice.call("expf", logs - most)
    lanes = sums.reshape(-1, min(_THREADS // rows, room), *sums.shape[1:])
    total = lanes[0]
    for more in lanes[1:]:
        total = total + more
    total = halve_rows(total)
    empty = (total == 0) | np.isnan(total)
    whole = np.where(empty, _INFINITY, libdevice.call("logf", np.where(empty, np.float32(1), total)) + most)
    out = np.zeros_like(outs[0])
    for each, log in zip(outs, logs, strict=True):
        out = fuse(libdevice.call("expf", log - whole)[..., None], each, out)
    return out, whole
