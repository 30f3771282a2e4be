"""Flash attention of sequences that lie one after the other, forward and backward: ``mha_varlen_fwd`` and ``mha_varlen_bwd`` of torch 2.11.

The kernels are those of `flash` and `flash_backward`; a sequence is an element of a batch. Its keys are divided into parts only where all
sequences have one query and heads share keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fastmma.functions.arithmetic import round_to
from fastmma.functions.attention.blocks import FLASH, PROCESSORS, count_parts, round_dimension
from fastmma.functions.attention.dropout import WARP, Dropout
from fastmma.functions.attention.flash_forward import attend
from fastmma.functions.attention.flash_gradients import differentiate
from fastmma.functions.attention.operands import HALVES, Array, Floats, Heads, check_gradient, heads_of
from fastmma.functions.attention.turns import FREE
from fastmma.functions.attention.window import Window, place_window
from fastmma.functions.reduce import reduce_sum
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import default_floats
from fastmma.host.threads import thread_count

_INFINITY = np.float32(np.inf)


class Places(NamedTuple):
    """A sequence's queries and keys, and which of these the former see."""

    queries: slice
    keys: slice
    window: Window


def place(starts: Sequence[int], key_starts: Sequence[int], *, causal: bool = False, window: tuple[int, int] = (-1, -1)) -> list[Places]:
    """Return the places of sequences.

    Parameters
    ----------
    starts, key_starts : sequence of int
        Where the queries and the keys of each sequence begin, and where the last ones end.
    causal : bool
    window : tuple of int
        As in `flash_sequences`.

    Raises
    ------
    OperandError

    Examples
    --------
    >>> place((0, 2), (0, 3), causal=True)
    [Places(queries=slice(0, 2, None), keys=slice(0, 3, None), window=Window(first=None, last=1))]
    """
    queries, keys = np.diff(starts), np.diff(key_starts)
    if len(queries) != len(keys) or not len(queries) or min(*queries, *keys, starts[0], key_starts[0]) < 0:
        raise OperandError("flash_sequences: starts of queries and of keys ascend, one more than there are sequences")
    longest, causal = int(keys.max()), causal and int(queries.max()) > 1
    return [
        Places(
            slice(starts[i], starts[i + 1]),
            slice(key_starts[i], key_starts[i + 1]),
            place_window(int(queries[i]), int(keys[i]), causal, window, longest),
        )
        for i in range(len(queries))
    ]


def _heads(q: Array, k: Array, v: Array, scale: float | None) -> Heads:
    """Check operands (place, head, head dimension), and lay out all heads."""
    if not q.ndim == k.ndim == v.ndim == 3:
        raise OperandError(f"flash_sequences: operands are of (place, head, head dimension), not {q.shape}, {k.shape} and {v.shape}")
    turned = [each.swapaxes(0, 1)[None] for each in (q, k, v)]
    found = heads_of("flash_sequences", turned[0], turned[1], turned[2], scale, HALVES)
    if max(q.shape[2], v.shape[2]) > max(FLASH) or q.shape[2] != v.shape[2]:
        raise OperandError(f"flash_sequences: head dimensions are one and up to {max(FLASH)}, not {q.shape[2]} and {v.shape[2]}")
    return found


def _each(operands: Heads, sequences: Sequence[Places], dropout: Dropout | None) -> Iterator[tuple[Heads, Places, Dropout | None]]:
    heads = len(operands.q)
    for index, each in enumerate(sequences):
        k, v = operands.k[:, each.keys], operands.v[:, each.keys]
        if each.queries.stop > each.queries.start and each.keys.stop > each.keys.start:
            drawn = None if dropout is None else dropout._replace(offset=dropout.offset + index * heads * WARP)
            yield operands._replace(q=operands.q[:, each.queries], k=k, v=v), each, drawn


def _attend_single(operands: Heads, sequences: Sequence[Places], groups: int, processors: int, threads: int) -> tuple[Floats, Floats]:
    """Attend with one query a sequence: heads that share keys become queries of one head, and keys are divided into parts."""
    heads, _, size = operands.q.shape
    longest = max(each.keys.stop - each.keys.start for each in sequences)
    parts = count_parts(groups, longest, size, heads // groups * len(sequences), processors)
    out, logs = np.zeros(operands.q.shape, np.float32), np.full(operands.q.shape[:2], _INFINITY)
    for one, each, _ in _each(operands, sequences, None):
        found, log = attend(_in_groups(one, groups), Window(), None, parts, threads)
        out[:, each.queries] = found.reshape(heads, 1, size)
        logs[:, each.queries] = log.reshape(heads, 1)
    return out, logs


def _in_groups(operands: Heads, groups: int) -> Heads:
    """Turn the heads that share keys into queries of one head."""
    heads, _, size = operands.q.shape
    q = operands.q.reshape(heads // groups, groups, size)
    return operands._replace(q=q, k=operands.k[::groups], v=operands.v[::groups])


@np.errstate(all="ignore")
@default_floats
def flash_sequences(
    q: Array,
    k: Array,
    v: Array,
    starts: Sequence[int],
    key_starts: Sequence[int],
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    dropout: Dropout | None = None,
    processors: int = PROCESSORS,
    threads: int | None = None,
) -> tuple[Array, Floats]:
    """Compute ``aten::_flash_attention_forward`` of sequences: the output, and the logarithms of the sums of exponentials.

    Parameters
    ----------
    q, k, v : array
        bfloat16 or float16 (place, head, head dimension), the last a multiple of 8 up to 256. Keys and values may have fewer heads.
    starts, key_starts : sequence of int
        Where the queries and the keys of each sequence begin, and where the last ones end.
    causal : bool
        A query sees keys of its sequence up to its own place, counted from the end of both.
    scale : float, optional
        By default one over the square root of the head dimension.
    window : tuple of int
        How many keys before and after its own place a query sees; -1: all.
    dropout : Dropout, optional
    processors : int
        Streaming multiprocessors of the GPU. Their number decides into how many parts the keys of single queries are divided.
    threads : int, optional

    Returns
    -------
    out : array (place, head, head dimension)
    logsumexp : float32 array (head, place)

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(8, 1, 8)
    >>> out, logsumexp = flash_sequences(q, k, v, (0, 3, 8), (0, 3, 8))
    >>> out.shape, float(out[0, 0, 0])
    ((8, 1, 8), 0.416015625)
    """
    operands = _heads(q, k, v, scale)
    sequences = place(starts, key_starts, causal=causal, window=window)
    most = max(each.queries.stop - each.queries.start for each in sequences)
    if most == 1 and k.shape[1] < q.shape[1] and max(window) < 0 and dropout is None:
        groups = q.shape[1] // k.shape[1]
        single, logs = _attend_single(operands, sequences, groups, processors, thread_count(threads))
        return np.ascontiguousarray(round_to(single, q.dtype).transpose(1, 0, 2)), logs
    out, logs = np.zeros(operands.q.shape, q.dtype), np.full(operands.q.shape[:2], _INFINITY)
    for one, each, drawn in _each(operands, sequences, dropout):
        found, logs[:, each.queries] = attend(one, each.window, drawn, 1, thread_count(threads))
        out[:, each.queries] = round_to(found, q.dtype)
    return np.ascontiguousarray(out.transpose(1, 0, 2)), logs


@np.errstate(all="ignore")
@default_floats
def flash_sequences_backward(
    grad_out: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Floats,
    starts: Sequence[int],
    key_starts: Sequence[int],
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    dropout: Dropout | None = None,
    deterministic: bool = False,
    processors: int = PROCESSORS,
) -> tuple[Array, Array, Array]:
    """Compute ``aten::_flash_attention_backward`` of sequences: the gradients of queries, keys and values.

    See `flash_backward` for the order of the gradient of the queries.

    Parameters
    ----------
    grad_out : array
        The gradient of the output.
    q, k, v, starts, key_starts : array
        As in `flash_sequences`.
    out, logsumexp : array
        The results of `flash_sequences`.
    causal, scale, window, dropout
        As in `flash_sequences`.
    deterministic : bool
        ``torch.use_deterministic_algorithms(True)`` is set.
    processors : int
        Streaming multiprocessors of the GPU.

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
    >>> q = k = v = np.eye(8, dtype=np.float16).reshape(8, 1, 8)
    >>> places = (0, 3, 8), (0, 3, 8)
    >>> dq, dk, dv = flash_sequences_backward(q, q, k, v, *flash_sequences(q, k, v, *places), *places)
    >>> float(dv[0, 0, 0])
    0.416015625
    """
    operands = _heads(q, k, v, scale)
    turned = [each.swapaxes(0, 1)[None] for each in (grad_out, q, v, out)]
    check_gradient("flash_sequences_backward", turned[0], turned[1], turned[2], turned[3], logsumexp[None])
    sequences = place(starts, key_starts, causal=causal, window=window)
    heads = len(operands.q)
    buffers = -(-processors // (heads * len(sequences))) if deterministic else 1
    dq, dk, dv = (np.zeros_like(each) for each in operands[:3])
    for one, each, drawn in _each(operands, sequences, dropout):
        given = grad_out[each.queries].swapaxes(0, 1), out[each.queries].swapaxes(0, 1), logsumexp[:, each.queries]
        dq[:, each.queries], dk[:, each.keys], dv[:, each.keys] = differentiate(one, *given, each.window, drawn, buffers)
    return np.ascontiguousarray(dq.swapaxes(0, 1)), _add_groups(dk, k.shape), _add_groups(dv, v.shape)


def _add_groups(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Add the gradients (head, place, head dimension) of heads that share keys, as torch's reduction kernel does."""
    groups = np.ascontiguousarray(gradient.swapaxes(0, 1)).reshape(shape[0], shape[1], -1, shape[2])
    return groups[:, :, 0] if groups.shape[2] == 1 else reduce_sum(groups, 2)


def flash_sequences_repeat(
    dimension: int,
    starts: Sequence[int],
    key_starts: Sequence[int],
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    deterministic: bool = False,
) -> bool:
    """Tell whether flash attention of sequences gives the same gradient of the queries each time on a GPU.

    Examples
    --------
    >>> flash_sequences_repeat(64, (0, 256), (0, 256)), flash_sequences_repeat(64, (0, 256), (0, 300))
    (True, False)
    """
    columns = FLASH[round_dimension(dimension)].backward_keys
    sequences = place(starts, key_starts, causal=causal, window=window)
    most = (each.window.blocks_of(each.queries.stop - each.queries.start, each.keys.stop - each.keys.start, columns) for each in sequences)
    return deterministic or max(most) <= FREE
