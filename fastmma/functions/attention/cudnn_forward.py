"""cuDNN's fused attention, forward: ``sm90_flash_fprop_wgmma_f16`` and ``sm80_flash_fprop_wmma_f16`` of cuDNN 9.19, as torch 2.11 has it.

Scores of a block of keys are multiplied by the scale times log2(e), rounded, and the row's maximum so far, multiplied likewise, is
subtracted; the kernel for one query multiplies by the scale and by log2(e) one after the other, and a bias is added to scaled scores by one
fused multiply-add. `ex2.approx` of that is a probability. Blocks are taken in order. A thread adds the probabilities of a block in its
columns, and the blocks before by a fused multiply-add; four threads join in pairs. Results are multiplied by `rcp.approx` of the sum.
"""

from __future__ import annotations

import numpy as np

from fastmma.functions.arithmetic import flush, fuse, round_to
from fastmma.functions.attention.blocks import CUDNN_KEYS, CUDNN_MOST_HEADS_OF_ONE, CUDNN_MOST_KEYS_OF_ONE, CUDNN_ONE_KEYS
from fastmma.functions.attention.dropout import Dropout, keep_by_tiles
from fastmma.functions.attention.operands import HALVES, LN2, LOG2E, Array, Floats, heads_of, read_bias, see
from fastmma.functions.attention.products import multiply, multiply_warpgroup
from fastmma.functions.attention.running import Running
from fastmma.functions.special import lg2, rcp
from fastmma.host.errors import NotEmulatedError, OperandError
from fastmma.host.float_mode import default_floats
from fastmma.host.threads import thread_count

_LARGEST = 256


def check_sizes(where: str, q: Array, v: Array, scale: np.float32) -> None:
    """Check what cuDNN's kernels are recorded for: one head dimension up to 256, and a scale above zero.

    Raises
    ------
    OperandError
    """
    if not (q.shape[3] == v.shape[3] <= _LARGEST and scale > 0):
        raise OperandError(
            f"{where}: head dimensions are one and up to {_LARGEST}, not {q.shape[3]} and {v.shape[3]}; the scale, {scale}, is above zero"
        )


def cudnn_adds_in_order(heads: int, queries: int, keys: int) -> bool:
    """Tell whether a GPU adds the probabilities of a row in a fixed order; `heads` counts the heads of all batches.

    Examples
    --------
    >>> cudnn_adds_in_order(8, 1, 256), cudnn_adds_in_order(8, 1, 300), cudnn_adds_in_order(8, 2, 300)
    (True, False, True)
    """
    return queries > 1 or (keys <= CUDNN_MOST_KEYS_OF_ONE and heads <= CUDNN_MOST_HEADS_OF_ONE)


@np.errstate(all="ignore")
@default_floats
def cudnn(
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
    """Compute ``aten::_scaled_dot_product_cudnn_attention``: the output, and the logarithms of the sums of exponentials.

    Parameters
    ----------
    q, k, v : array
        bfloat16 or float16 (batch, heads, length, head dimension), the last a multiple of 8 up to 256. Keys and values may have
        fewer heads.
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
    out : array (batch, heads, length, head dimension)
    logsumexp : float32 array (batch, heads, length)

    Raises
    ------
    OperandError, OperandTypeError
    NotEmulatedError
        If there is one query and more than 256 keys or 64 heads. cuDNN then runs another kernel, whose warps add to a sum in no fixed
        order.

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    >>> out, logsumexp = cudnn(q, k, v)
    >>> float(out[0, 0, 0, 0]), float(logsumexp[0, 0, 0])
    (0.1690673828125, 2.131098747253418)
    """
    from fastmma.kernels.functions import attention as kernels

    operands, threads = heads_of("cudnn", q, k, v, scale, HALVES), thread_count(threads)
    check_sizes("cudnn", q, v, operands.scale)
    added = read_bias("cudnn", bias, q, k.shape[2])
    heads, queries, _ = operands.q.shape
    keys, one = k.shape[2], queries == 1
    if not cudnn_adds_in_order(heads, queries, keys):
        raise NotEmulatedError(
            f"cudnn: with one query a GPU adds in a fixed order for up to {CUDNN_MOST_KEYS_OF_ONE} keys and "
            f"{CUDNN_MOST_HEADS_OF_ONE} heads, not {keys} and {heads}"
        )
    columns, product = (CUDNN_ONE_KEYS, multiply) if one else (CUDNN_KEYS, multiply_warpgroup)
    factor = LOG2E if one or added is not None else operands.scale * LOG2E
    kept = None if dropout is None else keep_by_tiles(dropout, heads, queries, keys)
    again = np.float32(1) if dropout is None else np.float32(1) / dropout.kept
    out = np.zeros(operands.q.shape, np.float32)
    running = Running(heads, queries, kernels.LANES)
    for start in range(0, keys, columns):
        stop = min(start + columns, keys)
        low = min(start, queries) if causal else 0  # queries before see none of the block
        if low == queries:
            break
        scores = product(operands.q[:, low:], operands.k[:, start:stop].transpose(0, 2, 1))
        if added is not None:
            scores = fuse(scores, operands.scale, added[:, low:, start:stop])
        elif one:
            scores *= operands.scale
        visible = see(queries, start, stop, 0 if causal else None)[low:]
        adds = kernels.add_blocks_to_lanes
        exponentials, factors = running.take(scores, visible, factor, adds, threads, rows=slice(low, None), apart=True, flush=True)
        if kept is not None:
            exponentials = np.where(kept[:, low:, start:stop], exponentials * again, np.float32(0))
        out[:, low:] = product(exponentials.astype(q.dtype), operands.v[:, start:stop], out[:, low:] * factors)
    pairs = running.sums[..., 0::2] + running.sums[..., 1::2]
    whole = pairs[..., 0] + pairs[..., 1]
    most, log2 = running.top * factor, lg2(whole, flush=False)
    logs = fuse(log2, LN2, most * LN2) if one else fuse(most, LN2, log2 * LN2)
    inverse = rcp(np.where(whole == 0, np.float32(1), whole))  # the result of a row that sees nothing is zero
    return round_to(flush(out * inverse[..., None]), q.dtype).reshape(q.shape), logs.reshape(q.shape[:3])
